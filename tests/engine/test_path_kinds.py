"""One function says what a file or folder is, and what to do where an importer wants something else."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.foreign_files import describe_size, read_object
from engine.path_kinds import READABLE, describe_head, describe_path, require_kind

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 538090408\n".encode()
SAFETENSORS = struct.pack("<Q", 64) + b'{"weight":{"dtype":"F32"'.ljust(64)


def zipped(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "content")
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return file.getvalue()


def gguf(file_type: int) -> bytes:
    key = b"general.file_type"
    return b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, len(key)) + key + struct.pack("<II", 4, file_type)


FILES: dict[str, tuple[bytes, str, str]] = {  # content, kind, a word of sentence or remedy
    "text": (b"Rain filled the old quarry.\n", "text", ""),
    "text that begins as names of formats do": (b"GGUF and ORC are formats.\n", "text", ""),
    "empty": (b"", "empty", "empty"),
    "pointer of Git LFS": (POINTER, "pointer", "538 MB"),
    "pointer of its older name": (POINTER.replace(b"git-lfs.github", b"hawser.github"), "pointer", "git lfs pull"),
    "pointer of git-annex": (b"/annex/objects/SHA256E-s3--ab.txt\n", "pointer", "git annex get"),
    "quantized GGUF": (gguf(3), "gguf", "quantized, Q4_1"),
    "GGUF of sixteen bits": (gguf(1), "gguf", "(F16)"),
    "big-endian GGUF": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "binary", "gguf-convert-endian"),
    "GGUF that does not say": (b"GGUF\3\0\0\0", "gguf", "Add it as a seed model"),
    "safetensors": (SAFETENSORS, "safetensors", "folder"),
    "pickle": (pickle.dumps(["a"]), "pickle", "run code"),
    "pickle of PyTorch": (zipped("archive/data.pkl"), "pickle", "save_pretrained"),
    "packed expert": (zipped("pack.json"), "packed expert", "Unpack"),
    "spreadsheet": (zipped("[Content_Types].xml"), "document", ".csv"),
    "arrays": (zipped("a.npy"), "binary", "NumPy"),
    "zip": (zipped("a.txt"), "archive", "zip"),
    "tar": (tarred(), "archive", "tar"),
    "gzip": (b"\x1f\x8b\x08", "compressed", ".gz"),
    "parquet": (b"PAR1\x15", "parquet", ".parquet"),
    "picture": (b"\x89PNG\r\n", "picture", "PNG"),
    "PDF": (b"%PDF-1.7", "document", ".txt"),
    "UTF-16": ("Wörter".encode("utf-16"), "utf-16", "iconv"),
    "UTF-16 without its mark": ("text\nsome words".encode("utf-16-le"), "utf-16", "iconv"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_called_what_its_first_bytes_show(name: str, tmp_path: Path) -> None:
    content, kind, word = FILES[name]
    path = tmp_path / "file"
    path.write_bytes(content)

    described = describe_path(path)

    assert described.kind == kind
    assert described.sentence.startswith(str(path))
    assert word in f"{described.sentence} {described.remedy}"


def model(folder: Path, **files: bytes) -> None:
    """A folder with these files; `__` stands for a dot."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)


def card(folder: Path, text: str) -> None:
    model(folder, README__md=f"---\n{text}\n---\n# Card\n".encode())


def checkpoints(folder: Path) -> None:
    model(folder / "checkpoint-9", config__json=b"{}")
    model(folder / "checkpoint-10", config__json=b"{}")


def split_files(folder: Path) -> None:
    model(folder / "data", **{"train-00000-of-00001__parquet": b"PAR1"})


