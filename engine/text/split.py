"""Stores documents as train, dev and test tables, one folder per domain, in the order of their ids.

A document's split is decided by the hash of its group (or of its id), so it does not change when the corpus grows.
Only when a domain is so small that a split would be empty do the groups next to a border move over it; they may move
back when text is added. Names and order of the source files change nothing but `source`.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import CorpusError
from engine.events import Progress
from engine.text.corpus import Document
from engine.text.parquet_rows import CHAT_SCHEMA, SCHEMA, Row, SortedRows, Table, num_rows, read_rows
from engine.text.split_names import HELD_OUT_FIRST, HELD_OUT_SPLITS, SPLITS, Split

TEST_SHARE = 0.05
DEV_SHARE = 0.05
MAX_DOMAINS = 200  # with more, the field names records rather than domains
MEMORY_BYTES = 64 << 20  # of memory for rows that wait to be sorted
REPORT_BYTES = 1 << 20  # text between two events

SplitOf = Callable[[str], Split]  # the split of a document by its id


def store_documents(
    documents: Iterable[Document],
    folder: Path,
    *,
    total_bytes: int | None = None,
    done_bytes: Callable[[], int] | None = None,
    split_of: SplitOf | None = None,
) -> Iterator[Progress]:
    """Writes folder/N/{train,dev,test}.parquet for each domain N and folder/summary.json.

    A domain holds texts or conversations, never both: CorpusError.

    With `split_of` documents stay in their present split, and held-out text stays held out; a split that would be
    empty gets training documents.

    Yields progress in bytes: `done_bytes()` of `total_bytes`, or else the text stored so far.
    Raises CorpusError without a document, or when a domain has fewer than three groups.
    """
    domains: dict[str | None, _DomainWriter] = {}
    num_bytes = waiting = reported = 0
    for document in documents:
        if document.domain not in domains:
            if len(domains) == MAX_DOMAINS:
                problem = f"The domain field has more than {MAX_DOMAINS} values."
                raise CorpusError(problem, "Choose a field whose values many records share.")
            unsorted, is_chat = folder / f"unsorted{len(domains)}", document.messages is not None
            domains[document.domain] = _DomainWriter(document.domain, unsorted, split_of, is_chat)
        domain = domains[document.domain]
        waiting -= domain.rows.waiting_bytes
        num_bytes += domain.add(document)
        waiting += domain.rows.waiting_bytes
        if waiting >= MEMORY_BYTES:
            waiting -= max((domain.rows for domain in domains.values()), key=lambda rows: rows.waiting_bytes).flush()
        if num_bytes - reported >= REPORT_BYTES:
            reported = num_bytes
            yield Progress(done_bytes() if done_bytes else num_bytes, total_bytes, "bytes", "reading")
    yield from _write_domains(sorted(domains.values(), key=lambda domain: domain.name or ""), folder, num_bytes)


def read_split(domain_folder: Path, split: Split) -> Iterator[Row]:
    """The rows of a split: id, text, source, group; of a domain of conversations also messages."""
    if split not in SPLITS:
        raise CorpusError(f"There is no split “{split}”.", f"Choose one of {', '.join(SPLITS)}.")
    yield from read_rows(domain_folder / f"{split}.parquet")


def count_documents(domain_folder: Path, split: str) -> int:
    """The number of documents in a split, without reading them."""
    return num_rows(domain_folder / f"{split}.parquet")


def place_of(group: str) -> float:
    """The position of a group between 0 and 1: test comes first, then dev, then train."""
    digest = hashlib.sha256(f"split\0{group}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48  # a float holds 48 bits exactly, so 1 is never reached


def _write_domains(domains: list[_DomainWriter], folder: Path, num_bytes: int) -> Iterator[Progress]:
    if not domains:
        raise CorpusError("The corpus has no documents.", "Add text.")
    summaries = []
    done = 0
    for number, domain in enumerate(domains):
        for size in domain.write(folder / str(number)):
            done += size
            yield Progress(done, num_bytes, "bytes", "sorting into train, dev and test")
        summaries.append(domain.summary)
    (folder / "summary.json").write_text(json.dumps({"domains": summaries}, indent=1), encoding="utf-8")


class _DomainWriter:
    """A domain that is being written."""

    def __init__(self, name: str | None, unsorted: Path, split_of: SplitOf | None, is_chat: bool) -> None:
        self.name = name
        self.is_chat = is_chat
        self.schema = CHAT_SCHEMA if is_chat else SCHEMA
        self.rows = SortedRows(unsorted, self.schema)
        self.summary: dict[str, Any] = {}
        self._split_of = split_of
        self._places = {split: array("d") for split in SPLITS}  # of each document; all in train without split_of

    def add(self, document: Document) -> int:
        """Adds a document; returns the bytes of its text."""
        if (document.messages is not None) != self.is_chat:
            problem = f"{self._title} would hold both texts and conversations."
            raise CorpusError(problem, "Make one domain of each: only answers count.")
        fields = {"id": document.id, "text": document.text, "source": document.source, "group": document.group}
        fields |= {"messages": document.messages} if self.is_chat else {}
        self._places[self._split_of(document.id) if self._split_of else "train"].append(_place(fields))
        return self.rows.add(fields)

    def write(self, folder: Path) -> Iterator[int]:
        """Writes the three tables and sets the summary; yields the bytes of text written."""
        split_of = self._splitter()
        folder.mkdir()
        counts: dict[str, dict[str, int]] = {split: {"documents": 0, "words": 0, "bytes": 0} for split in SPLITS}
        ids = hashlib.sha256()
        pending = 0
        with ExitStack() as stack:
            tables = {split: stack.enter_context(Table(folder / f"{split}.parquet", self.schema)) for split in SPLITS}
            for row in self.rows.read():
                ids.update(row["id"].encode())
                split = split_of(row)
                size, count = tables[split].add(row), counts[split]
                count["documents"] += 1
                count["words"] += len(row["text"].split())
                count["bytes"] += size
                pending += size
                if pending >= REPORT_BYTES:
                    yield pending
                    pending = 0
        units = ("documents", "words", "bytes")
        total = {f"num_{unit}": sum(count[unit] for count in counts.values()) for unit in units}
        about = {"name": self.name, "folder": folder.name, **total, "splits": counts}
        self.summary = {**about, "data_sha256": ids.hexdigest()}
        if self.is_chat:
            self.summary["format"] = "chat"
        yield pending

    def _splitter(self) -> Callable[[Row], Split]:
        given = self._split_of
        if given is None:
            borders = self._borders()
            return lambda row: HELD_OUT_FIRST[bisect_right(borders, _place(row))]
        moved = self._splits_of_moved_groups()
        return lambda row: moved.get(_place(row), split) if (split := given(row["id"])) == "train" else split

    def _splits_of_moved_groups(self) -> dict[float, Split]:
        """The groups of training documents that fill a split which would be empty."""
        empty = [split for split in HELD_OUT_SPLITS if not self._places[split]]
        groups = np.unique(self._places["train"])
        if len(groups) <= len(empty):
            raise CorpusError(
                f"{self._title} has {len(groups)} groups of training documents; training and testing need more than "
                f"{len(empty)}.",
                "Make the domain larger, or choose fewer parts.",
            )
        return dict(zip(groups[: len(empty)].tolist(), empty, strict=True))

    @property
    def _title(self) -> str:
        return "This domain" if self.name is None else f"“{self.name}”"

    def _borders(self) -> tuple[float, float]:
        """The two borders: groups below the first are test, below the second dev. Each split gets at least one group.

        In a domain too small for that, the groups next to a border move over it.
        """
        places = np.unique(self._places["train"])
        if len(places) < 3:
            raise CorpusError(
                f"{self._title} has too few different documents, or groups if a group field is given: {len(places)}; "
                "a domain needs at least 3.",
                "Add text (repeated text counts once), or choose a group field with more values; the pieces of a "
                "document count as one.",
            )
        num_test = int(np.count_nonzero(places < TEST_SHARE))
        num_held_out = int(np.count_nonzero(places < TEST_SHARE + DEV_SHARE))
        num_test = min(max(num_test, 1), len(places) - 2)
        num_held_out = min(max(num_held_out, num_test + 1), len(places) - 1)
        return float(places[num_test]), float(places[num_held_out])


def _place(row: Row) -> float:
    return place_of(row["id"] if row["group"] is None else row["group"])
