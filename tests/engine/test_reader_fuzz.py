"""Files of others, made at random and by damage to good ones: a reader takes them or names a problem, and soon."""

from __future__ import annotations

import json
import shutil
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.errors import Problem
from engine.files import MANIFEST, verify_folder, weights_sha256, write_manifest
from engine.models.model_files import CONFIG, WEIGHTS, find_weights, read_config
from engine.packed_file import open_packed, write_packed
from engine.text.corpus import ReadOptions, read_documents
from engine.text.import_report import ReadReport

SECONDS, BYTES = 2.0, 96 << 20
few = settings(
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NUMBERS = st.one_of(
    st.integers(-(1 << 70), 1 << 70), st.floats(), st.sampled_from([0, -1, 1 << 31, 1 << 40, 10**400, float("nan")])
)
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=20))
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
DEEP = b"[" * 200_000


@pytest.fixture(scope="module", autouse=True)
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the readers import is not their time."""
    folder = tmp_path_factory.mktemp("good")
    for name, content in ((CONFIG, as_json(LLAMA)), (WEIGHTS, GOOD), ("x.jsonl", RECORD)):
        (folder / name).write_bytes(content)
    read_config(folder)
    find_weights(folder).open()
    list(read_documents(folder / "x.jsonl", ReadOptions(), ReadReport()))


@contextmanager
def bounded() -> Iterator[None]:
    """Lets only our own problems through, and fails for more time or memory than a reader of a small file needs."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with suppress(Problem):
            yield
        spent, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert spent < SECONDS
    assert peak < BYTES


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """The bytes cut, with some replaced, or with others in between."""
    place, junk = st.integers(0, len(good)), st.binary(max_size=24)
    return st.one_of(
        place.map(lambda at: good[:at]),
        st.tuples(place, junk).map(lambda one: good[: one[0]] + one[1] + good[one[0] + len(one[1]) :]),
        st.tuples(place, junk).map(lambda one: good[: one[0]] + one[1] + good[one[0] :]),
        st.binary(max_size=200),
    )


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "replace")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x").write_bytes(b"weights")
    write_manifest(tmp_path)
    return tmp_path


LISTED = as_json({"files": {"x": {"sha256": "0" * 64, "size_bytes": 7}}})
ODD_NAMES = ["../x", "/etc/passwd", "a\0b", "", ".", "x" * 300]
FILES = st.one_of(
    VALUES,
    st.dictionaries(
        st.one_of(st.just("x"), st.sampled_from(ODD_NAMES), st.text(max_size=9)),
        st.one_of(VALUES, st.fixed_dictionaries({"sha256": PLAIN, "size_bytes": PLAIN})),
        max_size=3,
    ),
)


@few
@given(content=st.one_of(damaged(LISTED), FILES.map(lambda files: as_json({"files": files})), VALUES.map(as_json)))
@example(DEEP)
@example(b'{"files": {"x": {"size_bytes": 7}}}')
@example(b'{"files": {"a\\u0000b": {"sha256": "", "size_bytes": 7}}}')
@example(b'{"files": {"\\ud800": {"sha256": "", "size_bytes": 7}}}')
@example(b'{"files": [1]}')
@example(b"[]")
def test_a_manifest(folder: Path, content: bytes) -> None:
    (folder / MANIFEST).write_bytes(content)
    with bounded():
        verify_folder(folder)
        weights_sha256(folder)


def safetensors(header: bytes, length: int | None = None, data: bytes = bytes(32)) -> bytes:
    return struct.pack("<Q", (len(header) if length is None else length) & (1 << 64) - 1) + header + data


TENSOR = {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}
HEADERS = st.one_of(
    VALUES,
    st.dictionaries(
        st.text(max_size=8),
        st.fixed_dictionaries(
            {
                "dtype": st.one_of(st.sampled_from(["F32", "BF16", "I64", "F8_E4M3", "NONE"]), VALUES),
                "shape": st.one_of(st.lists(st.integers(-2, 1 << 65), max_size=4), VALUES),
                "data_offsets": st.one_of(st.lists(st.integers(-2, 1 << 65), max_size=3), VALUES),
            }
        ),
        max_size=3,
    ),
).map(as_json)
GOOD = safetensors(as_json({"w": TENSOR}))


