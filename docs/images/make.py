"""Makes the pictures of all pages and the tour: `python docs/images/make.py [--home FOLDER] [--only NAME ...]`.

It starts the workbench with a registry of its own (`demo_home.py`), opens every page in Chromium while a training runs,
waits until the page stands still, and writes PNGs of at most 256 colours beside this file. `--home` keeps the registry,
so that a second run need not train again. Needs Playwright with Chromium, and Pillow.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from demo_home import make_home
from httpx import HTTPStatusError
from PIL import Image
from playwright.sync_api import Browser, Page, TimeoutError, expect
from studio import LONG, Workbench, choose_parent, chromium, settle, type_prompt, window, workbench
from tour import make_tour

FOLDER = Path(__file__).parent
WIDE, PHONE = (1440, 900), (390, 844)
VARIANTS = {"": ("light", WIDE), "-dark": ("dark", WIDE), "-390": ("light", PHONE)}
COLOURS = 256  # of a picture
TEXT = (
    "def area(width: float, height: float) -> float:\n"
    '    """The area of a rectangle."""\n'
    "    return width * height\n\n"
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this software, to deal in the "
    "software without restriction, provided that the above copyright notice appears in all copies.\n\n"
    "template <typename T>\nclass Vector {\n public:\n  void push_back(const T& value);\n};\n"
)


@dataclass(frozen=True)
class Picture:
    """A picture: its file, the address in the studio, and what must be done and seen before it is taken."""

    name: str
    address: str
    act: Callable[[Page], None] = lambda _: None
    has_variants: bool = False  # also of a phone and in the dark theme


def picture_names() -> list[str]:
    """The names of all pictures, those of phones and of the dark theme included."""
    return [
        f"{picture.name}{ending}" for picture in PICTURES for ending in (VARIANTS if picture.has_variants else ("",))
    ]


# what must be there --------------------------------------------------------------------------------


def _overview(page: Page) -> None:
    expect(page.locator(".st-key-opening .tv-token").first).to_be_attached()
    expect(page.locator(".st-key-picture").get_by_text("smol/python").first).to_be_attached()
    expect(page.get_by_text("step ").first).to_be_visible()
    expect(page.get_by_text("The stored scores are being mixed.")).to_have_count(0)


def _map(page: Page) -> None:
    expect(page.locator(".js-plotly-plot .gl-canvas").first).to_be_visible()
    page.get_by_role("radio", name="Clusters", exact=True).click()
    expect(page.get_by_text("Map by cluster").first).to_be_visible()


def _curves(page: Page) -> None:
    expect(page.locator(".js-plotly-plot .scatterlayer").nth(1)).to_be_visible()


def _training(page: Page) -> None:
    choose_parent(page)


def _posterior(page: Page) -> None:
    page.get_by_role("textbox", name="Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Show the posterior").click()
    expect(page.locator(".tv-token").first).to_be_attached()


def _passage(page: Page) -> None:
    expect(page.locator(".tv-token").first).to_be_attached()


def _mixture(page: Page) -> None:
    expect(page.get_by_role("row", name="licences").first).to_be_visible()
    page.get_by_role("switch", name="licences").focus()
    page.keyboard.press("Space")
    expect(page.get_by_text("↑ worse").first).to_be_visible()


def _playground(page: Page) -> None:
    inside = page.frame_locator("iframe").first
    type_prompt(inside, "The licensor grants you a")
    inside.locator("#prompt textarea").press("Control+Enter")
    expect(inside.locator(".state[data-done]:visible")).to_have_count(2 if page.viewport_size["width"] > 800 else 1)
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")


def _certificate(page: Page) -> None:
    page.get_by_test_id("stMain").get_by_text("Additions", exact=True).first.click()
    expect(page.locator("[data-testid=stMain] img[src^='data:image/svg+xml']")).to_be_visible()


def _checked(page: Page) -> None:
    expect(page.get_by_role("button", name="Check again")).to_be_visible()


PICTURES = (
    Picture("overview", "", _overview, has_variants=True),
    Picture("corpora", "corpora"),
    Picture("seeds", "seeds"),
    Picture("clusters", "clusters", _map, has_variants=True),
    Picture("train", "train?domain=mathematics"),
    Picture("train-check", "train?kind=train-expert&domain=mathematics", _training),
    Picture("jobs", "jobs", _curves, has_variants=True),
    Picture("experts", "experts", has_variants=True),
    Picture("expert", "experts?experts.chosen=smol/python"),
    Picture("mixtures", "mixtures?mixture=smol", _mixture, has_variants=True),
    Picture("specialization", "specialization", _passage),
    Picture("posteriors", "posteriors", _posterior),
    Picture("playground", "playground?left=smol&right=seed:smol", _playground, has_variants=True),
    Picture("reports", "reports", _certificate),
    Picture("replications", "replications"),
    Picture("selfcheck", "selfcheck", _checked),
    Picture("search", "search?q=licences"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="a folder for the registry, which is kept")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="pictures, or tour; everything where it is left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder) / "home"
        make_home(home.resolve())
        with workbench(home.resolve()) as running, chromium() as browser:
            _run_jobs(running)
            running.load_weights("smol", "seed:smol")
            missing = _take_all(browser, running, options.only or picture_names())
            if not options.only or "tour" in options.only:
                make_tour(browser, running, FOLDER / "tour.webp")
    if missing:
        raise SystemExit(f"Not made, so as they were before: {', '.join(missing)}.")


def _take_all(browser: Browser, running: Workbench, wanted: Collection[str]) -> list[str]:
    """Takes the wanted pictures; gives the names of those whose page did not stand still in time."""
    missing = []
    for picture in PICTURES:
        for ending, (theme, size) in (VARIANTS if picture.has_variants else {"": VARIANTS[""]}).items():
            name = f"{picture.name}{ending}"
            if name not in wanted:
                continue
            with window(browser, *size, theme) as page:
                try:
                    take(page, running, picture, FOLDER / f"{name}.png")
                except (AssertionError, TimeoutError) as fault:
                    shown = Path(tempfile.gettempdir()) / f"{name}-fault.png"
                    page.screenshot(path=shown)
                    print(f"{name}: {str(fault)[:500]}\nWhat stood there: {shown}", flush=True)
                    missing.append(name)
    return missing


def _run_jobs(running: Workbench) -> None:
    """A self-check, where none has ended yet, and a training that goes on while the pictures are taken."""
    if not running.jobs("done", "selfcheck"):
        running.submit({"kind": "selfcheck"})
    unfinished = [job for state in ("running", "interrupted", "queued") for job in running.jobs(state, "train-joint")]
    running.wait_for_curve(unfinished[0] if unfinished else _submit_long(running))


def _submit_long(running: Workbench) -> str:
    """The training under its own name, or with a number in a registry that was kept until it had ended."""
    try:
        return running.submit({**LONG, "name": "longer"})
    except HTTPStatusError:
        return running.submit({**LONG, "name": f"longer-{len(running.jobs('done', 'train-joint'))}"})


def take(page: Page, running: Workbench, picture: Picture, path: Path) -> None:
    """Opens a page, waits until it stands still, and writes its picture."""
    page.goto(f"{running.studio}/{picture.address}")
    settle(page)
    picture.act(page)
    settle(page)
    page.mouse.move(0, 0)
    shot = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    small = shot.quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
