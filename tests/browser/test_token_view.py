"""The drawing of tokens in a Chromium: text stays text, arrow keys read numbers, longer data keeps what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_accessibility import AXE, SERIOUS
from ui.present.charts.token_view import CSS, DRAW, HTML, difference_data, weight_data
from workbench.formatting.palette import look_of

pytestmark = pytest.mark.browser
NAMES = ["demo/python", "<b>law</b>"]
LOOKS = [look_of(0, "Py"), look_of(1, "La")]
TOKENS = ["def ", "<img src=x onerror=hacked()>", " shall", "\n", " pay"]
WEIGHTS = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.25, 0.75], [0.55, 0.45]]
DRAWN = '(data) => drawTokens(document.querySelector(".token-view"), data)'


def open_view(page: Page, data: Mapping[str, Any]) -> None:
    """A page that holds nothing but the drawing."""
    head = f"<html lang=en><head><title>Tokens</title><style>{CSS}</style></head>"
    page.set_content(f"{head}<body style='background:#fff'><main><h1>Tokens</h1>{HTML}</main></body></html>")
    page.add_script_tag(content=DRAW)
    page.evaluate(DRAWN, data)


def shown(page: Page) -> list[list[str]]:
    """The rows of the table of one token."""
    rows = page.locator(".token-view table tr")
    return [row.locator("th, td:last-child").all_inner_texts() for row in rows.all()]


def data_of(count: int = len(TOKENS), **more: Any) -> Any:
    return weight_data(TOKENS[:count], WEIGHTS[:count], NAMES, LOOKS, **more)


def test_tokens_and_names_with_markup_stay_text(page: Page) -> None:
    open_view(page, data_of())
    page.locator(".tv-token").nth(1).hover()

    assert page.locator(".token-view :is(img, b)").count() == 0
    assert page.locator(".tv-text").evaluate("(one) => one.textContent") == (
        "Py" + "".join(TOKENS[:2]) + "La" + "".join(TOKENS[2:4]) + "Py" + TOKENS[4]
    )
    assert shown(page) == [["Pydemo/python", "80 %"], ["La<b>law</b>", "20 %"]]


def test_the_leading_expert_is_read_without_colour(page: Page) -> None:
    open_view(page, data_of())

    assert page.locator(".tv-text sup").all_inner_texts() == ["Py", "La", "Py"]
    assert page.locator(".tv-runs .tv-mark").all_inner_texts() == ["Py", "La", "Py"]
    assert page.locator("li").all_inner_texts() == [
        "Pydemo/python: leads at 3 of 5",
        "La<b>law</b>: leads at 2 of 5",
    ]
    colours = page.locator(".tv-token").evaluate_all(
        "(all) => all.map((one) => getComputedStyle(one).borderBottomColor)"
    )
    assert colours[1] != colours[2]


def test_arrow_keys_go_from_token_to_token_and_are_announced(page: Page) -> None:
    open_view(page, data_of())
    status = page.get_by_role("status")

    page.keyboard.press("Tab")
    expect(status).to_have_text("def : demo/python 90 %, <b>law</b> 10 %")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(status).to_have_text(" shall: <b>law</b> 70 %, demo/python 30 %")
    assert shown(page) == [["La<b>law</b>", "70 %"], ["Pydemo/python", "30 %"]]
    page.keyboard.press("End")
    expect(status).to_have_text(" pay: demo/python 55 %, <b>law</b> 45 %")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tv-here")).to_have_text(" pay")
    page.keyboard.press("Home")
    expect(page.locator(".tv-here")).to_have_text("def ")
    page.keyboard.press("Escape")
    expect(page.locator(".tv-float")).to_be_hidden()


def test_longer_data_keeps_the_elements_and_the_focus(page: Page) -> None:
    open_view(page, data_of(2))
    page.keyboard.press("Tab")
    page.evaluate("window.before = [...document.querySelectorAll('.tv-token')]")

    page.evaluate(DRAWN, data_of())

    is_same = "[...document.querySelectorAll('.tv-token')].slice(0, 2).every((one, at) => one === window.before[at])"
    assert page.evaluate(is_same)
    assert page.locator(".tv-token").count() == 5
    assert page.evaluate("document.activeElement.className") == "tv-text"


def test_another_text_replaces_the_first(page: Page) -> None:
    open_view(page, data_of())
    page.locator(".tv-token").nth(4).hover()

    page.evaluate(DRAWN, weight_data(["other"], [[0.5, 0.5]], NAMES, LOOKS))

    assert page.locator(".tv-token").all_inner_texts() == ["other"]
    page.evaluate(DRAWN, None)
    assert page.locator(".tv-token").count() == 0


def test_the_strip_has_the_weights_as_heights_and_shares_the_pointer(page: Page) -> None:
    open_view(page, data_of(parts=("strip", "text", "detail")))

    assert page.locator("svg path").first.get_attribute("d").startswith("M0 1.000L0 0.100H1L1 0.200H2")
    box = page.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 5)
    expect(page.locator(".tv-here")).to_have_text(" shall")
    assert shown(page)[0] == ["La<b>law</b>", "70 %"]


def test_worse_and_better_differ_by_their_lines(page: Page) -> None:
    open_view(page, difference_data(["<b>a</b>", "b", "c"], [-1.67, 90.0, 0.0], "mine", "theirs"))

    tokens = page.locator(".tv-token")
    styles = tokens.evaluate_all("(all) => all.map((one) => getComputedStyle(one).borderBottomStyle)")
    assert styles[:2] == ["solid", "double"]
    assert tokens.all_inner_texts()[0] == "<b>a</b>"
    assert tokens.nth(1).evaluate("(one) => one.style.getPropertyValue('--tv-tint')") == "30.0%"  # text stays readable
    tokens.first.hover()
    assert shown(page) == [["mine gives it less probability than theirs", "−1.67 nats"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("parts", [("text", "strip", "legend"), ("strip", "legend", "text", "detail")])
def test_axe_finds_nothing_serious(page: Page, theme: Any, parts: Sequence[Any]) -> None:
    open_view(page, data_of(parts=parts, titles={"strip": "Strip"}))
    if theme == "dark":
        page.evaluate("document.body.style.cssText = 'background: #171614; color: #edebe8'")
    page.locator(".tv-token").nth(1).hover()
    page.add_script_tag(content=AXE)

    assert page.evaluate(SERIOUS) == []


def test_a_token_names_every_expert_with_weight_and_counts_the_others(page: Page) -> None:
    names, rows = [f"e{number}" for number in range(12)], [[0.1] * 9 + [0.05, 0.05, 0.0], [1.0] + [0.0] * 11]
    open_view(page, weight_data(["a", "b"], rows, names, [look_of(0, "M")] * 12, num_shown=24))
    page.locator(".tv-token").nth(0).hover()
    assert [one[0] for one in shown(page)] == [f"M{name}" for name in names]
    page.locator(".tv-token").nth(1).hover()
    assert shown(page)[-1] == ["5 others", "0 %"]


def test_what_stands_before_the_tokens_and_after_them_is_text(page: Page) -> None:
    turn = {"kind": "turn", "who": "User", "text": "<b>why?</b>"}
    open_view(page, data_of(2) | {"before": [turn], "after": "!"})
    page.evaluate(DRAWN, data_of(3) | {"before": [turn], "after": "?"})
    words = page.locator(".tv-text").evaluate("(one) => one.textContent")
    assert words == "User <b>why?</b>Py" + "".join(TOKENS[:2]) + "La" + TOKENS[2] + "?"
