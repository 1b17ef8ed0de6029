"""A file that is written while it is read is noticed, and what waits in memory to be sorted is bounded."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.errors import CorpusChangedError
from engine.text import parquet_rows, split
from engine.text.corpus import Document, ReadOptions, admit, read_documents
from engine.text.import_report import ReadReport
from engine.text.split import store_documents


def write(path: Path, texts: list[str]) -> None:
    if path.name.endswith(".parquet"):
        pq.write_table(pa.table({"text": texts}), path)
        return
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    path.write_bytes(gzip.compress(lines) if path.name.endswith(".gz") else lines)


def reading(path: Path, **options: bool) -> Iterator[Document]:
    """The documents of a file from which the first one was read."""
    documents = read_documents(path, ReadOptions(**options), ReadReport())
    next(documents)
    return documents


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, name: str, skip_bad: bool) -> None:
    path = tmp_path / name
    write(path, [f"text {number}" for number in range(300)])
    documents = reading(path, skip_bad=skip_bad)
    with path.open("ab") as file:
        file.write(b'{"text": "late"}\n')
    with pytest.raises(
        CorpusChangedError, match=rf"{name}: The file changed while it was read\. Import it when"
    ) as caught:
        list(documents)
    assert caught.value.path == name


def test_a_change_is_named_instead_of_the_broken_line_that_it_left(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, ["long text " * 1000 for _ in range(1000)])  # more than is read ahead
    documents = reading(path)
    with path.open("r+b") as file:
        file.seek(5_000_000)
        file.write(b"\n{not JSON\n")
    with pytest.raises(CorpusChangedError):
        list(documents)


def test_a_change_of_the_same_size_is_noticed_by_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, ["one", "two"])
    os.utime(path, (1, 1))
    documents = reading(path)
    write(path, ["one", "too"])
    with pytest.raises(CorpusChangedError):
        list(documents)


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, ["one", "two"])
    documents = reading(path)
    write(tmp_path / "new", ["three"])
    (tmp_path / "new").rename(path)
    assert [document.text for document in documents] == ["two"]


def peak_of_storing(num_documents: int, folder: Path) -> int:
    texts = (Document(f"document {number}", source=f"a:{number}") for number in range(num_documents))
    tracemalloc.start()
    try:
        for _ in store_documents(admit(texts, ReadOptions(), ReadReport()), folder):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_short_documents_are_sorted_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real bounds are 64 and 4 MiB; here they are 128 KiB, and the rows of all documents would take 3 MiB."""
    monkeypatch.setattr(split, "MEMORY_BYTES", 1 << 17)
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 1 << 17)
    peak_of_storing(10, tmp_path / "first")  # which imports the rest of pyarrow
    assert peak_of_storing(5_000, tmp_path / "second") < 2 << 20