@few
@given(content=st.one_of(damaged(GOOD), HEADERS.map(safetensors)))
@example(safetensors(b"{}", 1 << 63))
@example(safetensors(DEEP))
@example(safetensors(as_json({"w": TENSOR | {"shape": [1 << 62, 1 << 62]}})))
@example(b"")
def test_a_safetensors_header(folder: Path, content: bytes) -> None:
    (folder / WEIGHTS).write_bytes(content)
    with bounded():
        weights = find_weights(folder)
        assert weights.num_parameters >= 0
        tensors = weights.open()
        for name in tensors:
            assert tensors[name] is not None


SUFFIXES = st.sampled_from(["jsonl", "csv", "txt"])
RECORD = as_json({"text": "the sea", "domain": "sea"}) + b"\n"
LINES = st.lists(
    st.one_of(
        VALUES.map(as_json), st.text(max_size=30).map(lambda text: as_json({"text": text})), st.binary(max_size=40)
    ),
    max_size=6,
).map(b"\n".join)


@few
@given(
    content=st.one_of(damaged(RECORD * 3), LINES),
    skip_bad=st.booleans(),
    suffix=st.sampled_from(["jsonl", "csv", "txt"]),
)
@example(DEEP, False, "jsonl")
@example(b'{"text": ' + b'"' + b"a" * (1 << 20), True, "jsonl")
@example(b'{"text": 1' + b"0" * 10_000 + b"}", False, "jsonl")
@example(b"\n" * (1 << 15), False, "jsonl")
def test_lines_of_json_and_other_texts(tmp_path: Path, content: bytes, skip_bad: bool, suffix: str) -> None:
    file = tmp_path / f"corpus.{suffix}"
    file.write_bytes(content)
    with bounded():
        for document in read_documents(file, ReadOptions(domain_field="", skip_bad=skip_bad), ReadReport()):
            document.text.encode()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a good packed file."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "config.json").write_bytes(b"{}")
    (folder / "w.safetensors").write_bytes(GOOD)
    files = {"config.json": folder / "config.json", "w.safetensors": folder / "w.safetensors"}
    write_packed(folder / "expert.pack", {"name": "x"}, {"expert": files})
    return (folder / "expert.pack").read_bytes()


@few
@given(data=st.data())
def test_a_packed_file(tmp_path: Path, packed: bytes, data: st.DataObject) -> None:
    file, target = tmp_path / "expert.pack", tmp_path / "in" / "target"
    file.write_bytes(data.draw(damaged(packed)))
    shutil.rmtree(tmp_path / "in", ignore_errors=True)
    with bounded():
        opened = open_packed(file)
        opened.unpack("expert", target)
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - {file}
    assert all(path.is_relative_to(target) for path in written)


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
CHANGES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.one_of(st.sampled_from([*LLAMA, "rope_scaling", "quantization_config", "auto_map", "dtype", "id2label"])),
    VALUES,
    max_size=3,
)


@few
@given(content=st.one_of(CHANGES.map(lambda one: as_json(LLAMA | one)), damaged(as_json(LLAMA)), VALUES.map(as_json)))
@example(DEEP)
@example(as_json(LLAMA | {"num_hidden_layers": 10**9}))
def test_a_configuration(folder: Path, content: bytes) -> None:
    (folder / CONFIG).write_bytes(content)
    with bounded():
        read_config(folder)


@pytest.mark.parametrize("good", [LISTED, GOOD, as_json(LLAMA)])
def test_the_good_ones_are_taken(folder: Path, good: bytes) -> None:
    """What is damaged above is not refused for another reason."""
    readers: dict[bytes, tuple[str, Callable[[Path], Any]]] = {
        LISTED: ("other.json", lambda _: verify_folder(folder)),
        GOOD: (WEIGHTS, find_weights),
        as_json(LLAMA): (CONFIG, read_config),
    }
    name, read = readers[good]
    (folder / name).write_bytes(good)
    assert read(folder)
