"""workbench alias: an alias is set, used, moved, listed and deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui.conftest import ask
from ui.cli.app import main
from ui.cli.mix_options import members_of

LIVE = "law@production"


@pytest.mark.usefixtures("mixed")
def test_an_alias_is_set_used_moved_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "set", LIVE, "both/law"]) == 0
    assert capsys.readouterr().out == "“law@production” means the expert “both/law”.\n"
    assert ask(capsys, "expert", "show", LIVE)["name"] == "both/law"
    assert members_of(LIVE) == members_of("both/law")
    assert ask(capsys, "alias", "set", LIVE, "both")["kind"] == "mixture"
    assert ask(capsys, "mixture", "show", LIVE)["name"] == "both"
    assert members_of(LIVE) == members_of("both")
    assert [(one["name"], one["model"]) for one in ask(capsys, "alias", "list")] == [(LIVE, "both")]
    assert main(["mixture", "delete", "both"]) == 2
    assert "it is needed by alias “law@production”" in capsys.readouterr().err
    assert ask(capsys, "alias", "delete", LIVE) == {"deleted": LIVE}
    assert ask(capsys, "alias", "list") == []
    assert main(["mixture", "delete", "both"]) == 0


@pytest.mark.usefixtures("mixed")
def test_a_mixture_is_copied(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "mixture", "copy", "both")["name"] == "both.2"
    assert main(["mixture", "copy", "both", "best"]) == 0
    assert capsys.readouterr().out == "“best” is a copy of “both”.\n"
    assert ask(capsys, "mixture", "show", "best")["members"] == ask(capsys, "mixture", "show", "both")["members"]


@pytest.mark.usefixtures("mixed")
def test_an_export_is_queued_with_the_name_of_the_expert(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["alias", "set", LIVE, "both/law"]) == 0
    capsys.readouterr()
    assert main(["expert", "export", LIVE, str(tmp_path / "out")]) == 0
    capsys.readouterr()
    [job] = ask(capsys, "job", "list")
    assert job["spec"]["expert"] == "both/law"


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["set", "law", "both"], "write it as law@production"),
        (["set", LIVE, "nobody"], "Neither a mixture nor an expert is called “nobody”"),
        (["delete", LIVE], f"There is no alias called “{LIVE}”"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["alias", *words]) == 2
    assert reason in capsys.readouterr().err
