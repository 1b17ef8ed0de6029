"""MoDE by the mouse: train an expert beside the frozen model, put it beside another, see what was learned and kept."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import run_all
from tests.browser.fields import choose_option
from tests.browser.test_accessibility import popover_faults

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
DONE = 120_000  # milliseconds in which a job ends
SECOND = (
    "train mode l --seed-model tiny --domains law --blocks 2 --expert-layers 1 --steps 30 --block-size 32"
    " --learning-rate 0.01 --here"
)
SCORES = tuple(f"evaluate run {name} --block-size 32 --max-tokens 1000 --here" for name in ("c", "l", "both"))


@pytest.mark.slow
def test_two_experts_are_trained_composed_and_viewed(own_servers: Any, page: Page) -> None:
    train(page, own_servers)
    run_all(own_servers.settings, SECOND)
    compose(page)
    look_at_its_parts(page)
    run_all(own_servers.settings, *SCORES, SECOND.replace("mode l", "mode m"))
    look_at_what_it_could_join(page, own_servers)
    compare_what_was_kept(page, own_servers)


def train(page: Page, servers: Any) -> None:
    page.goto(f"{servers.studio}/train?kind=train-mode")
    expect(page.get_by_text("Shape of the expert")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_count(1)  # that of the form before is gone
    page.get_by_label("Name", exact=True).fill("c")
    choose(page, "Domains", "code")
    page.get_by_text("More", exact=True).click()
    choose(page, "Domains that must not be forgotten", "kitchen")
    page.get_by_text("Shape of the expert").click()
    write(page, ("Blocks of the backbone", "2"), ("Layers of the expert in each block", "1"))
    tune(page)
    expect(page.get_by_text("What it will take", exact=True).first).to_be_visible(timeout=DONE)
    page.get_by_role("button", name="Train the expert").click()
    expect(page.get_by_text("See the expert")).to_be_visible(timeout=DONE)
    for chart in ("While the target was learned", "Gate shares"):
        expect(page.get_by_text(chart)).to_have_count(1)


def compose(page: Page) -> None:
    page.get_by_text("See the expert").click()
    page.get_by_role("button", name="Compose…").click()
    expect(page.get_by_text("Experts with parts side by side")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("both")
    choose(page, "Experts", "l/law")
    choose(page, "Domains", "code", "law")
    tune(page)
    page.get_by_role("button", name="Compose them").click()
    expect(page.get_by_text("See the composition")).to_be_visible(timeout=DONE)
    expect(page.get_by_text("Gate shares")).to_have_count(1)


def look_at_its_parts(page: Page) -> None:
    page.get_by_text("See the composition").click()
    expect(page.get_by_role("heading", name="both/composed")).to_be_visible()
    expect(page.get_by_text("Parts next to the backbone tiny in 2 blocks")).to_be_visible()
    page.get_by_role("tab", name="Lineage").click()
    for part in ("c/code", "l/law"):
        expect(page.get_by_text(f"expert {part} → expert both/composed")).to_be_visible()


def look_at_what_it_could_join(page: Page, servers: Any) -> None:
    page.goto(f"{servers.studio}/experts?experts.chosen=m/law")
    expect(page.get_by_role("heading", name="m/law")).to_be_visible()
    assert popover_faults(page, "Add to a composition") == []


def compare_what_was_kept(page: Page, servers: Any) -> None:
    page.goto(f"{servers.studio}/specialization")
    page.get_by_role("radio", name="Learning vs. forgetting").click()
    expect(page.get_by_text("Learning (up) vs. retention (right)")).to_be_visible()
    expect(page.get_by_text("Kept most:")).to_be_visible()


def choose(page: Page, label: str, *names: str) -> None:
    for name in names:
        choose_option(page.get_by_role("combobox", name=label, exact=True), name)
    page.keyboard.press("Escape")


def tune(page: Page) -> None:
    expect(page.get_by_text("Training details")).to_have_count(1)  # while a page is redrawn, its old one is still there
    page.get_by_text("Training details").click()
    write(page, ("Steps", "30"), ("Block size", "32"), ("Evaluate every", "10"))


def write(page: Page, *answers: tuple[str, str]) -> None:
    for label, value in answers:
        page.get_by_label(label, exact=True).fill(value)
        page.get_by_label(label, exact=True).press("Tab")
