"""From a file of one's own to a running training in at most ten clicks, with what it will take before it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from workbench.job_records import jobs
from workbench.registry.database import close_engines, reading

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
MOST_CLICKS = 10
DONE = 120_000  # milliseconds in which an import or a probe is over


class Clicks:
    """Clicks and counts them."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, target: Locator) -> None:
        target.click()
        self.number += 1


@pytest.mark.slow
def test_ten_clicks_lead_from_a_file_to_a_running_job(own_servers: Any, page: Page, tmp_path: Path) -> None:
    own = tmp_path / "poems.jsonl"
    lines = [json.dumps({"text": f"{number}: Shall I compare thee to a summer's day? " * 20}) for number in range(60)]
    own.write_text("\n".join(lines), encoding="utf-8")
    click = Clicks()
    page.goto(own_servers.studio)
    click(page.get_by_role("link", name="Train", exact=True).first)
    expect(page.get_by_role("heading", name="What do you have?")).to_be_visible(timeout=DONE)
    click(page.get_by_text("Import text", exact=False).first)
    page.locator("input[type=file]").set_input_files(own)
    click.number += 1  # the dialog of the browser
    click(page.get_by_role("button", name="Import the text"))
    go_on = page.get_by_role("button", name="Continue with poems")
    expect(go_on).to_be_visible(timeout=DONE)
    click(go_on)
    expect(page.get_by_role("heading", name="What do you want?")).to_be_visible(timeout=DONE)
    click(page.get_by_role("button", name="Continue: one more expert"))
    expect(page.get_by_text("What it will take", exact=True).first).to_be_visible(timeout=DONE)
    page.get_by_role("button", name="Measure it").click()
    expect(page.get_by_text("The first batch, as the model will see it")).to_be_visible(timeout=DONE)
    height = "one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)"
    assert page.get_by_role("cell", name="Trainable").evaluate(height) < 2  # the word stands in one line
    click(page.get_by_role("button", name="Train the expert"))
    expect(page.get_by_role("button", name="Pause").or_(page.get_by_text("See the expert")).first).to_be_visible(
        timeout=DONE
    )
    assert click.number <= MOST_CLICKS
    try:
        with reading(own_servers.settings) as session:
            [job] = [one for one in jobs.list_jobs(session, kind="train-expert") if one.spec["name"] == "poems"]
    finally:
        close_engines()
    assert job.spec["domain"] == "poems"
