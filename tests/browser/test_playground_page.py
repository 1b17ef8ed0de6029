"""The playground in a browser: its first screen, its streams, votes and links, by mouse and by keyboard."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from tests.api_server import serve_api, unused_port
from tests.browser.test_accessibility import serious
from tests.ui.conftest import FakeHost, mixed  # noqa: F401
from ui.api.app import create_app
from ui.playground.player import Player
from workbench.settings import Settings

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
TRIES, MOMENT = 12, 5_000  # a list that is drawn anew, and milliseconds until it is tried again
LOADED = 120_000  # milliseconds: the first page after the start of the server
SCREEN, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
# Counts the updates of a pane, and says when the first and the last came.
COUNT = """() => {
  window.updates = [];
  const text = document.querySelector("#answer-a");
  new MutationObserver(() => window.updates.push(performance.now()))
    .observe(text, {childList: true, subtree: true, characterData: true});
}"""
FITS = """() => [document.documentElement.scrollHeight === window.innerHeight,
  document.documentElement.scrollWidth === window.innerWidth,
  document.querySelector("#prompt").getBoundingClientRect().bottom <= window.innerHeight]"""


class Host(FakeHost):
    """Says the same of a prompt and of its ids, as true weights do."""

    def _tokens(self, plan: Any, _: str, sampling: Any, stop: Any) -> Any:
        return super()._tokens(plan, "the sea", sampling, stop)


@pytest.fixture
def host() -> FakeHost:
    return Host()


@pytest.fixture
def address(mixed: Path, host: FakeHost) -> Iterator[str]:  # noqa: F811
    """The playground of a registry with the mixture `both`, in a thread of this process."""
    port = unused_port()
    with serve_api(create_app(Settings(home=mixed, api_port=port), host), port):
        yield f"http://127.0.0.1:{port}/play/"


def opened(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#chips-a .chip")).not_to_have_count(0, timeout=LOADED)
    expect(page.locator("#next-a .next")).to_be_visible()


def choose(page: Page, label: str, name: str) -> None:
    """Takes one option, again if its list was drawn anew meanwhile: the names come while the sidebar slides in."""
    chosen = page.locator(".token").filter(has_text=name)
    for _ in range(TRIES):
        page.get_by_label(label).click()
        try:
            page.get_by_role("option", name=name, exact=True).click(timeout=MOMENT)
            expect(chosen).to_be_visible(timeout=MOMENT)
        except (TimeoutError, AssertionError):
            page.get_by_role("heading", name="X/Y grid").click()  # closes the list, which opens when it is focused
        else:
            return
    expect(chosen).to_be_visible()


def wait_for_answers(page: Page, number: int = 2) -> None:
    expect(page.locator(".state[data-done]:visible")).to_have_count(number)


def sample(page: Page, max_tokens: int) -> None:
    page.get_by_role("button", name="Sampling", exact=True).click()
    page.get_by_label("number input for Max tokens").fill(str(max_tokens))
    page.keyboard.press("Escape")
    expect(page.locator(".sidebar.open")).to_have_count(0)


def test_the_first_screen_holds_everything_and_no_token_is_lost(address: str, host: FakeHost, page: Page) -> None:
    page.set_viewport_size(SCREEN)
    opened(page, address)
    for number in (4, 3, 2):
        page.locator("#count label").filter(has_text=str(number)).click()
        expect(page.locator(".pane:visible")).to_have_count(number)
        assert page.evaluate(FITS) == [True, True, True]
    sample(page, 500)
    host.seconds = 0.004
    page.evaluate(COUNT)
    page.get_by_role("button", name="Generate", exact=True).click()
    for name in ("a", "b"):
        expect(page.locator(f"#answer-{name} .tv-token").first).to_be_attached()
        expect(page.locator(f"#answer-{name}")).to_be_in_viewport()  # the token may have been scrolled out of it
    wait_for_answers(page)
    for name in ("a", "b"):
        tokens = page.locator(f"#answer-{name} .tv-token").all_text_contents()
        assert tokens == [f" sea{number}" for number in range(500)]
    updates = page.evaluate("window.updates")
    assert len(updates) > 5  # it grew
    begin, end = updates[0] + 300, updates[-1] - 300  # milliseconds: the pane is emptied first, and completed last
    assert sum(begin <= update <= end for update in updates) <= 20 * (end - begin) / 1000 + 1
    assert page.evaluate(FITS) == [True, True, True]


IN_SIGHT = """() => [...document.querySelectorAll(".answer .tv-text")].every((pane) => {
  const mark = pane.querySelector("sup");
  return mark === null || mark.getBoundingClientRect().top >= pane.getBoundingClientRect().top;
})"""
KEY_OF = "(id) => getComputedStyle(document.querySelector(id), '::after').content"


def test_the_first_mark_is_in_sight_and_a_vote_names_its_key(address: str, page: Page) -> None:
    page.set_viewport_size(SCREEN)
    opened(page, address)
    page.locator("#prompt textarea").fill("the sea")
    page.keyboard.press("Control+Enter")
    wait_for_answers(page)
    expect(page.locator("#answer-a sup").first).to_be_attached()
    assert page.evaluate(IN_SIGHT)
    assert "key 1" in page.evaluate(KEY_OF, "#vote-a")  # a bare number reads as a count


def num_generated(host: FakeHost) -> int:
    """The answers so far, without the next tokens that are read while one types: those are drawn without a seed."""
    return sum(seed is not None for seed in host.seeds)


def test_a_vote_is_counted_and_a_link_shows_the_stored_text_in_another_browser(
    address: str, host: FakeHost, page: Page, chromium: Browser
) -> None:
    opened(page, address)
    page.locator("#prompt textarea").focus()
    page.keyboard.press("Control+Enter")
    wait_for_answers(page)
    expect(page.locator("#announcer")).to_have_text(re.compile("^Answer [AB]. Finished"))
    text = page.locator("#answer-a .tv-token").all_text_contents()
    link = page.locator("#permalink a")
    expect(link).to_have_count(1)
    page.locator("#answer-a .tv-text").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#answer-a .tv-float")).to_contain_text(re.compile("both/code\\s*75 %"))
    page.keyboard.press("1")
    expect(page.locator("#ratings")).to_contain_text("1 vote")
    page.get_by_role("button", name="History", exact=True).click()
    expect(page.locator("#matches a")).to_have_count(1)

    before = num_generated(host)
    context = chromium.new_context()
    other = context.new_page()
    other.goto(f"{address}{link.get_attribute('href')}")
    expect(other.locator("#answer-a .state")).to_contain_text("Stored answer: max tokens reached.")
    assert other.locator("#answer-a .tv-token").all_text_contents() == text
    assert num_generated(host) == before
    other.get_by_role("button", name="Verify", exact=True).click()
    expect(other.locator("#answer-a .state")).to_contain_text("The same text as stored.")
    expect(other.get_by_role("button", name="Verify", exact=True)).to_be_hidden()
    assert other.locator("#answer-a .tv-token").all_text_contents() == text
    context.close()


BOX_OF = "(id) => { const box = document.querySelector(id).getBoundingClientRect(); return [box.x, box.y, box.width]; }"


def test_no_button_moves_under_the_pointer_and_the_second_click_withdraws_the_vote(address: str, page: Page) -> None:
    opened(page, address)
    page.locator("#prompt textarea").focus()
    page.keyboard.press("Control+Enter")
    wait_for_answers(page)
    expect(page.locator("#permalink a")).to_have_count(1)
    before = [page.evaluate(BOX_OF, id) for id in ("#vote-a", "#vote-both-bad")]
    x, y = before[0][0] + 10, before[0][1] + 10
    page.mouse.click(x, y)
    expect(page.locator("#vote-a")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#ratings")).to_contain_text("1 vote")
    assert [page.evaluate(BOX_OF, id) for id in ("#vote-a", "#vote-both-bad")] == before
    page.mouse.click(x, y)
    expect(page.locator("#vote-a")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#ratings")).to_contain_text("0 votes")


def test_what_comes_next_is_of_the_prompt_that_stands_there(address: str, page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page, address)
    expect(page.locator("#next-a .next")).to_be_visible()
    page.evaluate("navigator.clipboard.writeText('the “sea”\\n& <b>')")
    page.locator("#prompt textarea").focus()
    page.keyboard.press("Control+A")
    page.keyboard.press("Control+V")
    expect(page.locator("#next-a .next")).to_have_attribute("data-end", "the “sea”\n& <b>")
    expect(page.locator("#next-a .next")).to_be_visible()
    hold = "const next = document.querySelector('#next-a .next'), field = document.querySelector('#prompt textarea');"
    typed = "field.value = 'x'; field.dispatchEvent(new Event('input', { bubbles: true }));"
    assert page.evaluate(f"() => {{ {hold} {typed} return next.hidden; }}")


def test_escape_stops_and_switches_answer_while_typing(address: str, host: FakeHost, page: Page) -> None:
    opened(page, address)
    page.locator("#chips-a").get_by_label("both/law").uncheck()
    expect(page.locator("#next-a")).to_contain_text("100%")
    sample(page, 512)
    host.seconds = 0.05
    page.locator("#prompt textarea").focus()
    page.keyboard.press("Control+Enter")
    expect(page.locator("#answer-a .tv-token").nth(3)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#answer-a .state")).to_contain_text("Stopped.")


@pytest.mark.slow
def test_axe_finds_nothing_serious_and_a_phone_shows_one_pane(address: str, chromium: Browser) -> None:
    faults = []
    for theme in ("light", "dark"):
        context = chromium.new_context(color_scheme=theme, viewport=SCREEN)
        page = context.new_page()
        opened(page, address)
        page.locator("#chips-a .weights").click()
        page.get_by_role("button", name="Generate", exact=True).click()
        wait_for_answers(page)
        faults += [f"{theme}: {fault}" for fault in serious(page)]
        for drawer in ("Sampling", "History", "X/Y grid"):
            page.get_by_role("button", name=drawer, exact=True).click()
            expect(page.locator(".sidebar.open")).to_have_count(1)
            faults += [f"{theme}, {drawer}: {fault}" for fault in serious(page)]
            page.keyboard.press("Escape")
            expect(page.locator(".sidebar.open")).to_have_count(0)
        page.set_viewport_size(PHONE)
        expect(page.locator(".pane:visible")).to_have_count(1)
        for words in ("#legend", "#question"):
            expect(page.locator(words)).to_be_in_viewport(ratio=1)
        page.locator("#shown label").filter(has_text="B").click()
        expect(page.locator("#pane-b")).to_be_visible()
        expect(page.locator("#pane-a")).to_be_hidden()
        assert page.evaluate(FITS) == [True, True, True]
        for button in ("X/Y grid", "History", "Sampling", "Copy link"):
            expect(page.get_by_role("button", name=button, exact=True)).to_be_in_viewport(ratio=1)
        faults += [f"{theme}, phone: {fault}" for fault in serious(page)]
        context.close()
    assert faults == []


def test_without_an_expert_the_next_pane_is_a_diff(address: str, page: Page) -> None:
    opened(page, address)
    page.locator("#chips-a .weights").click()
    page.get_by_role("button", name="Next pane without both/law").click()
    expect(page.locator("#answer-b .same")).to_contain_text("The same text as A.")
    expect(page.locator("#chips-b").get_by_label("both/law", exact=True)).not_to_be_checked()


def test_a_grid_is_filled(address: str, page: Page) -> None:
    opened(page, address)
    page.get_by_role("button", name="X/Y grid", exact=True).click()
    choose(page, "Mixtures and experts", "both/law")
    page.get_by_label("Prompts, one in a line").fill("the sea\nthe hill")
    page.get_by_role("button", name="Fill the grid").click()
    expect(page.locator("#cells")).to_contain_text("2 of 2 cells")
    expect(page.locator("#cells td").nth(1)).to_contain_text("sea0")


def other(chromium: Browser, address: str) -> Page:
    """The page of another user, who has opened a link."""
    page = chromium.new_context().new_page()
    page.goto(address)
    return page


def move(page: Page, direction: str) -> None:
    """Moves in the browser's history and waits until the page is loaded anew, which cuts `go_back` short."""
    page.evaluate(f"window.isOld = true; setTimeout(() => history.{direction}(), 0)")
    page.wait_for_function("() => !window.isOld", timeout=LOADED)
    expect(page.locator("#chips-a .chip")).not_to_have_count(0, timeout=LOADED)


