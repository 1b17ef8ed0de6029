"""The tour at the top of the README: a minute of screenshots in one animated WebP, each with a sentence below it."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect
from studio import Workbench, choose_parent, settle, type_prompt, window

WIDTH, HEIGHT = 1280, 800  # of the window
SHOWN = (960, 600)  # of the tour
QUALITY = 80  # of WebP, 0 to 100
# A bar over the lower edge with the sentence, and a ring around what is clicked next.
_BAR = """([words, box]) => {
  document.querySelectorAll(".tour").forEach((one) => one.remove());
  const draw = (style, text) => {
    const one = document.createElement("div");
    one.className = "tour"; one.textContent = text; one.style.cssText = style + ";position:fixed;z-index:9999999";
    document.body.append(one);
  };
  draw("left:0;right:0;bottom:0;padding:15px 32px;background:#0b6e8a;color:#fff;font:600 21px/1.35 sans-serif", words);
  if (box) draw(`left:${box.x - 8}px;top:${box.y - 6}px;width:${box.width + 16}px;height:${box.height + 12}px;
    border:3px solid #cc0084;border-radius:10px;pointer-events:none`, "");
}"""


class Recorder:
    """Screenshots of a window with the seconds that each is shown."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[tuple[Image.Image, float]] = []

    def show(self, words: str, seconds: float, click: Locator | None = None) -> None:
        """A screenshot with a sentence; `click` gets a ring, as it is clicked next."""
        box = click.bounding_box() if click else None
        self.page.evaluate(_BAR, [words, box])
        shot = Image.open(io.BytesIO(self.page.screenshot(animations="disabled"))).convert("RGB")
        self.frames.append((shot.resize(SHOWN, Image.Resampling.LANCZOS), seconds))
        self.page.evaluate("document.querySelectorAll('.tour').forEach((one) => one.remove())")

    def click(self, target: Locator, words: str, seconds: float = 2.0) -> None:
        """A screenshot with a ring around the target, then the click."""
        target.scroll_into_view_if_needed()
        self.show(words, seconds, target)
        target.click()

    def write(self, path: Path) -> None:
        """All frames as one animation that begins anew after its end."""
        first, *others = [frame for frame, _ in self.frames]
        durations = [round(seconds * 1000) for _, seconds in self.frames]
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=durations,
            loop=0,
            quality=QUALITY,
            method=6,
            minimize_size=True,
        )
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB, {sum(durations) / 1000:.0f} s", flush=True)


def make_tour(browser: Browser, running: Workbench, path: Path) -> None:
    """Walks through the pages and writes the animation."""
    with window(browser, WIDTH, HEIGHT) as page:
        recorder = Recorder(page)
        for scene in (_overview, _train, _jobs, _map, _experts, _mixture, _heatmap, _playground):
            scene(recorder, running)
        recorder.write(path)


def _open(recorder: Recorder, running: Workbench, address: str) -> None:
    recorder.page.goto(f"{running.studio}/{address}")
    settle(recorder.page)


def _overview(recorder: Recorder, running: Workbench) -> None:
    _open(recorder, running, "")
    expect(recorder.page.locator(".st-key-picture").get_by_text("smol/python").first).to_be_attached()
    expect(recorder.page.get_by_text("The stored scores are being mixed.")).to_have_count(0)
    opening = recorder.page.locator(".st-key-opening")
    expect(opening.locator(".tv-token").first).to_be_attached()
    recorder.show("A text that several experts read: who leads at each word, as you write", 4)
    recorder.click(opening.locator(".tv-switch").filter(has_text="manuals"), "Switch one of them off …", 2)
    expect(opening.get_by_text("Without smol/").first).to_be_visible()
    opening.get_by_text("Without smol/").first.scroll_into_view_if_needed()
    recorder.show("… and the words that become less probable without it are named", 4)


def _train(recorder: Recorder, running: Workbench) -> None:
    page = recorder.page
    _open(recorder, running, "train")
    recorder.click(page.get_by_role("button", name="mathematics (novel)"), "New text? Choose it …", 2)
    recorder.click(page.get_by_role("button", name="Continue with mathematics"), "… and go on", 2)
    wanted = page.get_by_role("button", name="Continue: one more expert")
    expect(wanted).to_be_visible()
    settle(page)
    recorder.click(wanted, "… and what you want of it: one more expert, beside the others", 3)
    choose_parent(page)
    settle(page)
    recorder.show("Measured before it starts: time, memory and disk", 5)


def _jobs(recorder: Recorder, running: Workbench) -> None:
    _open(recorder, running, "jobs")
    expect(recorder.page.locator(".js-plotly-plot .scatterlayer").nth(1)).to_be_visible()
    recorder.show("A training as it runs, with an ETA, pause and resume", 3)
    recorder.page.locator(".js-plotly-plot").first.scroll_into_view_if_needed()
    recorder.show("Its curves, against a dense model's, and below them what it writes as it learns", 5)


def _map(recorder: Recorder, running: Workbench) -> None:
    page = recorder.page
    _open(recorder, running, "clusters")
    expect(page.locator(".js-plotly-plot .gl-canvas").first).to_be_visible()
    domains = page.get_by_role("radio", name="Domains", exact=True)
    recorder.click(domains, "Text without labels: clusters on a map of all documents", 4)
    expect(page.get_by_text("Map by domain").first).to_be_visible()
    settle(page)
    recorder.show("Draw around some of them, and an expert of just these is two clicks away", 3)


def _experts(recorder: Recorder, running: Workbench) -> None:
    _open(recorder, running, "experts")
    recorder.show("Every expert with its method, its text and its score", 4)
    _open(recorder, running, "experts?experts.chosen=smol/python")
    recorder.show("One expert: switch it off, export it, see what it came from and what its removal would cost", 4)


def _mixture(recorder: Recorder, running: Workbench) -> None:
    page = recorder.page
    _open(recorder, running, "mixtures?mixture=smol")
    expect(page.get_by_role("row", name="licences").first).to_be_visible()
    toggle = page.locator("label").filter(has=page.get_by_role("switch", name="licences"))
    recorder.click(toggle, "Switch one expert off …", 3)
    expect(page.get_by_text("↑ worse").first).to_be_visible()
    settle(page)
    recorder.show("… and every domain's perplexity is there at once, exact, from stored scores", 4)


def _heatmap(recorder: Recorder, running: Workbench) -> None:
    page = recorder.page
    _open(recorder, running, "specialization")
    expect(page.locator(".tv-token").first).to_be_attached()
    recorder.show("Which expert reads which text best, down to the passage and the token", 5)


def _playground(recorder: Recorder, running: Workbench) -> None:
    page = recorder.page
    page.goto(f"{running.api}/play/?left=smol&right=seed:smol")
    type_prompt(page, "The licensor grants you a")
    recorder.click(page.get_by_role("button", name="Generate", exact=True), "One prompt, two models side by side", 3)
    expect(page.locator("#answer-a .tv-token").nth(20)).to_be_visible()
    recorder.show("Each word in the colour of the expert that leads there", 1)
    expect(page.locator(".state[data-done]:visible")).to_have_count(2)
    recorder.show("Each word in the colour of the expert that leads there", 3)
    recorder.show("Vote, share a link that gives the same text again, or look at it without one expert", 5)
