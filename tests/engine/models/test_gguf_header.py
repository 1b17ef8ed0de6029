"""A GGUF file that is cut, hostile or of another sort is refused by its header, before a library maps it."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.models.gguf_header import only_gguf, read_header

sys.path.insert(0, str(Path(__file__).parent))  # for gguf_files

from gguf_files import FFN, LAYERS, TOKENS, WIDTH, write_gguf


def start(num_tensors: int = 0, num_fields: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_fields)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def field(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: bytes, *shape: int, kind: int = 0, at: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)


def test_a_header_says_what_the_writer_wrote(tmp_path: Path) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf", "Q4_0"))
    assert (header.architecture, header.quantization) == ("llama", "Q4_0")
    assert header.fields["tokenizer.ggml.tokens"] == len(TOKENS)
    by_name = {tensor.name: tensor for tensor in header.tensors}
    assert by_name["blk.0.ffn_down.weight"].shape == (WIDTH, FFN)
    assert (by_name["blk.0.ffn_up.weight"].type, len(by_name)) == ("Q4_0", 2 + 9 * LAYERS)
    assert list(header.types) == ["Q4_0", "F32"]


def test_the_hash_of_tensors_is_that_of_the_numbers_and_not_of_the_other_fields(tmp_path: Path) -> None:
    first, second = (write_gguf(tmp_path / f"{name}.gguf", template=name) for name in "ab")
    other = write_gguf(tmp_path / "c.gguf", "Q4_0")
    hashes = [read_header(path).tensors_sha256() for path in (first, second, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_file_that_is_cut_after_its_header_was_read_ends_its_hash(tmp_path: Path) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf"))
    header.path.write_bytes(header.path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="became shorter"):
        header.tensors_sha256()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.2, 0.5, 0.99])
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path, share: float) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[: max(24, int(path.stat().st_size * share))])
    with pytest.raises(ModelError, match=r"not a complete GGUF file|GGUF file of version"):
        read_header(path)


HOSTILE = {
    "more tensors than any model": (start(num_tensors=1 << 60), "announces 1,152,921,504,606,846,976 tensors"),
    "more fields than the file": (start(num_fields=1 << 12), "header ends after 24 bytes"),
    "a string longer than the file": (start(0, 1) + struct.pack("<Q", 1 << 62), "asks for too many"),
    "an array longer than the file": (start(0, 1) + field(b"a", 9, struct.pack("<IQ", 10, 1 << 21)), "too many"),
    "an array without end": (start(0, 1) + field(b"a", 9, struct.pack("<IQ", 0, 1 << 63)), "items of an array"),
    "an array of arrays": (start(0, 1) + field(b"a", 9, struct.pack("<IQ", 9, 1)), "unknown type 9"),
    "an unknown type of field": (start(0, 1) + field(b"a", 99, b""), "unknown type 99"),
    "a field twice": (start(0, 2) + field(b"a", 0, b"1") * 2, "stands twice"),
    "a name that is not UTF-8": (start(0, 1) + field(b"\xff", 0, b"1"), "not UTF-8"),
    "an alignment of 0": (start(0, 1) + field(b"general.alignment", 4, bytes(4)), "its alignment is 0"),
    "an alignment of 3": (start(0, 1) + field(b"general.alignment", 4, b"\3\0\0\0"), "its alignment is 3"),
    "a tensor past the end": (start(1) + tensor(b"t", 80) + bytes(64), "would end at byte"),
    "a tensor far past the end": (start(1) + tensor(b"t", 8, at=1 << 62) + bytes(64), "would end at byte"),
    "a tensor of too many numbers": (start(1) + tensor(b"t", 1 << 40, 1 << 40), "has the shape"),
    "a tensor of nothing": (start(1) + tensor(b"t", 0), "has the shape"),
    "a tensor of many dimensions": (start(1) + tensor(b"t", *(1,) * 40), "40 dimensions"),
    "a broken block": (start(1) + tensor(b"t", 31, kind=8) + bytes(99), "has the shape"),
    "two tensors in one place": (start(2) + (tensor(b"t", 8) + tensor(b"u", 8)) + bytes(99), "reaches into the next"),
    "a tensor twice": (start(2) + tensor(b"t", 8) * 2 + bytes(99), "stands twice"),
    "an unknown type of tensor": (start(1) + tensor(b"t", 8, kind=77) + bytes(99), "of the unknown type 77"),
    "an old version": (start(version=1), "of version 1; versions 2 and 3"),
    "nothing": (start(), "without an architecture or without tensors"),
    "an adapter": (start(0, 1) + field(b"general.type", 8, text(b"adapter")), "of type “adapter”"),
    "one of several": (start(0, 1) + field(b"split.count", 2, b"\3\0"), "one of 3 files of a split model"),
}


@pytest.mark.parametrize(("content", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_refused_in_a_sentence(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=problem):
        read_header(tmp_path / "m.gguf")


@pytest.mark.parametrize("number", [1, 3])
def test_a_split_model_is_refused_with_the_command_that_joins_it(tmp_path: Path, number: int) -> None:
    for file in (1, 2, 3):
        content = start(0, 1) + field(b"split.count", 2, b"\3\0")
        (tmp_path / f"my model-0000{file}-of-00003.gguf").write_bytes(content)
    assert only_gguf(tmp_path).name == "my model-00001-of-00003.gguf"
    with pytest.raises(ModelError, match="one of 3 files of a split model") as caught:
        read_header(tmp_path / f"my model-0000{number}-of-00003.gguf")
    first, joined = tmp_path / "my model-00001-of-00003.gguf", tmp_path / "my model.gguf"
    assert f"llama-gguf-split --merge '{first}' '{joined}'" in caught.value.next_step


def test_a_folder_of_several_files_names_them(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.GGUF"):
        (tmp_path / name).write_bytes(start())
    with pytest.raises(ModelError, match=r"holds 2 GGUF files: a\.gguf, b\.GGUF"):
        only_gguf(tmp_path)
