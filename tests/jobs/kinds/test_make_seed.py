"""A path that holds no model is refused with what is missing, before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ModelError
from jobs.kinds.training.make_seed import _given_path


def take(path: Path, *, in_bf16: bool = False) -> None:
    list(_given_path(path, "folder", path, in_bf16))


def test_a_folder_without_a_model_is_called_so_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").mkdir()
    with pytest.raises(ModelError, match=r"x\.gguf holds no model: no \.gguf file, and no config\.json"):
        take(tmp_path / "x.gguf")


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "m.gguf").write_bytes(b"GGUF\3\0\0\0")
    (tmp_path / "model" / "m.gguf").symlink_to(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match=r"m\.gguf is a link that leads out of its folder"):
        take(tmp_path / "model")


def test_only_a_gguf_file_is_rounded_to_bf16(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a GGUF file: its weights keep their precision"):
        take(tmp_path, in_bf16=True)
