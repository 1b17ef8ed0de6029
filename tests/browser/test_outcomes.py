"""What a click leads to is seen without scrolling, on a wide screen and on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect
from sqlalchemy import select

from tests.api_server import unused_port
from tests.browser.conftest import RunningWorkbench
from tests.browser.test_accessibility import PHONE, SETTLED, WIDE, open_page
from tests.browser.test_login import running
from tests.ui.studio.conftest import fill
from workbench.job_records import leases
from workbench.registry.database import close_engines, transaction
from workbench.schema.job_tables import Job
from workbench.settings import Settings

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"]),
]


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, empty_registry: Path) -> Iterator[RunningWorkbench]:
    """The studio of a filled registry, for all tests here; no worker runs a job."""
    home = tmp_path_factory.mktemp("outcomes")
    shutil.copy(empty_registry, home / "registry.db")
    settings = Settings(home=home, api_port=unused_port(), studio_port=unused_port())
    fill(settings)
    close_engines()
    with running(settings, "-m", "ui.serving.studio_server") as studio:
        yield studio


def test_an_import_and_its_end_are_seen_at_its_button(studio: RunningWorkbench, page: Page, size: ViewportSize) -> None:
    page.set_viewport_size(size)
    open_page(page, f"{studio.studio}/corpora?part=Import+text")
    name = f"upload {size['width']}"
    file = {"name": f"{name}.txt", "mimeType": "text/plain", "buffer": b"A text."}
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_label("Name", exact=True)).to_have_value(name)
    expect(page.locator(SETTLED)).to_be_visible()
    page.get_by_role("button", name="Import the text").click()
    line = outcome(page, "import-corpus", f"Import corpus {name}", "queued")
    expect(line.get_by_role("link", name="See the job")).to_be_in_viewport(ratio=1)
    with transaction(studio.settings) as session:
        job_id = session.scalars(select(Job.id).where(Job.title == f"Import corpus {name}")).one()
        fence = leases.claim(session, job_id, "test", 600.0, 3)
        assert fence is not None
        leases.finish(session, job_id, fence, "failed", error="The disk is full.", next_step="Free some space.")
    close_engines()
    outcome(page, "import-corpus", f"Import corpus {name}", "failed")
    expect(line.get_by_text("The disk is full.")).to_be_in_viewport(ratio=1)


def test_a_search_for_clusters_is_seen_at_its_button(studio: RunningWorkbench, page: Page, size: ViewportSize) -> None:
    page.set_viewport_size(size)
    open_page(page, f"{studio.studio}/clusters")
    name = f"topics {size['width']}"
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Name", exact=True).press("Tab")
    expect(page.locator(SETTLED)).to_be_visible()
    page.get_by_role("button", name="Find clusters").click()
    outcome(page, "find-clusters", f"Find clusters {name}", "queued")


def outcome(page: Page, kind: str, title: str, state: str) -> Locator:
    """The line of a job at the button of its form, once it is in view with this state."""
    line = page.locator(f".st-key-outcome_{kind}")
    expect(line.get_by_text(title)).to_be_in_viewport(ratio=1)
    expect(line.get_by_text(state)).to_be_in_viewport(ratio=1)
    return line


def test_the_numbers_of_a_cell_are_seen_after_a_click_and_plotly_is_not_loaded(
    studio: RunningWorkbench, page: Page, size: ViewportSize
) -> None:
    scripts = list[str]()
    page.on("request", lambda request: scripts.append(request.url))
    page.set_viewport_size(size)
    open_page(page, f"{studio.studio}/specialization")
    page.get_by_role("button", name="first/code on prose").click()
    chosen = page.locator(".st-key-chosen_cell")
    expect(chosen.get_by_text("first/code reading prose")).to_be_in_viewport(ratio=1)
    for number in ("2.72 ×", "−1.00"):
        expect(chosen.get_by_text(number)).to_be_in_viewport(ratio=1)
    assert [url for url in scripts if "plotly" in url.lower()] == []
