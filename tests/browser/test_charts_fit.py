"""At 1024 pixels charts show their lines and names, and every option of a control is in sight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

from tests.api_server import unused_port
from tests.browser.conftest import RunningWorkbench
from tests.browser.test_accessibility import TABLET, open_page
from tests.browser.test_login import running
from tests.ui.studio.conftest import fill
from workbench.job_records import leases
from workbench.registry.database import close_engines, transaction
from workbench.schema.job_tables import Job
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
NUM_DOMAINS = 15
# For each chart: the share of its box that the drawing takes in width and in height, and labels outside of the box.
CHARTS = """() => [...document.querySelectorAll(".js-plotly-plot")].filter((one) => one.offsetParent).map((one) => {
  const box = one.getBoundingClientRect(), size = one._fullLayout._size;
  const isOutside = (text) => text.right > box.right + 1 || text.left < box.left - 1;
  const labels = [...one.querySelectorAll(".main-svg text")].filter((text) => isOutside(text.getBoundingClientRect()));
  const isLegendCut = [...one.querySelectorAll(".legend .scrollbar")].some((bar) => bar.getAttribute("height") > 0);
  const share = {width: size.w / box.width, height: size.h / box.height};
  return {...share, isLegendCut, labels: labels.map((one) => one.textContent)};
})"""
OPTIONS = "[data-testid=stButtonGroup] button"
OUTSIDE = """(buttons) => buttons.filter((one) => {
  const group = one.closest("[data-testid=stButtonGroup]").getBoundingClientRect(), box = one.getBoundingClientRect();
  return box.right > group.right + 1 || box.right > document.documentElement.clientWidth;
}).map((one) => one.innerText)"""


@pytest.fixture
def studio(home: Path) -> Iterator[RunningWorkbench]:
    """The studio with a training that runs on many domains."""
    settings = Settings(home=home, api_port=unused_port(), studio_port=unused_port())
    fill(settings)
    with transaction(settings) as session:
        job = session.scalars(select(Job).where(Job.state == "running")).one()
        leases.record(session, job.id, job.fence, metrics=points())
    close_engines()
    with running(settings, "-m", "ui.serving.studio_server") as studio:
        yield studio


def points() -> list[tuple[str, int, float]]:
    names = [f"{kind}/a-domain-{number}" for kind in ("loss", "dev_loss") for number in range(NUM_DOMAINS)]
    return [(name, step, 5.0 - step / 100) for name in names for step in (10, 20, 30, 40)]


def test_curves_of_many_domains_take_most_of_their_chart(studio: RunningWorkbench, page: Page) -> None:
    page.set_viewport_size(TABLET)
    open_page(page, f"{studio.studio}/jobs")
    expect(page.locator(".js-plotly-plot .scatterlayer").nth(1)).to_be_visible()
    charts = page.evaluate(CHARTS)
    assert len(charts) >= 2
    assert [chart for chart in charts if chart["labels"] or chart["isLegendCut"]] == []
    assert min(chart["width"] for chart in charts) > 0.6
    assert min(chart["height"] for chart in charts) > 0.4


@pytest.mark.parametrize("address", ["jobs", "specialization"])
def test_every_option_of_a_control_is_in_sight(studio: RunningWorkbench, page: Page, address: str) -> None:
    for width in (TABLET["width"], 390):
        page.set_viewport_size({"width": width, "height": 900})
        open_page(page, f"{studio.studio}/{address}")
        expect(page.locator(OPTIONS).first).to_be_visible()
        assert page.locator(OPTIONS).evaluate_all(OUTSIDE) == []