FOLDERS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "texts": (lambda f: model(f, a__txt=b"Words."), "folder", ""),
    "model": (lambda f: model(f, config__json=b"{}", model__safetensors=SAFETENSORS), "model", "seed model"),
    "model with pointers that nobody reads": (
        lambda f: model(f, config__json=b"{}", model__safetensors=SAFETENSORS, pytorch_model__bin=POINTER),
        "model",
        "",
    ),
    "model without its weights": (
        lambda f: model(f, config__json=b"{}", model__safetensors=POINTER),
        "pointer",
        "model.safetensors is a Git LFS pointer: the file (538 MB)",
    ),
    "model without its tokenizer": (
        lambda f: model(f, config__json=b"{}", model__safetensors=SAFETENSORS, tokenizer__json=POINTER),
        "pointer",
        "tokenizer.json",
    ),
    "adapter": (lambda f: model(f, adapter_config__json=b"{}", adapter_model__safetensors=SAFETENSORS), "adapter", ""),
    "adapter without its weights": (
        lambda f: model(f, adapter_config__json=b"{}", adapter_model__safetensors=POINTER),
        "pointer",
        "adapter_model.safetensors",
    ),
    "GGUF next to a configuration": (lambda f: model(f, config__json=b"{}", m__gguf=gguf(15)), "gguf", "Q4_K_M"),
    "model as a pickle": (lambda f: model(f, config__json=b"{}", pytorch_model__bin=b"\x80\2"), "pickle", "never"),
    "state of a training": (lambda f: model(f, optimizer__pt=b"\x80\2", trainer_state__json=b"{}"), "checkpoint", ""),
    "checkpoints": (
        checkpoints,
        "checkpoint",
        "checkpoint-10",
    ),
    "data set by its card": (lambda f: card(f, "configs:\n- config_name: default"), "data set", "corpus"),
    "text with a card of a model": (lambda f: card(f, "library_name: peft"), "folder", ""),
    "data set by its infos": (lambda f: model(f, dataset_infos__json=b"{}"), "data set", ""),
    "data set by its files": (
        split_files,
        "data set",
        "",
    ),
    "data set of save_to_disk": (lambda f: model(f, dataset_dict__json=b"{}"), "saved data set", "load_from_disk"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_called_what_its_files_show(name: str, tmp_path: Path) -> None:
    make, kind, word = FOLDERS[name]
    make(tmp_path)

    described = describe_path(tmp_path)

    assert described.kind == kind
    assert word in f"{described.sentence} {described.remedy}"


@pytest.mark.parametrize(("name", "kind"), [("absent", "missing"), ("nul\0", "missing"), ("n" * 300, "unreadable")])
def test_a_path_that_leads_nowhere_is_no_crash(name: str, kind: str, tmp_path: Path) -> None:
    assert describe_path(tmp_path / name).kind == kind


def test_a_link_that_points_at_itself_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert describe_path(tmp_path / "loop").kind == "unreadable"


def test_an_importer_refuses_other_kinds_in_its_own_error(tmp_path: Path) -> None:
    model(tmp_path, config__json=b"{}", model__safetensors=SAFETENSORS)

    assert require_kind(tmp_path, ["model"]).kind == "model"
    with pytest.raises(ModelError, match="holds a model") as refusal:
        require_kind(tmp_path, READABLE, ModelError)
    assert "seed model" in refusal.value.next_step


@pytest.mark.parametrize(
    ("size", "text"), [(134, "134 bytes"), (538_090_408, "538 MB"), (1_500_000, "1.5 MB"), (41_000_000_000, "41 GB")]
)
def test_a_size_has_the_unit_that_suits_it(size: int, text: str) -> None:
    assert describe_size(size) == text


def test_the_first_bytes_of_a_stream_are_enough() -> None:
    assert describe_head(POINTER, "The file").sentence.startswith("The file is a Git LFS pointer")


def test_a_link_that_leads_out_of_a_folder_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("config.json", "README.md", "model.gguf"):
        (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
        (tmp_path / "folder" / name).symlink_to(tmp_path / name)
    assert describe_path(tmp_path / "folder").kind == "folder"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json"])
def test_a_pointer_is_called_so_wherever_a_file_of_a_folder_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(ModelError, match=r"is a Git LFS pointer: the file .* `git lfs pull`"):
        read_object(tmp_path, name, 1 << 20)
