"""What is no model, adapter or packed expert is called by its name, with what to do about it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.journeys.conftest import Do
from ui.cli.app import main

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 538000000\n"
GGUF = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + b"\0" * 64
LFS, PULL = "is a Git LFS pointer: the file (538 MB) was not downloaded", "`git lfs pull`"
FILES: dict[str, tuple[dict[str, bytes], str, str]] = {
    "pointer": ({"config.json": b"{}", "model.safetensors": POINTER}, LFS, PULL),
    "pointer of an adapter": ({"adapter_config.json": b"{}", "adapter_model.safetensors": POINTER}, LFS, PULL),
    "pickle": (
        {"config.json": b"{}", "pytorch_model.bin": b"\x80\x02"},
        "as pytorch_model.bin, a pickle",
        "save_pretr",
    ),
    "states": (
        {"optimizer.pt": b"x", "trainer_state.json": b"{}"},
        "the state of a training",
        "save_pretrained(folder)",
    ),
}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(("files", "what", "remedy"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("command", [["seed", "add", "new"], ["expert", "import", "--seed", "seed", "--name", "new"]])
def test_a_folder_is_called_by_what_it_holds(
    trained: Do,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    files: dict[str, bytes],
    what: str,
    remedy: str,
) -> None:
    del trained
    assert main([*command, str(write(tmp_path / "from", files)), "--here"])
    message = capsys.readouterr().err
    assert what in message
    assert remedy in message


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("others", [{}, {"config.json": b"{}"}], ids=["only", "with a configuration"])
def test_a_gguf_file_of_a_folder_becomes_a_seed_or_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], others: dict[str, bytes]
) -> None:
    folder = str(write(tmp_path / "from", {"model.gguf": GGUF, **others}))
    assert main(["expert", "import", "--seed", "seed", "--name", "new", folder, "--here"])
    assert "is a GGUF file. Add it as a seed model" in capsys.readouterr().err
    assert main(["seed", "add", "new", folder, "--here"])
    assert "model.gguf is a GGUF file without an architecture or without tensors" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "what"),
    [(POINTER, LFS), (GGUF, "is a GGUF file"), (b"text", "is text"), (b"", "is empty")],
    ids=["pointer", "gguf", "text", "empty"],
)
@pytest.mark.parametrize("command", [["expert", "unpack"], ["expert", "import", "--seed", "seed", "--name", "new"]])
def test_a_file_is_called_by_what_it_is(
    trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], content: bytes, what: str
) -> None:
    del trained
    (tmp_path / "file").write_bytes(content)
    assert main([*command, str(tmp_path / "file"), "--here"])
    assert what in capsys.readouterr().err


@pytest.mark.usefixtures("trained")
def test_an_adapter_is_no_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "from", {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"})
    assert main(["seed", "add", "new", str(folder), "--here"])
    assert "holds an adapter for a model. Import it as an expert of its model." in capsys.readouterr().err
