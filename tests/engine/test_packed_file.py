"""What is packed can be unpacked: writing refuses the names that opening refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import packed_file
from engine.errors import ModelError
from engine.packed_file import open_packed, write_packed
from engine.text.tokenizer import TOKENIZER_FILES

KNOWN = (
    *TOKENIZER_FILES,
    "config.json",
    "expert.safetensors",
    "part-0.safetensors",
    "additional_chat_templates/tool_use.jinja",
)


def write(folder: Path, *names: str, part: str = "expert") -> Path:
    (folder / "content").write_bytes(b"content")
    write_packed(folder / "packed", {"made": "here"}, {part: dict.fromkeys(names, folder / "content")})
    return folder / "packed"


def test_every_file_of_an_expert_and_its_base_comes_back(tmp_path: Path) -> None:
    packed = open_packed(write(tmp_path, *KNOWN))
    assert packed.about == {"made": "here"}
    packed.unpack("expert", tmp_path / "back")
    assert {file.relative_to(tmp_path / "back").as_posix() for file in (tmp_path / "back").rglob("*.*")} == {*KNOWN}


@pytest.mark.parametrize(
    "name", ["code.py", "model.bin", "../up.json", "/up.json", ".hidden.json", "a b.json", "deep/er.json", "no_suffix"]
)
def test_what_could_not_be_opened_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="cannot be packed"):
        write(tmp_path, "config.json", name)
    assert not (tmp_path / "packed").exists()
    with pytest.raises(ModelError, match="cannot be packed"):
        write(tmp_path, "config.json", part="Part 1")


def test_as_many_files_are_written_as_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_file, "_MAX_MEMBERS", 2)
    with pytest.raises(ModelError, match="2 are the most"):
        write(tmp_path, "a.json", "b.json", "c.json")
    assert len(open_packed(write(tmp_path, "a.json", "b.json")).members) == 2
