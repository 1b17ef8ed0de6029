"""A named pipe, a socket or a device is called by its name and never opened: a pipe would be waited for without end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from engine.errors import CorpusError, DamagedFileError, ModelError
from engine.foreign_files import read_bytes, what_is
from engine.packed_file import open_packed
from engine.text.streams import find_files


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.txt")
    return tmp_path / "pipe.txt"


def test_what_is_no_file_has_a_name(pipe: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert [what_is(one) for one in (pipe, tmp_path / "socket", "/dev/null")] == ["named pipe", "socket", "device"]
    assert [what_is(one) for one in (tmp_path, __file__, tmp_path / "nothing", "a\0b")] == [""] * 4


def test_a_pipe_is_no_text_no_packed_expert_and_no_part_of_a_model(pipe: Path) -> None:
    with pytest.raises(CorpusError, match="is a named pipe, not a file"):
        list(find_files(pipe))
    with pytest.raises(DamagedFileError, match="is a named pipe, not a file"):
        open_packed(pipe)
    with pytest.raises(ModelError, match="is a named pipe, not a file"):
        read_bytes(pipe.parent, pipe.name, 100)


def test_a_pipe_in_a_folder_of_texts_is_named_and_left_out(pipe: Path) -> None:
    (pipe.parent / "text.txt").write_text("text")
    fault, file = find_files(pipe.parent)
    assert "it is a named pipe" in str(fault)
    assert getattr(file, "name", "") == "text.txt"
