"""Documents out of files, streamed and checked; what is broken is refused with its file, line and remedy."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.errors import CorpusError, NextStep
from engine.text.anonymize import TOKENS, anonymize
from engine.text.chunking import pieces
from engine.text.formats import read_records
from engine.text.records import Found, Record
from engine.text.streams import TextFile, find_files, printable

MAX_LISTED = 50  # refusals listed one by one; all are counted
MAX_NAME = 80  # characters of a domain's name


@dataclass(frozen=True, slots=True)
class Document:
    """A text and where it came from. Its id is that of its content, so moving files changes nothing."""

    text: str
    domain: str | None = None
    group: str | None = None
    source: str = ""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", hashlib.sha256(self.text.encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which fields to read, how much, whether one broken record refuses all, and whether to anonymise."""

    text_field: str = "text"
    domain_field: str = ""
    group_field: str = ""
    max_bytes: int | None = None
    skip_bad: bool = False
    anonymize: bool = False
    piece_length: int | None = None  # characters

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields a record must have, that of the text first."""
        return tuple(dict.fromkeys(name for name in (self.text_field, self.domain_field, self.group_field) if name))


@dataclass(slots=True)
class Report:
    """What was read and what was left out; grows while documents are read."""

    num_documents: int = 0
    num_bytes: int = 0  # of text, in UTF-8
    num_duplicates: int = 0
    num_empty: int = 0
    num_refused: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)
    bytes_read: int = 0  # taken from disk, for a progress bar against size_on_disk
    anonymized: dict[str, int] = field(default_factory=dict)  # dummy tokens by category; empty: nobody asked for them

    def refuse(self, fault: CorpusError) -> None:
        """Counts a fault and lists it, if the list is not full."""
        self.num_refused += 1
        if len(self.refused) < MAX_LISTED:
            path = None if fault.path is None else str(fault.path)
            self.refused.append(
                {"path": path, "line": fault.line, "reason": f"{fault.problem} {fault.next_step}".strip()}
            )

    def keep(self, document: Document, dummies: Mapping[str, int]) -> None:
        """Counts a document that is kept, and the dummy tokens that went into it."""
        self.num_documents += 1
        self.num_bytes += len(document.text.encode())
        for category, number in dummies.items():
            self.anonymized[category] += number

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return asdict(self)


def read_documents(path: Path, options: ReadOptions, report: Report) -> Iterator[Document]:
    """Documents of a file or of all files below a folder, one by one.

    Strict: the first fault raises CorpusError(path=, line=); with `skip_bad` faults go to the report.
    """
    yield from admit(_documents(path, options, report), options, report, path)


def read_dataset(name: str, options: ReadOptions, report: Report) -> Iterator[Document]:
    """Documents of a Hugging Face data set's training split, streamed; `name` is NAME or NAME:CONFIG."""
    rows = (
        _document(Record(row, values), options, printable(name)) for row, values in enumerate(_dataset_rows(name), 1)
    )
    yield from admit(rows, options, report)


def admit(
    found: Iterable[Document | CorpusError], options: ReadOptions, report: Report, path: Path | None = None
) -> Iterator[Document]:
    """The documents that are new and not empty, until they have `max_bytes`; the report counts the others.

    Long ones come in pieces, if asked for. With `anonymize` they hold dummy tokens before they are compared: two texts
    of two users may be one afterwards.
    """
    seen: set[bytes] = set()
    if options.piece_length is not None:
        found = _in_pieces(found, options.piece_length)
    report.anonymized = dict.fromkeys(TOKENS, 0) if options.anonymize else {}
    for item in found:
        if isinstance(item, CorpusError):
            if not options.skip_bad:
                raise item
            report.refuse(item)
            continue
        document, dummies = _anonymous(item) if options.anonymize else (item, {})
        if not document.text.strip():
            report.num_empty += 1
        elif (key := bytes.fromhex(document.id[:32])) in seen:
            report.num_duplicates += 1
        else:
            seen.add(key)
            report.keep(document, dummies)
            yield document
            if options.max_bytes is not None and report.num_bytes >= options.max_bytes:
                return
    if not report.num_documents:
        raise _nothing(report, path)


def _in_pieces(found: Iterable[Document | CorpusError], length: int) -> Iterator[Document | CorpusError]:
    """Documents of at most so many characters: longer ones are cut at the ends of lines, else of words.

    The pieces of a document stay in one split: they are a group, unless it has one.
    """
    for item in found:
        if isinstance(item, CorpusError) or len(item.text) <= length:
            yield item
        else:
            for text in pieces(item.text, length):
                yield Document(text, item.domain, item.group or item.id, item.source)


