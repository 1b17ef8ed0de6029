"""Draws the PNGs of `studio.html` and checks its colours: `python docs/design/draw.py [--check]`.

Needs Playwright with Chromium, Pillow and NumPy. It exits with 1 where a text has a contrast below 4.5 : 1, where
two colours of experts are nearer than `MIN_DISTANCE`, or where a page is wider than its window.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from workbench.formatting.palette import COLOURS as PALETTE

FOLDER = Path(__file__).parent
PAGE = FOLDER / "studio.html"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
BACKGROUNDS = ("#ffffff", "#f8f8f7", "#171614", "#21201d")  # page and sidebar, light and dark
MIN_TEXT, MIN_MARK, MIN_DISTANCE = 4.5, 3.0, 11.0
NARROW = ("landing", "playground", "registry", "jobs")
DARK = ("landing", "playground")

Array = NDArray[np.float64]
# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]

# Every text node that is shown: its colour, and the colours behind it from the nearest outwards.
_TEXTS = """() => {
  const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, at = node.parentElement, box = at.getBoundingClientRect();
    if (!node.data.trim() || !box.width || !box.height || ["SCRIPT", "STYLE"].includes(at.tagName)) continue;
    const behind = at.dataset.on ? [at.dataset.on] : [], svg = at.closest("svg");
    for (let e = at; e; e = e.parentElement) behind.push(getComputedStyle(e).backgroundColor);
    out.push([node.data.trim().slice(0, 40), getComputedStyle(at)[svg ? "fill" : "color"], behind]);
  }
  return out;
}"""


def rgb(colour: str) -> Array:
    """The channels (3,) of a hex colour, 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def linear(channels: Array) -> Array:
    """sRGB without its gamma."""
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(array: Array, other: Array) -> float:
    """The contrast of two colours by WCAG 2.2, 1 to 21."""
    dark, light = sorted(float(linear(colour) @ np.array([0.2126, 0.7152, 0.0722])) for colour in (array, other))
    return (light + 0.05) / (dark + 0.05)


def lab(colour: Array) -> Array:
    """CIE Lab (3,) of linear RGB, white D65."""
    xyz = np.array(_XYZ) @ np.clip(colour, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(array: Array, other: Array) -> float:
    """CIEDE2000 between two Lab colours: about 2 is seen side by side, 10 at a glance."""
    mean_chroma = (np.hypot(*array[1:]) + np.hypot(*other[1:])) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean_chroma**7 / (mean_chroma**7 + 25.0**7))
    (l1, a1, b1), (l2, a2, b2) = array * [1, stretch, 1], other * [1, stretch, 1]
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    turn = (h2 - h1 + 180) % 360 - 180
    hue, chroma, light = (h1 + turn / 2) % 360, (c1 + c2) / 2, (l1 + l2) / 2
    waves = ((1, -30, -0.17), (2, 0, 0.24), (3, 6, 0.32), (4, -63, -0.2))
    t = 1 + sum(size * np.cos(np.radians(times * hue + shift)) for times, shift, size in waves)
    d_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    d_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    d_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    rotation = np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    rotation *= -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    return float(np.sqrt(d_light**2 + d_chroma**2 + d_hue**2 + rotation * d_chroma * d_hue))


def palette_faults() -> Iterator[str]:
    """Prints the least distances of the palette and yields what is too near or too pale."""
    for sight, matrix in SIGHTS.items():
        seen = [lab(np.array(matrix) @ linear(rgb(colour))) for colour in PALETTE]
        for count in (4, 5, 8):
            pairs = itertools.combinations(range(count), 2)
            least, pair = min((distance(seen[a], seen[b]), (PALETTE[a], PALETTE[b])) for a, b in pairs)
            print(f"{sight:13} first {count}: least distance {least:5.1f} ({pair[0]}, {pair[1]})")
            if least < MIN_DISTANCE:
                yield f"{sight}: {pair} differ by {least:.1f} only"
    for colour in PALETTE:
        on = [contrast(rgb(colour), rgb(back)) for back in BACKGROUNDS]
        letter = max(contrast(rgb(colour), rgb(ink)) for ink in ("#000000", "#ffffff"))
        print(f"{colour} on {', '.join(BACKGROUNDS)}: {', '.join(f'{one:.2f}' for one in on)}; mark {letter:.2f}")
        if min(on) < MIN_MARK or letter < MIN_TEXT:
            yield f"{colour}: contrast {min(on):.2f}, letter {letter:.2f}"


