"""Secrets stay where they were set: canaries in every setting that holds one are in nothing that anybody can read."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from engine.device import python_environment
from engine.errors import Problem
from jobs.queue import worker
from jobs.queue.submit import submit, wait
from tests.journeys.conftest import write_domain
from tests.journeys.test_leaving import COMMANDS, RUN_ALL
from tests.journeys.test_train_an_expert import worker as a_worker
from ui.api.app import create_app
from ui.cli.app import main
from ui.serving import doctor
from workbench.registry.database import close_engines, reading
from workbench.settings import Settings, get_settings
from workbench.store.private_folder import private_folder, write_private

CANARY = "canary"
TOKEN, PASSWORD, HUB, TRACKER = (f"{CANARY}-{name}-0123456789abcdef0123456789" for name in ("t", "p", "h", "w"))
DATABASE, BROKER = f"postgresql://me:{PASSWORD}@127.0.0.1:1/none", f"redis://:{PASSWORD}@127.0.0.1:1/0"
MORE = (
    "backup {folder}/saved",
    "expert pack first/kitchen {folder}/first.pack --here",
    "expert export first/kitchen {folder}/exported --here",
)
HOOK = """
import os, sys
def note(event, arguments):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        with open(os.environ["COMMANDS_LOG"], "a") as log:
            log.write(f"{arguments[:2]!r}\\n")
sys.addaudithook(note)
"""


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"WORKBENCH_TOKEN": TOKEN, "HF_TOKEN": HUB, "WANDB_API_KEY": TRACKER}.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    yield
    close_engines()


def holders(folder: Path) -> list[str]:
    """The files below a folder that hold a canary, also in their names."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if CANARY in path.name or CANARY.encode() in path.read_bytes()]


def test_jobs_leave_no_secret_in_files_rows_exports_and_output(home: Path, tmp_path: Path) -> None:
    write_private(private_folder(home / "login") / "token", TOKEN.encode())  # as of a home without WORKBENCH_TOKEN
    corpus = write_domain(tmp_path, "kitchen")
    commands = [one.format(corpus=corpus, folder=tmp_path) for one in (*COMMANDS, *MORE)]
    environment = os.environ | python_environment()
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *commands], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stdout + done.stderr
    assert (tmp_path / "first.pack").is_file()
    assert (tmp_path / "exported").is_dir()
    assert (tmp_path / "saved" / "registry.db").is_file()
    assert holders(tmp_path) == [str(home / "login" / "token")]  # the home and its backup are below it
    with closing(sqlite3.connect(home / "registry.db")) as connection:
        assert CANARY not in "\n".join(connection.iterdump())


def test_no_process_of_a_worker_has_a_secret_in_its_command(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    paths = [str(tmp_path / "hook"), python_environment().get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("COMMANDS_LOG", str(tmp_path / "commands"))
    corpus = write_domain(tmp_path, "kitchen")
    with a_worker():
        job = submit({"kind": "import-corpus", "name": "kitchen", "path": str(corpus)})
        *_, card = wait(job)
    assert card.state == "done"
    commands = (tmp_path / "commands").read_text(encoding="utf-8")
    assert job in commands
    assert CANARY not in commands
    assert holders(home) == []


def test_no_answer_of_the_api_repeats_the_token(home: Path) -> None:
    app = create_app(Settings(home=home, token=TOKEN), playground=False)
    client = TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    known = {"authorization": f"Bearer {TOKEN}"}
    answers = [client.get(path, headers=known) for path in client.get("/openapi.json", headers=known).json()["paths"]]
    answers += [client.post(path, json={"model": "none"}, headers=known) for path in ("/v1/completions", "/v1/none")]
    answers.append(client.get("/v1/models", headers={"authorization": f"Bearer {TOKEN}x"}))
    answers.append(client.post("/login", data={"token": TOKEN}, follow_redirects=False, headers=OWN))
    assert [one.status_code for one in answers[-2:]] == [401, 303]
    assert len(answers) > 20
    for answer in answers:
        assert CANARY not in answer.text + str(answer.headers) + str(answer.url), answer.url


OWN = {"origin": "http://127.0.0.1:8000"}


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A registry and a broker that do not answer, with passwords in their URLs."""
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WORKBENCH_DATABASE_URL", DATABASE)
    monkeypatch.setenv("WORKBENCH_BROKER_URL", BROKER)
    get_settings.cache_clear()
    return get_settings()


def test_an_absent_registry_is_reported_without_its_password(away: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "list"]) == 2
    assert main(["job", "list", "--json"]) == 2
    main(["doctor"])
    main(["doctor", "--json"])
    worker.prepare(away)
    with pytest.raises(Problem) as caught, reading(away):
        pass
    app = create_app(away, playground=False)
    client = TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    answer = client.get("/v1/models", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 503
    output = capfd.readouterr()
    for text in (output.out, output.err, str(caught.value), answer.text, repr(away.token)):
        assert CANARY not in text
    assert "does not respond" in output.err
    assert holders(away.root) == []


def test_an_absent_broker_is_reported_without_its_password(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORKBENCH_BROKER_URL", BROKER)
    get_settings.cache_clear()
    with suppress(Problem):
        submit({"kind": "selfcheck"})
    assert any("redis" in str(finding) for finding in doctor.examine(get_settings()))
    output = capfd.readouterr()
    assert CANARY not in output.out + output.err + caplog.text + str(doctor.examine(get_settings()))
    assert holders(home) == []


@pytest.mark.parametrize("value", [f"{CANARY} with a blank at its end ", f"{CANARY}-é"])
def test_a_token_that_cannot_be_sent_is_refused_without_showing_it(
    value: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORKBENCH_TOKEN", value)
    get_settings.cache_clear()
    assert main(["job", "list"]) == 2
    output = capfd.readouterr()
    assert "WORKBENCH_TOKEN" in output.err
    assert CANARY not in output.out + output.err
