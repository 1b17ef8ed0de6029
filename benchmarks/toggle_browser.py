"""From the click on a toggle of the page Mixtures to the new numbers in a real browser, by the browser's own clock.

A studio and an API server of their own (`workbench up`) serve a copy of a home with a scored mixture; the home given
is not changed. A script in the page notes `performance.now()` at each click and when the table's text has changed.
Besides, in turns and in the same run: the peer, a page of only Streamlit whose toggle changes one number, shows what
a click costs without any work of ours; and what the API server says that mixing took. The load of the machine stands
next to the numbers, which are of this machine and this moment. Without a home that of the
pictures is made, and with --quick a little one.
Run: python benchmarks/toggle_browser.py [--home HOME --mixture demo]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from harness.benchmark import Figure, Options, not_run, p95, report
from load import MIXTURE, PATIENCE, SIZES, free_port, make_home, running, wait_for

PEER = """
import streamlit as st

@st.fragment
def part():
    is_on = st.toggle("Peer", True)
    st.markdown(f"number: {1 if is_on else 2}")

part()
"""
# Resolves with the milliseconds from the click until other numbers stand there; an empty place is none.
MEASURE = """([toggle, where]) => new Promise((resolve) => {
  const read = () => (where === "table"
    ? [...document.querySelectorAll(".st-key-effect *")].map((one) => one.shadowRoot?.textContent ?? "").join("")
    : document.querySelector("[data-testid=stMarkdownContainer] p")
      && [...document.querySelectorAll("[data-testid=stMarkdownContainer] p")].map((one) => one.textContent).join(""));
  const before = read(), began = performance.now();
  document.querySelectorAll("[data-testid=stCheckbox] input")[toggle].click();
  const isNew = () => { const now = read(); return now && now !== before; };
  const look = () => (isNew() ? resolve(performance.now() - began) : setTimeout(look, 4));
  look();
})"""


def main() -> None:
    parser = Options(__doc__, {"clicks": (50, 4), "mixture": ("demo", "duo")})
    parser.add_argument("--home", type=Path, help="a home with a scored mixture; else that of the pictures is made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        browser = stack.enter_context(chromium())
        studio = stack.enter_context(workbench(home_of(options, Path(folder))))
        peer = stack.enter_context(streamlit(Path(folder)))
        ours, theirs = browser.new_page(), browser.new_page()
        ours.goto(f"{studio}/mixtures?mixture={options.mixture}")
        ours.get_by_role("row").nth(1).wait_for(timeout=PATIENCE * 1000)
        theirs.goto(peer)
        theirs.get_by_text("number: 1").wait_for(timeout=PATIENCE * 1000)
        numbers = measure(ours, theirs, options.clicks)
    figures = [
        Figure("from the click on a toggle to the new numbers", numbers["ours"], "ms", at_most=200),
        Figure("the same on a page of only Streamlit", numbers["peer"], "ms"),
        Figure("mixing on the server", numbers["mixing"], "ms"),
    ]
    report(
        options,
        figures,
        p95_ms={name: p95(values) for name, values in numbers.items()},
        ratio_to_peer=figures[0].value / figures[1].value,
        load_1_minute=os.getloadavg()[0],
    )


def home_of(options: Any, folder: Path) -> Path:
    """A copy of the given home, else a new one: little, or the registry of the pictures, which takes some minutes."""
    if options.home:
        return Path(shutil.copytree(options.home, folder / "home", ignore=shutil.ignore_patterns("*.log")))
    if options.quick:
        return make_home(folder, MIXTURE, {name: quick for name, (_, quick, *_) in SIZES.items()})
    script = Path(__file__).parents[1] / "docs" / "images" / "demo_home.py"
    subprocess.run([sys.executable, str(script), str(folder / "home")], check=True)
    return folder / "home"


@contextmanager
def chromium() -> Iterator[Browser]:
    """This machine's browser, without a window."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        if path is None and not Path(playwright.chromium.executable_path).exists():
            not_run("needs Chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def measure(ours: Page, theirs: Page, clicks: int) -> dict[str, list[float]]:
    """Milliseconds of each click on ours and on the peer's, in turns, and those that mixing took on the server."""
    numbers: dict[str, list[float]] = {"ours": [], "peer": [], "mixing": []}
    for click in range(clicks + 4):  # the first four of each are not counted
        took = {
            "ours": ours.evaluate(MEASURE, [click // 2 % 2, "table"]),
            "peer": theirs.evaluate(MEASURE, [0, "text"]),
        }
        ours.wait_for_timeout(300)
        words = ours.get_by_text("Exact, from stored scores").inner_text()
        if click % 2 == 0:  # switched off; switched on again is what is saved, which is known
            took["mixing"] = float(words.partition(", in ")[2].partition(" ms")[0])
        if click >= 4:
            for name, value in took.items():
                numbers[name].append(value)
    return numbers


@contextmanager
def workbench(home: Path, api_port: int = 0) -> Iterator[str]:
    """`workbench up` in a home; the address of its studio."""
    ports = api_port or free_port(), free_port()
    environment = os.environ | {
        "WORKBENCH_HOME": str(home),
        "WORKBENCH_API_PORT": str(ports[0]),
        "WORKBENCH_STUDIO_PORT": str(ports[1]),
    }
    code = "import sys; from ui.cli.app import main; sys.exit(main())"
    with running([sys.executable, "-c", code, "up", "--no-browser", "--no-auth"], environment):
        wait_for(f"http://127.0.0.1:{ports[0]}/healthz")
        wait_for(f"http://127.0.0.1:{ports[1]}/_stcore/health")
        yield f"http://127.0.0.1:{ports[1]}"


@contextmanager
def streamlit(folder: Path, code: str = PEER) -> Iterator[str]:
    """The peer's page; its address."""
    script, port = folder / "peer.py", free_port()
    script.write_text(code, encoding="utf-8")
    options = ["--server.headless", "true", "--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none"]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port), *options]
    with running(command, dict(os.environ)):
        wait_for(f"http://127.0.0.1:{port}/_stcore/health")
        yield f"http://127.0.0.1:{port}"


if __name__ == "__main__":
    main()
