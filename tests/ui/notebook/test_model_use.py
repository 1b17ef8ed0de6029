"""What the tab “Use it” shows runs as it stands: against a served tiny expert, and in a process of its own."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_server import serve_api, unused_port
from tests.journeys.conftest import trained_home
from ui.api.app import create_app
from ui.cli.app import main
from ui.generation.model_host import ModelHost
from ui.present.model_use import completion_line, generate_line, notebook_lines, openai_lines
from workbench.registry import experts
from workbench.registry.aliases import set_alias
from workbench.registry.database import close_engines, transaction
from workbench.settings import Settings, get_settings

__all__ = ["trained_home"]  # a fixture of this module
ALIAS = "law@production"


@pytest.fixture
def served(home: Path, trained_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The API of a trained home on a port of its own, with the token that the environment holds."""
    shutil.copytree(trained_home, home, dirs_exist_ok=True)
    monkeypatch.setenv("WORKBENCH_API_PORT", str(unused_port()))
    monkeypatch.setenv("WORKBENCH_TOKEN", "s3cret")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    get_settings.cache_clear()
    settings = get_settings()
    with serve_api(create_app(settings, ModelHost(settings), playground=False), settings.api_port):
        yield settings
    close_engines()


def named_expert() -> tuple[str, str]:
    """An expert with the SHA-256 of its weights, which the alias means."""
    with transaction() as session:
        card = experts.list_experts(session)[0]
        set_alias(session, ALIAS, card.name)
    return card.name, card.sha256


def test_the_lines_of_the_tab_use_it_run_as_they_stand(served: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    name, sha256 = named_expert()
    for called in (name, ALIAS):
        lines = openai_lines(called, served)
        assert len(lines.splitlines()) == 6  # five, and the import that the token needs
        exec(lines, {})
        *text, printed = capsys.readouterr().out.splitlines()
        assert printed == sha256
        assert any(text)
        answer = subprocess.run(completion_line(called, served), shell=True, capture_output=True, check=True)
        body = json.loads(answer.stdout)
        assert [one["sha256"] for one in body["manifest"]["experts"]] == [sha256]
        assert body["usage"]["completion_tokens"] > 0


def test_the_notebooks_lines_and_the_command_run_as_they_stand(
    served: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _ = named_expert()
    lines = notebook_lines(name, "expert")
    assert len(lines.splitlines()) == 5
    exec(lines, {})
    assert f"name='{name}'" in capsys.readouterr().out
    assert main(shlex.split(generate_line(name))[1:]) in (0, None)
    assert "Mean weights" in "".join(capsys.readouterr())


def test_the_token_of_the_home_is_named_by_its_command() -> None:
    settings = Settings(no_auth=False)
    assert "$(workbench token)" in completion_line("law", settings)
    lines = openai_lines("law", settings).splitlines()
    assert (lines[0], '["workbench", "token"]' in lines[2]) == ("import subprocess", True)


def test_without_a_token_there_are_five_lines_and_any_name_is_quoted() -> None:
    lines = openai_lines('a "b" \\n', Settings()).splitlines()
    assert len(lines) == 5
    assert 'model="a \\"b\\" \\\\n"' in lines[2]
