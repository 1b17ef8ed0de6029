"""From the click on an entry of the navigation until the page stands still, in a real browser, by its own clock.

Goal: 95 % within 500 ms on an idle machine, and within 1 s while a training runs and four answers are streamed. “idle”
means here that nothing else of this workbench runs; the load of the machine says what others do.

A studio and an API server of their own (`workbench up`) serve a copy of a home, which is not changed. A script in the
page notes `performance.now()` at the click and when the next page's title stands there, the run has ended, and no
element is a placeholder or left from the page before. Beside it, in turns and in the same run: the peer, an app of
only Streamlit with as many pages, each a title, a table of 20 rows and a Plotly chart. Both are measured quiet first,
then with the load. How busy the machine is stands next to the numbers. With --quick a little home is made.
Run: python benchmarks/pages.py [--home HOME --mixture demo --seed-model demo]
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import httpx
from playwright.sync_api import Page

from harness.benchmark import Figure, Options, p95, report
from load import PATIENCE, free_port
from toggle_browser import chromium, home_of, streamlit, workbench
from ui.pages.catalog import all_pages

NUM_STREAMS = 4
GOALS_MS = {"idle": 500, "training and four streams": 1000}
Visits = dict[str, dict[str, list[float]]]  # milliseconds of each visit, by ours and the peer, and by page
PEER = """
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

def draw(name):
    st.title(name)
    st.dataframe(pd.DataFrame({"number": range(20), "square": [n * n for n in range(20)]}))
    st.plotly_chart(go.Figure(go.Scatter(x=list(range(100)), y=[n * n for n in range(100)])))

def page(name):
    def show():
        draw(name)
    return st.Page(show, title=name, url_path=name.lower())

st.set_page_config(layout="wide")
st.navigation([page(name) for name in NAMES], position="top").run()
"""
# Resolves with the milliseconds from the click on a link until the page of this title stands still; -1: it never did.
MEASURE = """([entry, patience]) => new Promise((resolve) => {
  const link = [...document.querySelectorAll("[data-testid=stTopNavLink]")].find((one) => one.innerText === entry);
  const settled = () => document.querySelector("h1")?.innerText.trim() === entry
    && document.querySelector("[data-testid=stApp]").dataset.testScriptState === "notRunning"
    && !document.querySelector("[data-testid=stSkeleton], [data-stale=true]");
  const began = performance.now();
  link.click();
  const look = () => {
    const took = performance.now() - began;
    if (settled()) resolve(took); else if (took > patience) resolve(-1); else setTimeout(look, 4);
  };
  setTimeout(look, 4);
})"""


def main() -> None:
    options = parser().parse_args()
    entries = list(dict.fromkeys(page.entry for page in all_pages()))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        browser = stack.enter_context(chromium())
        home = home_of(options, Path(folder))
        studio, api = stack.enter_context(workbench_with_api(home))
        peer = stack.enter_context(streamlit(Path(folder), f"NAMES = {entries}\n{PEER}"))
        pages = {"ours": opened(browser.new_page(), studio), "peer": opened(browser.new_page(), peer)}
        result = {"idle": measure(pages, entries, options.rounds)}
        with load(api, options.mixture, options.seed_model):
            result["training and four streams"] = measure(pages, entries, options.rounds)
    figures, details = [], {}
    for state, (visits, busy) in result.items():
        details[state] = {"load_1_minute": busy}
        for name, by_entry in visits.items():
            bound = GOALS_MS[state] if name == "ours" else None
            every = [value for values in by_entry.values() for value in values]
            title = f"from the click on an entry to the still page, {name}, {state} (95 %)"
            figures.append(Figure(title, every, "ms", at_most=bound, statistic=p95))
            details[state][name] = {"median_ms": median(every)}
            details[state][name] |= {entry: median(values) for entry, values in by_entry.items()}
    report(options, figures, states=details)


def parser() -> Options:
    options = Options(
        __doc__,
        {
            "mixture": ("demo", "duo", "generates the answers"),
            "seed_model": ("demo", "tiny", "the training starts from it"),
            "rounds": (5, 1, "visits of every page, after a first that is not counted"),
        },
    )
    options.add_argument("--home", type=Path, help="a home with a scored mixture; else that of the pictures is made")
    return options


def opened(page: Page, address: str) -> Page:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(address)
    page.get_by_role("heading", level=1).wait_for(timeout=PATIENCE * 1000)
    return page


def measure(pages: dict[str, Page], entries: list[str], rounds: int) -> tuple[Visits, list[float]]:
    """Milliseconds of every visit, on ours and on the peer's in turns, and how busy the machine was."""
    before = os.getloadavg()[0]
    visits: Visits = {name: {entry: [] for entry in entries} for name in pages}
    for number in range(rounds + 1):
        for entry in entries[1:] + entries[:1]:
            for name, page in pages.items():
                took = page.evaluate(MEASURE, [entry, PATIENCE * 1000])
                if number:
                    visits[name][entry].append(PATIENCE * 1000 if took < 0 else took)
    return visits, [before, os.getloadavg()[0]]


@contextmanager
def workbench_with_api(home: Path) -> Iterator[tuple[str, str]]:
    """`workbench up` in a home; the addresses of its studio and of its API."""
    port = free_port()
    with workbench(home, api_port=port) as studio:
        yield studio, f"http://127.0.0.1:{port}"


@contextmanager
def load(api: str, mixture: str, seed_model: str) -> Iterator[None]:
    """A training that runs, and answers that are streamed one after another in four threads."""
    domains = [one["name"] for one in httpx.get(f"{api}/v1/workbench/domains", trust_env=False).json()["data"]]
    training = {"num_steps": 100_000, "block_size": 128, "learning_rate": 0.001, "clip": 1.0}
    names = {"name": "load", "seed_model": seed_model, "domains": domains[:5]}
    spec = {"kind": "train-joint", **names, "training": training}
    job = httpx.post(f"{api}/v1/workbench/jobs", json={"spec": spec}, trust_env=False).raise_for_status().json()["id"]
    curve = f"{api}/v1/workbench/jobs/{job}/metrics"
    with httpx.stream("GET", curve, params={"follow": True}, trust_env=False, timeout=PATIENCE) as answer:
        next(line for line in answer.iter_lines() if '"step"' in line)
    is_over, streams = threading.Event(), []
    body = {"model": mixture, "prompt": "def main(", "max_tokens": 256, "stream": True}
    first_lines = [threading.Event() for _ in range(NUM_STREAMS)]

    def stream(first_line: threading.Event) -> None:
        while not is_over.is_set():
            address = f"{api}/v1/completions"
            with httpx.stream("POST", address, json=body, trust_env=False, timeout=PATIENCE) as answer:
                for _ in answer.iter_lines():
                    first_line.set()
                    if is_over.is_set():
                        return

    for first_line in first_lines:
        streams.append(threading.Thread(target=stream, args=[first_line]))
        streams[-1].start()
    try:
        for first_line in first_lines:
            if not first_line.wait(PATIENCE):
                raise SystemExit("An answer did not begin.")
        yield
    finally:
        is_over.set()
        for thread in streams:
            thread.join()
        httpx.post(f"{api}/v1/workbench/jobs/{job}/cancel", trust_env=False)


if __name__ == "__main__":
    main()
