"""A live part of a page looks again and again, and what has not changed is neither drawn again nor faded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect
from sqlalchemy import select

from tests.api_server import unused_port
from tests.browser.conftest import RunningWorkbench
from tests.browser.test_accessibility import PHONE, WIDE, open_page
from tests.browser.test_login import running
from tests.ui.studio.conftest import fill
from workbench.job_records import jobs, leases
from workbench.kinds.analysis import Evaluate
from workbench.registry.database import close_engines, transaction
from workbench.schema.job_tables import Job
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

# Counts looks (Streamlit marks what a run has not confirmed yet) and what else changes in the page.
WATCH = """() => {
  // Captions such as “created 5 s ago”, the rows in view that a table offers to screen readers, and other times.
  const GOES_ON = "[data-testid=stCaptionContainer], canvas";
  const isTime = (record, element) => record.type === "characterData" && /, \\d+ [a-z]+ ago/.test(element.textContent);
  window.seen = {looks: 0, changes: [], faded: 0};
  new MutationObserver((records) => records.forEach((record) => {
    const element = record.target.nodeType === 1 ? record.target : record.target.parentElement;
    if (record.attributeName === "data-stale") {
      window.seen.looks += 1;
      if (getComputedStyle(element).opacity !== "1") window.seen.faded += 1;
    } else if (record.attributeName !== "class" && !element.closest(GOES_ON) && !isTime(record, element)) {
      window.seen.changes.push(`${record.type} ${record.attributeName} ${element.outerHTML.slice(0, 200)}`);
    }
  })).observe(document.querySelector("[data-testid=stMain]"),
              {subtree: true, childList: true, attributes: true, characterData: true});
}"""


@pytest.fixture
def studio(home: Path) -> Iterator[RunningWorkbench]:
    """The studio with jobs in every state, none of which goes on."""
    settings = Settings(home=home, api_port=unused_port(), studio_port=unused_port())
    fill(settings)
    close_engines()
    with running(settings, "-m", "ui.serving.studio_server") as studio:
        yield studio


def test_a_running_job_survives_a_reload_and_its_end_is_announced(studio: RunningWorkbench, page: Page) -> None:
    page.set_viewport_size(WIDE)
    open_page(page, f"{studio.studio}/jobs")
    expect(page.get_by_text("step 40 of 100").first).to_be_visible()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_in_viewport(ratio=1)
    with transaction(studio.settings) as session:
        job = session.scalars(select(Job).where(Job.state == "running")).one()
        job_id, title, fence = job.id, job.title, job.fence
        newer = jobs.create_job(session, Evaluate(mixture="first"))
        assert leases.claim(session, newer, "test", 600.0, 3)
    page.reload()
    expect(page.get_by_text("step 40 of 100").first).to_be_visible()
    with transaction(studio.settings) as session:
        leases.record(session, job_id, fence, progress=0.5, note="step 50 of 100", metrics=[("loss", 50, 2.2)])
    expect(page.get_by_text("step 50 of 100").first).to_be_visible()
    expect(page.get_by_text(re.compile("Training loss: .* points are too few")).first).to_be_visible()  # the curve grew
    with transaction(studio.settings) as session:
        leases.finish(session, job_id, fence, "done")
    close_engines()
    expect(page.get_by_role("status").filter(has_text=f"{title}: done")).to_have_count(1)
    expect(page).to_have_url(re.compile(f"job={job_id}"))  # the page would open on the newer one now, which runs


@pytest.mark.parametrize("address", ["", "jobs"])
def test_what_has_not_changed_is_neither_drawn_again_nor_faded(
    studio: RunningWorkbench, page: Page, address: str
) -> None:
    open_page(page, f"{studio.studio}/{address}")
    page.evaluate(WATCH)
    page.wait_for_function("window.seen.looks >= 60")
    assert page.evaluate("window.seen.changes") == []
    assert page.evaluate("window.seen.faded") == 0


def test_a_table_of_a_live_part_is_saved_after_many_reruns_as_it_is_shown(studio: RunningWorkbench, page: Page) -> None:
    open_page(page, f"{studio.studio}/jobs")
    with transaction(studio.settings) as session:
        job = session.scalars(select(Job).where(Job.state == "running")).one()
        job_id, title, fence = job.id, job.title, job.fence
    for percent in (51, 52, 53):  # each makes the table another one
        with transaction(studio.settings) as session:
            leases.record(session, job_id, fence, progress=percent / 100, note=f"step {percent} of 100")
        expect(page.get_by_text(f"step {percent} of 100").first).to_be_visible()
    close_engines()
    expect(page.locator("canvas td").filter(has_text=re.compile("^53$"))).not_to_have_count(0)
    page.evaluate(WATCH)
    page.wait_for_function("window.seen.looks >= 20")  # more reruns after the one that drew the table
    page.context.set_offline(True)  # what is shown can be saved, whatever the server still holds
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV", exact=True).first.click()
    saved = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == "jobs.csv"
    assert any(line.startswith(title) and ",53," in line for line in saved.splitlines())


def test_a_cancel_names_the_jobs_that_it_also_ends_on_a_phone_and_stays_open(
    studio: RunningWorkbench, page: Page
) -> None:
    page.set_viewport_size(PHONE)
    open_page(page, f"{studio.studio}/jobs")
    page.get_by_role("button", name="Cancel …").click()
    button = page.get_by_role("button", name="Cancel the job")
    expect(page.get_by_text("This also cancels 1 job")).to_be_in_viewport(ratio=1)
    page.evaluate(WATCH)
    page.wait_for_function("window.seen.looks >= 20")  # the card was drawn again
    expect(button).to_be_in_viewport(ratio=1)
    button.click()
    expect(page.get_by_text("stopping (cancel requested)").first).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_job_submitted_in_the_wizard_is_in_view(studio: RunningWorkbench, page: Page, size: ViewportSize) -> None:
    page.set_viewport_size(size)
    open_page(page, f"{studio.studio}/train?kind=evaluate")
    page.get_by_role("button", name="Score the experts").click()
    expect(page).to_have_url(re.compile(r"/jobs\?job="))
    expect(page.get_by_role("button", name="Pause").first).to_be_in_viewport(ratio=1)