def _channels(text: str) -> tuple[Array, float]:
    """A CSS colour, `#rrggbb`, `rgb(...)` or `color(srgb ...)`, as channels and opacity."""
    if text.startswith("#"):
        return rgb(text), 1.0
    numbers = [float(one) for one in re.findall(r"-?[\d.]+(?:e-?\d+)?", text)]
    scale = 1.0 if "srgb" in text else 255.0
    return np.array(numbers[:3]) / scale, numbers[3] if len(numbers) > 3 else 1.0


def text_faults(page: Page) -> tuple[float, int, list[str]]:
    """The least contrast of the texts shown, how many there are, and those below 4.5."""
    least, faults, texts = 21.0, [], page.evaluate(_TEXTS)
    for text, ink, behind in texts:
        back = np.zeros(3)
        for layer, opacity in [_channels(one) for one in reversed(behind)]:
            back = layer * opacity + back * (1 - opacity)
        value = contrast(_channels(ink)[0], back)
        least = min(least, value)
        if value < MIN_TEXT:
            faults.append(f"{value:.2f} “{text}”")
    return least, len(texts), faults


def fonts() -> str:
    """The studio's own fonts as a style sheet, from the installed Streamlit; the page falls back on the system's."""
    spec = importlib.util.find_spec("streamlit")
    media = Path(spec.origin).parent / "static" / "static" / "media" if spec and spec.origin else FOLDER
    rules = []
    for family, pattern in (("Source Sans", "SourceSansVF-Upright*"), ("Source Code", "SourceCodeVF-Upright*")):
        for file in media.glob(pattern):
            data = base64.b64encode(file.read_bytes()).decode()
            rules.append(
                f"@font-face {{ font-family: '{family}'; font-weight: 200 900; "
                f"src: url(data:font/woff2;base64,{data}) }}"
            )
    return "\n".join(rules)


def to_palette(image: Image.Image) -> Image.Image:
    """The image in its 256 most frequent colours: pale tints keep their hue, which an averaging method moves."""
    pixels = np.array(image)
    colours, places, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(-counts)[:256]].astype(np.int32)
    nearest = [int(((kept - colour) ** 2).sum(1).argmin()) for colour in colours.astype(np.int32)]
    indexed = Image.fromarray(np.array(nearest, np.uint8)[places].reshape(pixels.shape[:2]), "P")
    indexed.putpalette(kept.astype(np.uint8).tobytes())
    return indexed


def draw(browser: Browser, name: str, width: int, dark: bool, save: bool) -> Iterator[str]:
    """Draws one page and yields its faults."""
    height = 800 if name == "playground" and width > 700 else 844 if width < 700 else 900
    width = 1280 if name == "playground" and width > 700 else width
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(f"{PAGE.as_uri()}{'?dark' if dark else ''}#{name}")
    page.add_style_tag(content=fonts())
    page.evaluate("document.fonts.ready")
    least, count, faults = text_faults(page)
    where = f"{name} {width}{' dark' if dark else ''}"
    print(f"{where:24} {count:4} texts, least contrast {least:.2f}")
    yield from (f"{where}: {fault}" for fault in faults)
    if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
        yield f"{where}: {wide} pixels wide"
    if save:
        target = FOLDER / f"{name}{'-390' if width < 700 else ''}{'-dark' if dark else ''}.png"
        image = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        to_palette(image).save(target, optimize=True)
        if target.stat().st_size > 150_000:
            yield f"{target.name}: {target.stat().st_size:,} bytes"
    page.close()


def main() -> int:
    """Checks everything, and draws unless `--check` is given."""
    save, faults = "--check" not in sys.argv, list(palette_faults())
    names = re.findall(r'<section id="([\w-]+)"', PAGE.read_text(encoding="utf-8"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in names:
            faults += draw(browser, name, 1440, dark=False, save=save)
            faults += draw(browser, name, 1440, dark=True, save=save and name in DARK)
            faults += draw(browser, name, 390, dark=False, save=save) if name in NARROW else ()
    print("\n".join(["", *faults]) if faults else "\nNo fault.")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
