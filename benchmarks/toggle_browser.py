"""From the click on a toggle of the page Mixtures to the new numbers in a real browser, by the browser's own clock.

A studio and an API server of their own (`workbench up`) serve a copy of a home with a scored mixture; the home given
is not changed. A script in the page notes `performance.now()` at each click and when the table's text has changed.
Beside it, in turns and in the same run: the peer, a page of Streamlit alone whose toggle changes one number, shows what
a click costs without any work of ours; and what the API server says that mixing took. The load of the machine stands
beside the numbers, which are of this machine and this moment. The last line is JSON.
Run: python benchmarks/toggle_browser.py --home HOME --mixture demo
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

PATIENCE = 120.0  # seconds for a server to start
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True, help="A home with a scored mixture, such as the demo's.")
    parser.add_argument("--mixture", default="demo")
    parser.add_argument("--clicks", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(shutil.copytree(options.home, Path(folder) / "home"))
        studio = stack.enter_context(workbench(home))
        peer = stack.enter_context(streamlit(Path(folder)))
        playwright = stack.enter_context(sync_playwright())
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        ours, theirs = browser.new_page(), browser.new_page()
        ours.goto(f"{studio}/mixtures?mixture={options.mixture}")
        ours.get_by_role("row").nth(1).wait_for(timeout=PATIENCE * 1000)
        theirs.goto(peer)
        theirs.get_by_text("number: 1").wait_for(timeout=PATIENCE * 1000)
        numbers = measure(ours, theirs, options.clicks)
        browser.close()
    report(numbers)


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


def report(numbers: dict[str, list[float]]) -> None:
    """Prints medians and 95th percentiles, and as JSON."""
    result: dict[str, object] = {
        name: {
            "median_ms": round(statistics.median(values), 1),
            "p95_ms": round(statistics.quantiles(values, n=20)[-1], 1),
        }
        for name, values in numbers.items()
    }
    result |= {
        "ratio_to_peer": round(statistics.median(numbers["ours"]) / statistics.median(numbers["peer"]), 2),
        "clicks": len(numbers["ours"]),
        "cores": os.cpu_count(),
        "load_1_minute": os.getloadavg()[0],
    }
    for name, value in result.items():
        print(f"{name}: {value}")
    print(json.dumps(result))


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


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    """A process in a group of its own, which is ended at the end."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if httpx.get(address, trust_env=False).status_code < 500:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{address} did not answer in {PATIENCE:.0f} s")


if __name__ == "__main__":
    main()