def test_a_grid_has_a_link_that_fills_it_again_in_another_browser(address: str, page: Page, chromium: Browser) -> None:
    opened(page, address)
    sample(page, 3)
    page.get_by_role("button", name="X/Y grid", exact=True).click()
    choose(page, "Mixtures and experts", "both")
    choose(page, "Mixtures and experts", "both/law")
    page.get_by_label("Prompts, one in a line").fill("the sea & the hill = 1\n a land")
    page.get_by_role("button", name="Fill the grid").click()
    expect(page.locator("#cells")).to_contain_text("4 of 4 cells")
    page.wait_for_url(lambda url: "x=both&x=both%2Flaw" in url)
    cells, link = page.locator("#cells td").all_text_contents(), page.url

    second = other(chromium, link)
    expect(second.locator("#cells")).to_contain_text("4 of 4 cells", timeout=LOADED)
    assert second.locator("#cells td").all_text_contents() == cells
    expect(second.get_by_label("Prompts, one in a line")).to_have_value("the sea & the hill = 1\n a land")
    expect(second.locator("#grid .token")).to_have_text([re.compile("both"), re.compile("both/law")])
    expect(second.get_by_label("number input for Max tokens")).to_have_value("3")
    assert second.url == link
    second.context.close()

    page.keyboard.press("Escape")
    page.locator("#chips-a").get_by_label("both/law").uncheck()
    page.wait_for_url(lambda url: "left.set=both%2Flaw%3Aoff" in url)
    move(page, "back")
    expect(page.locator("#cells")).to_contain_text("4 of 4 cells", timeout=LOADED)
    assert page.url == link
    move(page, "forward")
    expect(page.locator("#chips-a").get_by_label("both/law", exact=True)).not_to_be_checked(timeout=LOADED)


