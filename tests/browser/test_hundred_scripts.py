"""A window of a real browser that sees whether any of a hundred scripts runs: it would notice one that does."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.payloads import CANARY, PAYLOADS

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE = 120_000  # milliseconds
OPEN = """() => document.querySelectorAll("details:not([open]) > summary").forEach((one) => one.click())"""
# Walks the document with its shadow roots: the text and labels that it shows, and attributes that could run a script.
READ = """(canary) => {
  const text = [], faults = [], roots = [document];
  const labels = ["title", "aria-label", "alt", "placeholder"];
  const urls = ["href", "src", "action", "formaction", "data", "xlink:href", "poster", "srcset"];
  while (roots.length) {
    for (const one of roots.pop().querySelectorAll("*")) {
      if (one.shadowRoot) roots.push(one.shadowRoot);
      const code = ["SCRIPT", "STYLE"].includes(one.tagName);
      for (const node of one.childNodes) if (node.nodeType === Node.TEXT_NODE && !code) text.push(node.data);
      if (code && /^\\s*ran\\(|@import[^;]*canary/.test(one.textContent)) faults.push(one.outerHTML.slice(0, 200));
      if (typeof one.value === "string") text.push(one.value);
      for (const {name, value} of one.attributes) {
        if (labels.includes(name)) text.push(value);
        if (name.startsWith("on") && value.includes("ran(")) faults.push(`${one.tagName} ${name}=${value}`);
        if (!urls.includes(name)) continue;
        let url; try { url = new URL(value, document.baseURI); } catch { continue; }
        const asks = url.hostname.endsWith(canary), runs = ["javascript:", "vbscript:"].includes(url.protocol);
        const opens = url.protocol === "data:" && value.includes("html");
        if (asks || runs || opens) faults.push(`${one.tagName} ${name}=${value}`);
      }
    }
  }
  return [text.join(""), faults];
}"""


@dataclass
class Window:
    """A window of the browser, and what happened in it: the scripts that ran, and signs that one could."""

    context: BrowserContext
    ran: list[int] = field(default_factory=list)
    signs: list[str] = field(default_factory=list)  # dialogs, new windows, questions to the canary, faults of the page
    text: list[str] = field(default_factory=list)  # of all pages

    def __post_init__(self) -> None:
        self.context.expose_binding("ran", lambda _, number: self.ran.append(number))
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("dialog", self._dismiss)
        self.page.on("console", lambda message: self._note_refusal(message.text))
        self.context.on("request", lambda request: self._note_request(request.url))
        self.context.on("page", lambda page: self.signs.append(f"a window of {page.url}"))

    def _dismiss(self, dialog: Any) -> None:
        self.signs.append(dialog.message)
        dialog.dismiss()

    def _note_request(self, url: str) -> None:
        if re.match(rf"\w+://([^/]*\.)?{re.escape(CANARY)}", url):
            self.signs.append(url)

    def _note_refusal(self, words: str) -> None:
        """What the page's policy kept from being loaded."""
        if "Content Security Policy" in words and CANARY in words:
            self.signs.append(words)

    def look(self) -> None:
        """Points at everything, and reads."""
        for x in range(40, 1400, 170):
            for y in range(90, 1000, 90):
                self.page.mouse.move(x, y)
        self.read()

    def read(self) -> None:
        """Notes what the page and its frames show, and what of them could run."""
        for frame in self.page.frames:
            text, faults = frame.evaluate(READ, CANARY)
            self.text.append(text)
            self.signs += [f"{self.page.url}: {fault}" for fault in faults]

    @property
    def harm(self) -> list[Any]:
        """All that must not happen."""
        return [*self.ran, *self.signs]

    def shown(self) -> list[str]:
        """The texts that stand on some page as they are."""
        shown = _squeezed("".join(self.text))
        return [payload for payload in PAYLOADS if _squeezed(payload) in shown]


def _squeezed(text: str) -> str:
    """Without white space, which pages change, and without the sign that keeps an address from becoming a link."""
    return re.sub(r"[\s\u2060]+", "", text)


@pytest.fixture
def window(chromium: Browser) -> Iterator[Window]:
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    yield Window(context)
    context.close()


def test_the_browser_runs_them_on_a_page_that_does_not_escape_them(window: Window) -> None:
    address = "http://127.0.0.1/control"
    frames = "".join(f'<iframe srcdoc="{html.escape(payload)}"></iframe>' for payload in PAYLOADS)
    window.page.route(address, lambda route: route.fulfill(body=frames, content_type="text/html; charset=utf-8"))
    window.page.goto(address, wait_until="commit")
    over = time.monotonic() + PATIENCE / 1000
    while (len(set(window.ran)) < 40 or len(window.signs) < 5) and time.monotonic() < over:
        window.page.wait_for_timeout(100)
    assert len(set(window.ran)) >= 40, sorted(set(window.ran))
    assert len(window.signs) >= 5, window.signs


def test_what_could_run_is_seen_before_it_is_clicked(window: Window) -> None:
    some = ("<b onmouseover", "<a href=javascript", "<img src=http", "<style>@import")
    window.page.set_content("".join(payload for payload in PAYLOADS if payload.startswith(some)))
    window.read()
    kinds = ("B onmouseover=ran(", "A href=javascript:ran(", f"IMG src=http://{CANARY}", "<style>@import")
    assert [kind for kind in kinds if not any(kind in sign for sign in window.signs)] == []
