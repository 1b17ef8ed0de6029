"""The full workbench, started by its own command in a fresh home, with a tiny real mixture in it; and a Chromium."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.api_server import unused_port
from workbench.settings import Settings

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-swiftshader",  # WebGL without a graphics card
)
START_SECONDS = 120.0  # a loaded machine takes longer than a minute
QUICK = 90_000  # milliseconds; a loaded machine takes 30,000 and more
expect.set_options(timeout=QUICK)
COMMANDS = (
    "corpus add texts {corpus} --domain-field domain --here",
    "seed make tiny --domains code,law --layers 2 --width 32 --heads 2 --ffn-width 64 --vocab-size 512"
    " --max-positions 1024 --here",
    "train joint first --seed-model tiny --domains code,law --steps 30 --block-size 32 --here",
    "evaluate run first --block-size 32 --max-tokens 1000 --here",
)
# Several commands in one process: torch is loaded once.
RUN_ALL = """
import json, sys
from ui.cli.app import main
for command in json.loads(sys.argv[1]):
    if code := main(command.split()):
        sys.exit(f"{command}: exit code {code}")
"""


@dataclass(frozen=True)
class RunningWorkbench:
    """Where the running servers are to be found."""

    settings: Settings

    @property
    def studio(self) -> str:
        return f"http://127.0.0.1:{self.settings.studio_port}"

    @property
    def playground(self) -> str:
        return f"http://127.0.0.1:{self.settings.api_port}/play/"


@pytest.fixture(scope="package")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with three domains, a DEMix model of two of them, and its scores, made once."""
    folder = tmp_path_factory.mktemp("trained")
    corpus = write_corpus(folder / "texts.jsonl")
    settings = Settings(home=folder / "home")
    run_all(settings, "migrate", *(command.format(corpus=corpus) for command in COMMANDS))
    return settings.root


@pytest.fixture(scope="package")
def servers(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorkbench]:
    """`workbench up` in a trained home, for tests that only look; they share it."""
    with up_in(trained_home, tmp_path_factory.mktemp("shared")) as servers:
        yield servers


@pytest.fixture
def own_servers(trained_home: Path, tmp_path: Path) -> Iterator[RunningWorkbench]:
    """`workbench up` in a trained home of its own, for a test that changes it."""
    with up_in(trained_home, tmp_path) as servers:
        yield servers


@contextmanager
def up_in(trained_home: Path, folder: Path, **changes: Any) -> Iterator[RunningWorkbench]:
    """The whole workbench, running in a copy of a trained home."""
    shutil.copytree(trained_home, folder / "home")
    settings = Settings(home=folder / "home", api_port=unused_port(), studio_port=unused_port(), **changes)
    with (folder / "up.log").open("w") as log:
        up = subprocess.Popen(
            [sys.executable, "-c", "import sys; from ui.cli.app import main; sys.exit(main())", "up", "--no-browser"],
            env=environment(settings),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until_up(RunningWorkbench(settings), up)
            yield RunningWorkbench(settings)
        finally:
            stop(up)


def environment(settings: Settings) -> dict[str, str]:
    return os.environ | {
        "WORKBENCH_HOME": str(settings.root),
        "WORKBENCH_API_PORT": str(settings.api_port),
        "WORKBENCH_STUDIO_PORT": str(settings.studio_port),
        "WORKBENCH_PUBLIC_URL": settings.public_url,
        "WORKBENCH_TOKEN": settings.token.get_secret_value(),
        "WORKBENCH_NO_AUTH": str(int(settings.no_auth)),
        "OMP_WAIT_POLICY": "passive",
    }


def run_all(settings: Settings, *commands: str) -> None:
    """Runs command lines one after another."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(commands)],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def answers(url: str, token: str) -> bool:
    """Whether a server answers well."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def wait_until_up(servers: RunningWorkbench, up: subprocess.Popen[bytes], is_full: bool = True) -> None:
    deadline = time.monotonic() + START_SECONDS
    places = [f"{servers.studio}/_stcore/health"] + [servers.playground] * is_full
    token = servers.settings.token.get_secret_value()
    while not all(answers(place, token) for place in places):
        assert up.poll() is None, "the workbench ended by itself"
        assert time.monotonic() < deadline, "the servers did not come up in time"
        time.sleep(0.3)


def stop(up: subprocess.Popen[bytes]) -> None:
    """Stops the workbench as Ctrl-C does; processes that are left are killed with its process group."""
    up.send_signal(signal.SIGINT)
    try:
        up.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(up.pid, signal.SIGKILL)
        up.wait()


def write_corpus(path: Path) -> Path:
    """Three kinds of text that nobody would mistake for each other."""
    generator = random.Random(0)
    texts = {"code": code, "law": law, "kitchen": kitchen}
    records = [
        {"text": "".join(line(generator) for _ in range(8)), "domain": domain}
        for domain, line in texts.items()
        for _ in range(120)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def code(generator: random.Random) -> str:
    a, b, c = (generator.choice("abcxyz") for _ in range(3))
    return f"def f{generator.randint(0, 99)}({a}, {b}):\n    {c} = {a} {generator.choice('+-*')} {b}\n    return {c}\n"


def law(generator: random.Random) -> str:
    who, what = generator.choice(("tenant", "owner", "court")), generator.choice(("rent", "land", "sum"))
    return f"The {who} shall pay the {what} under section {generator.randint(1, 99)} of this act.\n"


def kitchen(generator: random.Random) -> str:
    what = generator.choice(("flour", "sugar", "milk", "rice"))
    return (
        f"Mix {generator.randint(2, 9)} cups of {what} and bake for {generator.randint(10, 60)} minutes until golden.\n"
    )


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A Chromium of this machine, without a window."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A window; nothing that it asks for may lie outside this machine."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(QUICK)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    yield page
    context.close()
    own = ("http://127.0.0.1:", "http://localhost:", "data:", "blob:", "file:")
    assert [url for url in requested if not url.startswith(own)] == []