LATE = """async () => {  // an answer that comes after the user went back, and before the page is loaded anew
  window.dispatchEvent(new PopStateEvent("popstate"));
  document.querySelector("#cells").innerHTML = '<p data-address="?x=late"></p>';
  await null;
  return location.search;
}"""
EARLY = """async () => {  // a field is left before the settings are known that the page opened with
  const place = document.querySelector("#settings"), answer = (more) => { place.innerHTML = `<i ${more}></i>`; };
  answer('data-settings="?prompt=a" data-address="?prompt=a" data-turn="1"');
  await null;
  answer('data-settings="?prompt=a"');
  await null;
  const left = location.search;
  answer('data-settings="?prompt=b" data-address="?prompt=b" data-turn="2"');
  await null;
  return [left, location.search];
}"""


def test_an_answer_that_comes_after_the_user_went_back_makes_no_entry_of_the_history(address: str, page: Page) -> None:
    opened(page, address)
    assert "late" not in page.evaluate(LATE)


def test_a_field_that_is_left_while_the_page_opens_changes_no_address(address: str, page: Page) -> None:
    page.route("**/gradio_api/queue/join*", lambda route: route.abort())  # so that the settings never come
    page.goto(f"{address}?prompt=x")
    page.wait_for_selector("#settings", state="attached")
    assert page.evaluate(EARLY) == ["?prompt=x", "?prompt=b"]