def _anonymous(document: Document) -> tuple[Document, dict[str, int]]:
    text, dummies = anonymize(document.text)
    return (replace(document, text=text) if dummies else document), dummies


def _nothing(report: Report, path: Path | None) -> CorpusError:
    first = report.refused[0] if report.refused else {"path": None, "reason": ""}
    why = f" Left out first: {first['path']}: {first['reason']}" if report.refused else ""
    return CorpusError(
        "The corpus must hold at least one document, but holds none.",
        f"Check that the files are not empty and of a known kind (txt, jsonl, csv, parquet).{why}",
        path=path,
    )


def _documents(path: Path, options: ReadOptions, report: Report) -> Iterator[Document | CorpusError]:
    done = 0
    for file in find_files(path):
        if isinstance(file, CorpusError):
            report.refuse(file)
            continue
        for record in _records(file, options, report, done):
            yield record if isinstance(record, CorpusError) else _document(record, options, file.name)
        done += file.size_bytes
        report.bytes_read = done


def _records(file: TextFile, options: ReadOptions, report: Report, start: int) -> Found:
    """The records of a file; what ends it early is its last item."""

    def seen(num_bytes: int) -> None:
        report.bytes_read = start + num_bytes

    try:
        yield from read_records(file, options.fields, seen)
    except CorpusError as fault:
        yield fault
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise  # no fault of the file
        problem = f"The file must be readable, but is not ({error.strerror or error})."
        yield CorpusError(problem, "Check its permissions.", path=file.name)


def _document(record: Record, options: ReadOptions, name: str) -> Document | CorpusError:
    try:
        text = checked_text(record.values, options.text_field, NextStep.NAME_TEXT_FIELD)
        domain = label_of(record.values, options.domain_field, NextStep.NAME_DOMAIN_FIELD)
        group = label_of(record.values, options.group_field, NextStep.NAME_GROUP_FIELD)
        if domain is not None and not (0 < len(domain) <= MAX_NAME and domain.isprintable()):
            shown = printable(domain[:MAX_NAME])
            raise CorpusError(
                f"A domain's name must have 1 to {MAX_NAME} printable characters, but is “{shown}” instead."
            )
    except CorpusError as fault:
        remedy = fault.next_step or "Mend or remove the record."
        return CorpusError(fault.problem, remedy, path=name, line=record.line)
    return Document(text, domain, group, f"{name}:{record.line}")


def checked_text(values: Mapping[str, Any], name: str, missing: str = "") -> str:
    """The text in a record's field; raises CorpusError when it is none, or no Unicode.

    `missing` is the next step where there is no such field.
    """
    text = _value(values, name, missing)
    if not isinstance(text, str):
        raise CorpusError(f"The field “{name}” must be text, but is {_kind(text)} instead.")
    if "\0" in text:
        raise CorpusError("The text must hold no NUL characters, but does.")
    _require_encodable(text)
    return text


def label_of(values: Mapping[str, Any], name: str, missing: str = "") -> str | None:
    """The label in a record's field, None for no field's name; raises CorpusError when it is not text or a number."""
    if not name:
        return None
    value = _value(values, name, missing)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise CorpusError(f"The field “{name}” must be text or a whole number, but is {_kind(value)} instead.")
    label = str(value).strip()
    _require_encodable(label)
    return label


def _value(values: Mapping[str, Any], name: str, missing: str) -> Any:
    if name in values:
        return values[name]
    there = ", ".join(f"“{printable(str(key)[:40])}”" for key in list(values)[:12]) or "no field"
    raise CorpusError(
        f"The record must have a field “{name}”, but has {there} instead.", missing or f"Call the field {name}."
    )


def _require_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        sign = f"\\u{ord(text[error.start]):04x}"
        raise CorpusError(f"The text must be Unicode, but holds half a character ({sign}).") from None


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _dataset_rows(name: str) -> Iterator[dict[str, Any]]:
    try:
        from datasets import exceptions, load_dataset, packaged_modules
    except ImportError:
        problem = "The library “datasets” must be installed to read data sets, but is not."
        raise CorpusError(problem, "Run: pip install 'expert-workbench[hub]'.") from None
    place, _, config = name.partition(":")
    if place in packaged_modules._PACKAGED_DATASETS_MODULES:  # given alone, it reads all files of the current folder
        problem = f"The data set must be named, but “{place}” is a kind of file instead."
        raise CorpusError(problem, "Give the path of the files.")
    try:
        yield from load_dataset(place, config or None, split="train", streaming=True)
    except (OSError, ValueError, RuntimeError, exceptions.DatasetsError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        problem = f"The data set “{printable(name)}” must be readable, but is not ({reason})."
        raise CorpusError(problem, "Check its name, its configuration and the network.") from None
