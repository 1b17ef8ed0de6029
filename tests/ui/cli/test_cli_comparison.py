"""workbench comparison: answers are made, found again, voted on, rated and deleted on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ui.conftest import FakeHost
from ui.cli.app import main
from ui.cli.commands import comparison as commands
from ui.generation.model_host import ModelHost
from workbench.settings import Settings, get_settings

HOSTILE = "grey \x1b[31m<b>rocks"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, mixed: Path) -> FakeHost:
    """The host that every command of this process has."""
    fake = FakeHost()
    monkeypatch.setattr(commands, "ModelHost", lambda settings: ModelHost(settings, fake))
    assert get_settings().root == mixed.resolve()
    return fake


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["comparison", *words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def made(capsys: pytest.CaptureFixture[str], prompt: str = "the sea", *options: str) -> str:
    card = run(capsys, "create", prompt, "both", "both/code", "--max-tokens", "3", "--seed", "5", *options)
    return str(card["id"])


@pytest.mark.usefixtures("fake")
def test_answers_are_made_side_by_side_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    id = made(capsys, HOSTILE)
    assert main(["comparison", "show", id[:6]]) == 0
    shown = capsys.readouterr().out
    assert "A: both, seed 5, 3 tokens" in shown
    assert "B: both/code, seed 5, 3 tokens" in shown
    assert "(by the posterior)" in shown
    assert "\x1b" not in shown
    assert main(["comparison", "show", id, "--answer", "B"]) == 0
    assert capsys.readouterr().out.strip() == "[31m<b>rocks0 [31m<b>rocks1 [31m<b>rocks2"
    assert main(["comparison", "show", id, "--answer", "C"]) == 2


def test_an_answer_goes_to_verify_and_all_are_verified(
    fake: FakeHost, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = made(capsys)
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(run(capsys, "show", id, "--answer", "A")))
    monkeypatch.setattr("ui.cli.commands.servers.verify.ModelHost", lambda settings: ModelHost(settings, fake))
    assert main(["verify", str(path)]) == 0
    assert main(["comparison", "verify", id]) == 0
    assert capsys.readouterr().out.count("all 3 tokens are the same") == 3
    fake.first_id = 1
    assert main(["comparison", "verify", id]) == 1
    assert "Answer B:\nChoice 0: token 1 of 3 differs." in capsys.readouterr().out


@pytest.mark.usefixtures("fake")
def test_a_link_is_shown_with_what_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    id = made(capsys)
    assert main(["comparison", "link", id[:8]]) == 0
    shown = capsys.readouterr().out
    assert f"/play/?r={id}\n" in shown
    assert "Answer B: Nothing has changed." in shown
    assert main(["mixture", "delete", "both"]) == 0
    capsys.readouterr()
    assert "both" in run(capsys, "link", id)["answers"][0]["problem"]


@pytest.mark.usefixtures("fake")
def test_votes_are_cast_withdrawn_and_rated(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [made(capsys) for _ in range(12)]
    for place, id in enumerate(ids):
        assert main(["comparison", "vote", id, "a" if place % 4 else "b", "--blind"]) == 0
    assert "A is better than B." in capsys.readouterr().out
    assert main(["comparison", "rating", "--domain", "code"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "code (12 votes, 12 blind): The votes do not separate both from both/code." in shown
    assert "both 1,095 " in shown
    assert main(["comparison", "rating", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("domain,label,model,num_votes")
    assert main(["comparison", "withdraw", ids[0]]) == 0
    capsys.readouterr()
    assert run(capsys, "show", ids[0])["votes"] == []
    assert main(["comparison", "withdraw", ids[0]]) == 2
    assert main(["comparison", "vote", ids[1], "both-bad", "--first", "B", "--second", "A"]) == 0
    assert "A and B are both bad." in capsys.readouterr().out


@pytest.mark.usefixtures("fake")
def test_the_history_is_searched_and_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = made(capsys, "grey rocks"), made(capsys, "the court", "--domain", "law")
    assert [one["id"] for one in run(capsys, "list")] == [second, first]
    assert [one["id"] for one in run(capsys, "list", "--search", "ROCKS")] == [first]
    assert [one["id"] for one in run(capsys, "list", "--domain", "law")] == [second]
    assert main(["comparison", "vote", first, "tie"]) == 0
    capsys.readouterr()
    assert run(capsys, "clear", "--older-than", "1") == {"num_comparisons": 0, "num_votes": 0}
    assert run(capsys, "delete", second) == {"num_comparisons": 1, "num_votes": 0}
    assert main(["comparison", "clear"]) == 0
    assert "the text of 1 comparison, and 0 votes" in capsys.readouterr().out
    assert run(capsys, "list") == []
    assert main(["comparison", "verify", first]) == 2
    assert "is not stored" in capsys.readouterr().err


@pytest.mark.usefixtures("fake")
def test_with_the_history_off_the_texts_are_printed_and_not_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_HISTORY_DAYS", "0")
    get_settings.cache_clear()
    assert Settings().history_days == 0
    assert main(["comparison", "create", "the sea", "both", "both/law", "--max-tokens", "2"]) == 0
    output = capsys.readouterr()
    assert "both/law:  sea0 sea1" in output.err
    assert "sea" not in output.out
    assert run(capsys, "list") == []


@pytest.mark.usefixtures("fake")
def test_a_comparison_needs_two_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comparison", "create", "the sea", "both"]) == 2
    assert "2 to 4 models" in capsys.readouterr().err
