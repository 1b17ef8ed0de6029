"""A running workbench and a browser that waits until a page stands still: for the pictures and for the tour."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from demo_home import ALL, environment
from playwright.sync_api import Browser, FrameLocator, Page, TimeoutError, expect, sync_playwright

PATIENCE = 180.0  # seconds: a loaded machine answers late
ATTEMPTS = 4
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
# The sign of a run at the top right, and the toolbar of a chart that the mouse is on: of the moment, not of the page.
_HIDDEN = "[data-testid=stStatusWidget], [data-testid=stToolbarActions] { visibility: hidden !important }"
_CHARTS = """() => [...document.querySelectorAll("[data-testid=stPlotlyChart]")].every(
  (one) => one.querySelector(".main-svg") && !one.querySelector("[data-testid=stSkeleton]"))"""
LONG = {
    "kind": "train-joint",
    "seed_model": "little",
    "domains": ALL.split(","),
    "training": {"num_steps": 6000, "block_size": 128, "learning_rate": 0.004, "clip": 1.0, "evaluate_every": 10},
}


@dataclass(frozen=True)
class Workbench:
    """The addresses of a running workbench."""

    studio: str
    api: str

    def submit(self, spec: dict[str, object]) -> str:
        """Queues a job; gives its id."""
        answer = httpx.post(f"{self.api}/v1/workbench/jobs", json={"spec": spec}, trust_env=False, timeout=PATIENCE)
        job_id: str = answer.raise_for_status().json()["id"]
        return job_id

    def load_weights(self, *models: str) -> None:
        """Generates a token with each model, so that the next answer need not wait for its weights."""
        for model in models:
            body = {"model": model, "prompt": "a", "max_tokens": 1}
            answer = httpx.post(f"{self.api}/v1/completions", json=body, trust_env=False, timeout=PATIENCE)
            answer.raise_for_status()

    def wait_for_curve(self, job_id: str) -> None:
        """Waits for the first point of a job's curves."""
        address = f"{self.api}/v1/workbench/jobs/{job_id}/metrics"
        with httpx.stream("GET", address, params={"follow": True}, trust_env=False, timeout=PATIENCE) as answer:
            next(line for line in answer.iter_lines() if '"step"' in line)

    def jobs(self, state: str, kind: str) -> list[str]:
        """The ids of the jobs of a kind in a state."""
        query = {"status": state, "kind": kind}
        answer = httpx.get(f"{self.api}/v1/workbench/jobs", params=query, trust_env=False, timeout=PATIENCE)
        return [one["id"] for one in answer.raise_for_status().json()["data"]]


@contextmanager
def workbench(home: Path) -> Iterator[Workbench]:
    """`workbench up` in a home, on free ports."""
    studio, api = _free_port(), _free_port()
    own = environment(home) | {"WORKBENCH_STUDIO_PORT": str(studio), "WORKBENCH_API_PORT": str(api)}
    code = "import sys; from ui.cli.app import main; sys.exit(main())"
    with (home / "up.log").open("w") as log:
        command = [sys.executable, "-c", code, "up", "--no-browser", "--no-auth"]
        up = subprocess.Popen(command, env=own, stdout=log, stderr=log, start_new_session=True)
    try:
        for address in (f"http://127.0.0.1:{api}/healthz", f"http://127.0.0.1:{studio}/_stcore/health"):
            _wait_for(address, up)
        yield Workbench(f"http://127.0.0.1:{studio}", f"http://127.0.0.1:{api}")
    finally:
        _stop(up)


def _stop(up: subprocess.Popen[bytes]) -> None:
    """Stops the workbench as Ctrl-C does. What is left is killed: each server has a process group of its own."""
    servers = psutil.Process(up.pid).children(recursive=True) if up.poll() is None else []
    up.send_signal(signal.SIGINT)
    try:
        up.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        up.kill()
        up.wait()
    for process in servers:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(address: str, up: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while up.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(address, trust_env=False).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    raise SystemExit(f"{address} did not answer; up.log in the home says why.")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium of this machine, without a window."""
    expect.set_options(timeout=PATIENCE * 1000)
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    options = ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


def choose_parent(page: Page) -> None:
    """Names the parent in the form for one more expert; its forecast then needs no search of some minutes."""
    field, wanted = page.get_by_role("combobox", name="Parent to copy"), page.get_by_role("option", name="smol/manuals")
    for attempt in range(1, ATTEMPTS + 1):  # a list closes when the page moves
        field.fill("smol/manuals")
        try:
            wanted.click(timeout=PATIENCE * 1000 / ATTEMPTS)
            break
        except TimeoutError:
            if attempt == ATTEMPTS:
                raise
            field.press("Escape")
    settle(page)
    page.get_by_role("button", name="Measure it").click()
    expect(page.get_by_text("The first batch, as the model will see it")).to_be_visible()


@contextmanager
def window(browser: Browser, width: int, height: int, theme: str = "light") -> Iterator[Page]:
    """A window of its own session."""
    # WebGL's picture is lost after it is shown, unless it is kept.
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    yield page
    context.close()


def settle(page: Page) -> None:
    """Waits until a page of the studio has run, holds all of its elements, and its charts are drawn."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    expect(page.locator(SETTLED)).to_be_visible()
    page.wait_for_function(_CHARTS)
    page.add_style_tag(content=_HIDDEN)
    page.evaluate("document.fonts.ready")


def type_prompt(playground: Page | FrameLocator, prompt: str) -> None:
    """Writes a prompt until the playground says what would come next: it may not listen yet."""
    expect(playground.locator("#chips-a .chip")).not_to_have_count(0)
    for attempt in range(1, ATTEMPTS + 1):
        playground.locator("#prompt textarea").fill("")
        playground.locator("#prompt textarea").fill(prompt)
        try:
            expect(playground.locator("#next-a .next")).to_be_visible(timeout=PATIENCE * 1000 / ATTEMPTS)
            return
        except AssertionError:
            if attempt == ATTEMPTS:
                raise
