"""Commands that take experts in and give them away: what each submits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ui.cli import verbs
from ui.cli.app import main
from workbench.kinds.kind import parse_spec


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    specs: list[Any] = []
    monkeypatch.setattr(verbs, "submit", lambda spec, _: specs.append(spec) or SimpleNamespace(id="j", state="queued"))
    return specs


@pytest.mark.parametrize("flag", ["--seed", "--seed-model"])
def test_import_takes_the_seed_under_both_names(flag: str, submitted: list[Any]) -> None:
    assert main(["expert", "import", "hub:one/two@v1", flag, "small"]) in (0, None)
    assert submitted == [parse_spec({"kind": "import-expert", "source": "hub:one/two@v1", "seed_model": "small"})]
    assert (submitted[0].expert, submitted[0].folder) == ("two", "")


def test_a_folder_is_made_absolute_and_names_the_expert(
    submitted: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["expert", "import", "adapters/law", "--seed", "s", "--method", "lora"]) in (0, None)
    assert (submitted[0].folder, submitted[0].expert) == (str(tmp_path / "adapters/law"), "law")


def test_pack_and_unpack_name_a_file(submitted: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["expert", "pack", "m/law", "law.expert", "--with-seed"]) in (0, None)
    assert main(["expert", "unpack", "law.expert", "--name", "mine"]) in (0, None)
    file = str(tmp_path / "law.expert")
    assert submitted == [
        parse_spec({"kind": "pack-expert", "expert": "m/law", "file": file, "with_seed": True}),
        parse_spec({"kind": "unpack-expert", "file": file, "name": "mine"}),
    ]


def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], submitted: list[Any]) -> None:
    for line, words in (
        (["import", "hub:../evil", "--seed", "s"], "is not a name on the hub"),
        (["import", "folder", "--seed", "s", "--method", "ia3"], "'ia3' is not one of"),
        (["import", "folder"], "--seed"),
        (["unpack", "file", "--name", "a,b"], "comma"),
    ):
        assert main(["expert", *line]) == 2
        assert words in capsys.readouterr().err
    assert submitted == []
