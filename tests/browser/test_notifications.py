"""The end of a job is a notification of the browser where its user allows that, who is asked at a click only."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import RunningWorkbench
from tests.browser.test_accessibility import open_page
from tests.browser.test_live_parts import studio  # noqa: F401  # a fixture
from workbench.job_records import leases
from workbench.registry.database import close_engines, transaction
from workbench.schema.job_tables import Job

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
# What the browser would show, and how often it was asked; its answer to the question is filled in.
STUB = """
window.asked = 0; window.shown = []; window.focused = 0;
window.focus = () => { window.focused += 1; };
window.Notification = class {
  static permission = "default";
  static async requestPermission() { window.asked += 1; return this.permission = "ANSWER"; }
  constructor(title, options) { window.shown.push([title, options.body]); window.newest = this; }
  close() { this.isClosed = true; }
};
"""


def test_the_end_of_a_job_is_shown_on_whichever_page(studio: RunningWorkbench, page: Page) -> None:  # noqa: F811
    page.context.grant_permissions(["notifications"])
    page.add_init_script(STUB.replace("ANSWER", "granted"))
    open_page(page, f"{studio.studio}/jobs")
    offer = page.get_by_role("button", name="Notify me when it ends")
    expect(offer).to_be_visible()
    assert page.evaluate("window.asked") == 0
    offer.click()
    expect(page.get_by_role("button", name="Do not notify me")).to_be_visible()
    assert page.evaluate("window.asked") == 1
    page.get_by_role("link", name="Experts", exact=True).first.click()
    expect(page.get_by_role("heading", name="Experts", level=1)).to_be_visible()
    with transaction(studio.settings) as session:
        [job] = [row for row in session.query(Job).all() if row.state == "running"]
        title = job.title
        leases.finish(session, job.id, job.fence, "done")
    close_engines()
    page.wait_for_function("window.shown.length > 0")
    page.get_by_role("link", name="Mixtures", exact=True).first.click()  # and not again on the next page
    expect(page.get_by_role("heading", name="Mixtures", level=1)).to_be_visible()
    assert page.evaluate("window.shown") == [[title, "Job done."]]
    page.evaluate("window.newest.onclick()")
    assert page.evaluate("[window.focused, window.newest.isClosed]") == [1, True]


@pytest.mark.parametrize(
    ("browser", "words"),
    [
        (STUB.replace("ANSWER", "denied"), "The browser blocks notifications of this page"),
        (STUB.replace("ANSWER", "default"), "The browser was not allowed to show notifications."),
        ("delete window.Notification;", "This browser has no notifications."),
        ("Object.defineProperty(window, 'isSecureContext', {value: false});", "Notifications need HTTPS"),
    ],
)
def test_a_browser_that_shows_none_is_named(studio: RunningWorkbench, page: Page, browser: str, words: str) -> None:  # noqa: F811
    page.add_init_script(browser)
    open_page(page, f"{studio.studio}/jobs")
    offer = page.get_by_role("button", name="Notify me when it ends")
    offer.click()
    expect(page.get_by_role("status").filter(has_text=words)).to_be_visible()
    expect(offer).to_be_visible()