def test_switches_and_weights_of_a_pane_have_a_link_and_survive_a_reload(address: str, page: Page) -> None:
    opened(page, address)
    page.locator("#chips-a").get_by_label("both/law").uncheck()
    page.wait_for_url(lambda url: "left.set" in url)
    page.locator("#prompt textarea").fill("pasted")  # no key is pressed
    page.locator("#prompt textarea").blur()
    page.wait_for_url(lambda url: "prompt=pasted" in url)
    page.reload()
    expect(page.locator("#chips-a").get_by_label("both/law", exact=True)).not_to_be_checked(timeout=LOADED)
    expect(page.locator("#prompt textarea")).to_have_value("pasted")


NOTE_LATE_ANSWER = """() => {
    const place = document.querySelector("#settings");
    const look = () => { window.lateAnswerCame ||= !!place.querySelector("[data-settings*='prompt=first&']"); };
    new MutationObserver(look).observe(place, { subtree: true, childList: true, attributes: true });
}"""


def test_a_late_answer_does_not_take_the_address_back(
    address: str, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_end, now = threading.Event(), threading.Event(), Player.address

    def late_of_the_first(player: Player, *values: Any) -> str:
        if "first" in values:
            started.set()
            may_end.wait(60)
        return now(player, *values)

    monkeypatch.setattr(Player, "address", late_of_the_first)
    opened(page, address)
    prompt = page.locator("#prompt textarea")
    prompt.fill("")
    prompt.press_sequentially("first")
    assert started.wait(60)
    prompt.press_sequentially(" second")
    page.wait_for_url(lambda url: "prompt=first+second" in url)
    page.locator("#chips-a").get_by_label("both/law").uncheck()
    page.wait_for_url(lambda url: "left.set" in url)
    newest = page.url
    page.evaluate(NOTE_LATE_ANSWER)  # a newer one may replace it at once
    may_end.set()
    page.wait_for_function("window.lateAnswerCame", timeout=LOADED)
    assert page.url == newest


def test_an_address_by_hand_is_answered_in_a_sentence_and_fills_no_grid(address: str, page: Page) -> None:
    page.goto(f"{address}?x=both&x=gone&y=the+sea&temperature=hot&left.set=both/law:9&foo=1")
    expect(page.locator("#notice")).to_contain_text("“gone”", timeout=LOADED)
    for words in ("“foo” is not a setting", "not “hot”", "“both/law:9” is neither on, off nor a weight from 0 to 2"):
        expect(page.locator("#notice")).to_contain_text(words)
    expect(page.locator("#cells table")).to_have_count(0)
    expect(page.locator("#cells")).to_contain_text("“gone”")


def test_what_comes_next_is_shown_for_new_panes_and_not_in_a_chat(address: str, page: Page) -> None:
    opened(page, address)
    page.locator("#count label").filter(has_text="3").click()
    expect(page.locator("#next-c .next")).to_be_visible()
    page.locator("#format label").filter(has_text="Chat").click()
    expect(page.locator(".next")).to_have_count(0)


def test_copying_is_confirmed_in_sight(address: str, page: Page) -> None:
    opened(page, address)
    page.get_by_role("button", name="Copy link", exact=True).click()
    expect(page.locator("#note")).to_have_text("Link copied.")
    page.get_by_role("button", name="X/Y grid", exact=True).click()
    page.get_by_role("button", name="Copy the grid's link").click()
    expect(page.locator("#note")).to_have_text("There is no grid yet: fill it first.")
    page.keyboard.press("Escape")
    expect(page.locator(".sidebar.open")).to_have_count(0)
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")  # as over HTTP
    page.get_by_role("button", name="Generate", exact=True).click()
    wait_for_answers(page)
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.locator("#note")).to_have_text("Answer A copied.")
    page.locator("#prompt textarea").fill("")
    page.locator("#prompt textarea").press("Control+V")
    expect(page.locator("#prompt textarea")).to_have_value(re.compile("sea0"))
    expect(page.locator("#note")).to_be_hidden()


