"""Cuts the long documents of a domain for clustering, as an import does: clusters are balanced by documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from engine.clusters.sources import REPORT_EVERY, Ids, as_ids
from engine.events import Progress
from engine.text.corpus import Document
from engine.text.parquet_rows import Row, SortedRows, Table, read_rows
from engine.text.plain_text import pieces
from engine.text.split import MEMORY_BYTES, count_documents
from engine.text.split_names import SPLITS


def cut_documents(domain: Path, length: int, folder: Path) -> Iterator[Progress]:
    """Writes a domain's documents into a folder, those of more than `length` characters in pieces.

    Every piece is in the split of its document and in its group, which is the document unless that has one.
    """
    total, done = sum(count_documents(domain, split) for split in SPLITS), 0
    for split in SPLITS:
        rows, seen = SortedRows(folder / "unsorted"), set[bytes]()
        for row in read_rows(domain / f"{split}.parquet"):
            for one in _pieces(row, length):
                if (key := bytes.fromhex(one["id"])) not in seen:
                    seen.add(key)
                    rows.add(one)
            if rows.waiting_bytes >= MEMORY_BYTES:
                rows.flush()
            done += 1
            if done % REPORT_EVERY == 0:
                yield Progress(done, total, "documents", "cutting long documents")
        with Table(folder / f"{split}.parquet") as table:
            for row in rows.read():
                table.add(row)
    yield Progress(total, total, "documents", "cutting long documents")


def ids_when_cut(domains: Sequence[Path], length: int) -> Ids:
    """The ids that the documents of domains have after they were cut, sorted, each once."""
    ids = {
        one["id"]
        for domain in domains
        for split in SPLITS
        for row in read_rows(domain / f"{split}.parquet")
        for one in _pieces(row, length)
    }
    ids_N: Ids = np.unique(as_ids(sorted(ids)))
    return ids_N


def _pieces(row: Row, length: int) -> Iterator[Row]:
    """A conversation stays as it is."""
    if len(row["text"]) <= length or "messages" in row:
        yield {name: row[name] for name in ("id", "text", "source", "group")}
        return
    for text in pieces(row["text"], length):
        if text:
            yield {"id": Document(text).id, "text": text, "source": row["source"], "group": row["group"] or row["id"]}
