"""The walk that everything exists for: click an expert into being, switch it, and compare it while it writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from workbench.registry.database import close_engines, reading
from workbench.registry.experts import get_expert

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
EXPERT = "a *cook*"  # a name that must not be read as Markdown
TRAINED = 240_000  # milliseconds in which the job is done
QUICK = 60_000  # milliseconds

# Keeps, for each pane, when its text grew and how long it was then.
WATCH = """
window.grown = {a: [], b: []};
for (const side of ["a", "b"]) {
  const pane = document.getElementById("answer-" + side);
  new MutationObserver(() => {
    const said = pane.querySelector(":is(.generated, .tv-text)");
    if (said) window.grown[side].push([performance.now(), said.textContent.length]);
  }).observe(pane, {childList: true, subtree: true, characterData: true});
}
"""


def test_an_expert_is_clicked_into_being_and_compared_while_it_writes(own_servers: Any, page: Page) -> None:
    train(page, own_servers)
    see_it_in_the_registry(page)
    switch_it_off_and_on(page, own_servers)
    compare(page, own_servers)


def train(page: Page, servers: Any) -> None:
    page.goto(f"{servers.studio}/train?kind=train-expert")
    page.get_by_label("Name", exact=True).fill(EXPERT)
    page.get_by_text("Training details").click()
    for label, value in (("Steps", "30"), ("Block size", "32")):
        page.get_by_label(label, exact=True).fill(value)
        page.get_by_label(label, exact=True).press("Tab")
    # The form offers first the domain that nobody was trained on.
    expect(page.get_by_role("combobox", name="Domain", exact=True)).to_have_value("kitchen")
    page.get_by_role("button", name="Train the expert").click()
    expect(page.get_by_text("See the expert")).to_be_visible(timeout=TRAINED)
    expect(page.get_by_text("Held-out loss:").first).to_be_visible()


def see_it_in_the_registry(page: Page) -> None:
    page.get_by_text("See the expert").click()
    expect(page.get_by_role("button", name="All experts")).to_be_visible()
    expect(page.get_by_role("heading", name=EXPERT)).to_be_visible()
    page.get_by_role("tab", name="Lineage").click()
    expect(page.get_by_text(f"→ expert {EXPERT}")).to_be_visible()


def switch_it_off_and_on(page: Page, servers: Any) -> None:
    for wanted in (False, True):
        page.locator("label").filter(has_text="Enabled").click()
        expect(page.get_by_label("Enabled", exact=True)).to_be_checked(checked=wanted)
        eventually(lambda wanted=wanted: is_enabled(servers) is wanted)
        expect(page.get_by_label("Enabled", exact=True)).to_be_checked(checked=wanted)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + QUICK / 1000
    while not holds():
        assert time.monotonic() < deadline, "the registry was not written in time"
        time.sleep(0.1)


def is_enabled(servers: Any) -> bool:
    try:
        with reading(servers.settings) as session:
            return get_expert(session, EXPERT).enabled
    finally:
        close_engines()


def compare(page: Page, servers: Any) -> None:
    page.goto(f"{servers.playground}?left=first&right={EXPERT}")
    panes = [page.locator(".pane").nth(place) for place in (0, 1)]
    expect(panes[0].get_by_label(EXPERT)).to_be_checked()
    panes[0].get_by_label("first/law").uncheck()
    generate_both(page)  # the first answer also loads the weights
    check_weights_tables(page)
    page.get_by_role("button", name="Sampling", exact=True).click()
    # Long enough to be caught in the act; the likeliest token is never the end of the document here.
    page.get_by_label("number input for Max tokens").fill("512")
    page.get_by_label("number input for Temperature").fill("0")
    page.keyboard.press("Escape")
    expect(page.locator(".sidebar.open")).to_have_count(0)
    page.evaluate(WATCH)
    generate_both(page)
    wrote_side_by_side(page.evaluate("window.grown"))


def generate_both(page: Page) -> None:
    """Waits for the end of both answers; those of before are emptied first: a short one may end before one looks."""
    page.locator("#answer-a, #answer-b").evaluate_all(
        "panes => panes.forEach(pane => pane.querySelectorAll('.state').forEach(one => one.textContent = ''))"
    )
    page.get_by_role("button", name="Generate", exact=True).click()
    for side in ("a", "b"):
        expect(page.locator(f"#answer-{side}")).to_contain_text("Finished:", timeout=60_000)


def check_weights_tables(page: Page) -> None:
    names = "#answer-{} table td:first-child .name"
    for side in ("a", "b"):
        page.locator(f"#answer-{side}").get_by_text("Weights and files").click()
    assert sorted(page.locator(names.format("a")).all_inner_texts()) == sorted([EXPERT, "first/code"])
    assert page.locator(names.format("b")).all_inner_texts() == [EXPERT]


def wrote_side_by_side(grown: dict[str, list[list[float]]]) -> None:
    """Both panes grew in several steps, and neither waited for the other's end."""
    for side, steps in grown.items():
        assert len({length for _, length in steps}) >= 4, (side, steps)
    began = {side: min(at for at, length in steps if length == min_length(steps)) for side, steps in grown.items()}
    ended = {side: steps[-1][0] for side, steps in grown.items()}
    assert max(began.values()) < min(ended.values()), grown


def min_length(steps: list[list[float]]) -> float:
    return min(length for _, length in steps)