def test_a_grid_is_stopped_where_it_is_filled(address: str, host: FakeHost, page: Page) -> None:
    opened(page, address)
    host.seconds = 0.05
    page.get_by_role("button", name="X/Y grid", exact=True).click()
    choose(page, "Mixtures and experts", "both/law")
    page.get_by_label("Prompts, one in a line").fill("\n".join(f"the sea {number}" for number in range(20)))
    page.get_by_role("button", name="Fill the grid").click()
    expect(page.locator("#cells")).to_contain_text("1 of 20 cells")
    page.get_by_role("button", name="Stop filling").click()
    shown, before = page.locator("#cells p").text_content(), None
    while shown != before:  # what was under way may still come
        page.wait_for_timeout(3 * MOMENT)
        shown, before = page.locator("#cells p").text_content(), shown
    assert "20 of 20 cells" not in str(shown)


def test_a_blind_round_shows_its_names_after_the_vote(address: str, page: Page) -> None:
    opened(page, address)
    page.get_by_label("Blind").check()
    page.get_by_role("button", name="Generate", exact=True).click()
    wait_for_answers(page)
    expect(page.locator("#model-a")).to_be_hidden()
    assert page.locator("#chips-a").bounding_box() is None  # not even its height, by which a mixture could be known
    expect(page.locator("#next-a")).to_be_hidden()  # it names experts
    expect(page.locator("#permalink a")).to_have_count(1)
    page.get_by_role("button", name="Tie", exact=True).click()
    expect(page.locator("#model-a")).to_be_visible()
    expect(page.locator("#answer-a details.more")).to_have_count(1)


def test_no_script_within_html_runs_however_it_comes_into_the_page(address: str, page: Page) -> None:
    """A second wall, behind the escaping of all that is shown."""
    opened(page, address)
    page.evaluate("""() => {
      const html = '<img src="x" onerror="window.ran = 1"><b onclick="window.ran = 2">b</b>';
      document.body.insertAdjacentHTML("beforeend", html);
      const script = document.createElement("script");
      script.textContent = "window.ran = 3";
      document.body.append(script);
      document.querySelector("b[onclick]").click();
      const loaded = document.createElement("script");
      loaded.src = "data:text/javascript,window.ran = 4";
      return new Promise((done) => { loaded.onerror = loaded.onload = done; document.body.append(loaded); });
    }""")
    assert page.evaluate("window.ran ?? 0") == 0


def ask(page: Page, question: str) -> None:
    page.locator("#prompt textarea").fill(question)
    page.locator("#prompt textarea").press("Control+Enter")
    expect(page.locator("#answer-a .turn").last).to_contain_text(question)
    wait_for_answers(page, page.locator(".pane:visible").count())


def test_a_conversation_goes_on_and_is_kept_until_a_new_chat(address: str, page: Page) -> None:
    page.set_viewport_size(SCREEN)
    opened(page, address)
    expect(page.locator("#new-chat")).to_be_hidden()
    page.locator("#format label").filter(has_text="Chat").click()
    page.get_by_role("button", name="Sampling", exact=True).click()
    page.get_by_label("System prompt").fill("Answer in verse.")
    page.keyboard.press("Escape")
    ask(page, "What is the sea?")
    expect(page.locator("#prompt textarea")).to_have_value("")
    page.wait_for_url(re.compile(r"\?r="))
    first = page.url
    ask(page, "And the hill?")
    page.wait_for_url(lambda url: "?r=" in url and url != first)
    turns = ["System Answer in verse.", "User What is the sea?", re.compile("^Assistant"), "User And the hill?"]
    expect(page.locator("#answer-b .turn")).to_have_text(turns)
    expect(page.locator("#answer-b .tv-token").last).to_be_in_viewport()

    stored = page.url  # the page emptied the field, not the user
    page.locator("#prompt textarea").focus()
    page.locator("#prompt textarea").blur()
    page.get_by_role("button", name="Regenerate").last.click()
    page.wait_for_url(lambda url: "?r=" in url and url != stored)
    expect(page.locator("#answer-b .turn")).to_have_text(turns)

    page.reload()
    expect(page.locator("#answer-b .turn")).to_have_text(turns, timeout=LOADED)
    expect(page.locator("#answer-b .tv-token").last).to_be_in_viewport()
    expect(page.locator("#prompt textarea")).to_have_value("")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".answer .hint:visible")).to_have_count(2)
    page.wait_for_url(lambda url: "?r=" not in url)


def test_one_pane_is_enough_and_gets_a_neighbour_without_an_expert(address: str, page: Page) -> None:
    page.set_viewport_size(SCREEN)
    opened(page, address)
    page.locator("#count label").filter(has_text="1").click()
    expect(page.locator(".pane:visible")).to_have_count(1)
    expect(page.locator("#vote")).to_be_hidden()
    page.get_by_role("button", name="Generate", exact=True).click()
    wait_for_answers(page, 1)
    assert page.evaluate(FITS) == [True, True, True]
    page.locator("#chips-a").get_by_role("button", name="Weights").click()
    page.locator("#chips-a").get_by_role("button", name="Next pane without both/law").click()
    expect(page.locator(".pane:visible")).to_have_count(2)
    wait_for_answers(page, 2)


@pytest.mark.parametrize(("ending", "begins"), [("PNG", b"\x89PNG"), ("SVG", b"<svg ")])
def test_the_strip_is_saved_as_a_picture(address: str, page: Page, ending: str, begins: bytes) -> None:
    opened(page, address)
    button = page.locator("#pane-a").get_by_role("button", name=ending, exact=True)
    button.click()
    expect(page.locator("#note")).to_contain_text("Generate an answer first")
    page.get_by_role("button", name="Generate", exact=True).click()
    wait_for_answers(page)
    with page.expect_download() as download:
        button.click()
    saved = Path(download.value.path()).read_bytes()
    assert saved.startswith(begins)
    if ending == "SVG":
        assert all(words in saved.decode() for words in ("both/code 75 %", "sea0", "96 tokens"))


def test_the_brand_leads_to_the_studio_by_the_name_that_the_page_was_opened_with(address: str, page: Page) -> None:
    opened(page, address.replace("127.0.0.1", "localhost"))
    expect(page.locator("#brand a")).to_have_attribute("href", f"http://localhost:{Settings().studio_port}/")
