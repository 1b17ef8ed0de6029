"""Streams checked documents out of files; a broken record is refused with its file, line and remedy."""

from __future__ import annotations

import errno
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from engine.errors import CorpusChangedError, CorpusError, NextStep
from engine.text.anonymize import TOKENS, anonymize
from engine.text.chat.conversations import (
    SHAPES,
    as_stored,
    as_text,
    conversation_of,
    holds_conversation,
    shape_of,
    stored_conversation,
)
from engine.text.dataset_source import DatasetSource
from engine.text.formats import read_records
from engine.text.import_report import ReadReport
from engine.text.plain_text import pieces
from engine.text.streams import Record, Records, TextFile, find_files, printable, require_encodable, valid_text

MAX_NAME = 80  # characters of a domain's name
_LOOK_AHEAD = 1000  # records in which further faults are counted, once an import is refused

Format = Literal["text", "chat"]


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its source. Its id is the hash of its text, so moving files changes nothing.

    A conversation also has its messages, as JSON: they are what it trains on and what its id is the hash of.
    """

    text: str
    domain: str | None = None
    group: str | None = None
    source: str = ""
    messages: str | None = None
    id: str = field(init=False)

    def __post_init__(self) -> None:
        content = self.text if self.messages is None else self.messages
        object.__setattr__(self, "id", hashlib.sha256(content.encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading a corpus: the fields, the limits, skipping of broken records, anonymisation."""

    text_field: str = "text"
    domain_field: str = ""
    group_field: str = ""
    max_bytes: int | None = None
    skip_bad: bool = False
    anonymize: bool = False
    piece_length: int | None = None  # characters; of texts only
    format: Format = "text"
    leave_out: tuple[str, ...] = ()  # fields of conversations that are not read
    split: str = "train"  # of a folder whose files belong to splits

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields a record must have, the text field first; those of a conversation are `either`."""
        text_field = "" if self.format == "chat" else self.text_field
        return tuple(dict.fromkeys(name for name in (text_field, self.domain_field, self.group_field) if name))

    @property
    def either(self) -> tuple[tuple[str, ...], ...]:
        """The sets of fields; a record must have all fields of one."""
        return SHAPES if self.format == "chat" else ()


def read_documents(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """Yields the documents of a file or of all files below a folder.

    The first fault raises CorpusError(path=, line=); with `skip_bad` faults go to the report.
    """
    yield from admit(_documents(path, options, report), options, report, path)


def read_dataset(source: DatasetSource, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """Streams the documents of a split of a Hugging Face data set."""
    name = printable(source.name)
    to_document = _DocumentReader(options, name, report)
    rows = (to_document(Record(row, values)) for row, values in enumerate(source.rows(), 1))
    yield from admit(rows, options, report, name)


def admit(
    items: Iterable[Document | CorpusError], options: ReadOptions, report: ReadReport, path: Path | str | None = None
) -> Iterator[Document]:
    """Yields new, non-empty documents until they have `max_bytes`; the report counts the others.

    With `piece_length` long documents are cut. With `anonymize` dummy tokens are put in before documents are
    compared: texts of two users may be equal afterwards.
    """
    seen: set[bytes] = set()
    items = iter(items if options.piece_length is None else _in_pieces(items, options.piece_length))
    report.anonymized = dict.fromkeys(TOKENS, 0) if options.anonymize else {}
    for item in items:
        if isinstance(item, CorpusError):
            if not options.skip_bad:
                raise _with_others(item, items)
            report.refuse(item)
            continue
        document, dummies = _anonymous(item) if options.anonymize else (item, {})
        if not document.text.strip():
            report.num_empty += 1
        elif (key := bytes.fromhex(document.id[:32])) in seen:
            report.count_duplicate(document.source)
        else:
            seen.add(key)
            report.count(len(document.text.encode()), dummies)
            yield document
            if options.max_bytes is not None and report.num_bytes >= options.max_bytes:
                report.note(f"Reading stopped after {report.num_bytes:,} bytes of text, as requested.")
                return
    if not report.num_documents:
        remedy = "Check that the files are not empty and of a known kind (txt, jsonl, csv, parquet)."
        raise report.with_reasons(CorpusError("The corpus has no documents.", remedy, path=path))


def _with_others(fault: CorpusError, items: Iterator[Document | CorpusError]) -> CorpusError:
    """The first fault, with the lines and causes of others in the records that follow."""
    others, num_read = ReadReport(), 0
    try:
        for item in islice(items, _LOOK_AHEAD):
            num_read += 1
            if isinstance(item, CorpusError):
                others.refuse(item)
    except CorpusChangedError:
        raise
    except CorpusError as end:
        others.refuse(end)
    if not others.num_refused:
        return fault
    first = [one for one in others.refused if one.line][:4]
    listed = "; ".join(f"line {one.line}: {one.reason.partition('. ')[0].rstrip('.')}" for one in first)
    more = f"Of the next {num_read:,} records {others.num_refused:,} more cannot be read"
    problem = f"{fault.problem} {more}{listed and f' ({listed})'}."
    return CorpusError(problem, fault.next_step, path=fault.path, line=fault.line)


def _in_pieces(items: Iterable[Document | CorpusError], length: int) -> Iterator[Document | CorpusError]:
    """Cuts documents of more than `length` characters at the ends of lines, else of words.

    The pieces of a document stay in one split: they form a group, unless the document has one.
    """
    for item in items:
        if isinstance(item, CorpusError) or len(item.text) <= length:
            yield item
        else:
            for text in pieces(item.text, length):
                yield Document(text, item.domain, item.group or item.id, item.source)


def _anonymous(document: Document) -> tuple[Document, dict[str, int]]:
    """A conversation is anonymized text by text: JSON escapes would hide what stands at the start of a line."""
    if document.messages is None:
        text, dummies = anonymize(document.text)
        return (replace(document, text=text) if dummies else document), dummies
    conversation, total = stored_conversation(document.messages), Counter[str]()
    messages, kwargs = conversation.messages, conversation.template_kwargs
    texts: list[tuple[dict[str, Any], str]] = [(message, "content") for message in messages]
    for holder, name in texts + [(kwargs, name) for name in kwargs if isinstance(kwargs[name], str)]:
        holder[name], dummies = anonymize(holder[name])
        total.update(dummies)
    return replace(document, text=as_text(messages), messages=as_stored(messages, kwargs)), total


def _documents(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[Document | CorpusError]:
    done = 0
    for file in find_files(path, options.split):
        if isinstance(file, CorpusError):
            report.num_files_refused += 1
            report.refuse(file, report.file_reasons)
            continue
        to_document = _DocumentReader(options, file.name, report, is_plain=file.kind == "text")
        for record in _records(file, options, report, done):
            yield record if isinstance(record, CorpusError) else to_document(record)
        done += file.size_bytes
        report.bytes_read = done


def _records(file: TextFile, options: ReadOptions, report: ReadReport, start: int) -> Records:
    """The records of a file; a fault that ends it early is the last item."""

    def count_bytes(num_bytes: int) -> None:
        report.bytes_read = start + num_bytes

    try:
        yield from read_records(file, options.fields, count_bytes, options.either, report.note)
    except CorpusChangedError:
        raise  # the rest of the file would be of another moment
    except CorpusError as fault:
        yield fault
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise  # not a fault of the file
        problem = f"The file cannot be read ({error.strerror or error})."
        yield CorpusError(problem, "Check its permissions.", path=file.name)


class _DocumentReader:
    """Makes documents of the records of one file; conversations of one file all have the first one's shape."""

    def __init__(self, options: ReadOptions, name: str, report: ReadReport, *, is_plain: bool = False) -> None:
        self._options, self._name, self._report = options, name, report
        self._is_plain = is_plain  # pieces of a text, which may be blank, and no fields
        self._shape: tuple[str, ...] | None = None

    def __call__(self, record: Record) -> Document | CorpusError:
        options = self._options
        try:
            text, messages = self._content(record.values)
            domain = label_of(record.values, options.domain_field, NextStep.NAME_DOMAIN_FIELD)
            group = label_of(record.values, options.group_field, NextStep.NAME_GROUP_FIELD)
            if domain is not None and not (0 < len(domain) <= MAX_NAME and domain.isprintable()):
                allowed = f"use 1 to {MAX_NAME} printable characters"
                raise CorpusError(f"The domain name “{printable(domain[:MAX_NAME])}” is not allowed: {allowed}.")
        except CorpusError as fault:
            remedy = fault.next_step or "Fix or remove the record."
            return CorpusError(fault.problem + record.position, remedy, path=self._name, line=record.line)
        return Document(text, domain, group, f"{self._name}:{record.line}", messages)

    def _content(self, values: Mapping[str, Any]) -> tuple[str, str | None]:
        if self._options.format == "text":
            if self._options.text_field not in values and "messages" in values:
                raise CorpusError("The record is a conversation.", NextStep.IMPORT_AS_CHAT)
            text = checked_text(values, self._options.text_field, NextStep.NAME_TEXT_FIELD)
            if not (text.strip() or self._is_plain):
                raise CorpusError(f"The field “{self._options.text_field}” is empty.", "Fill or remove it.")
            if holds_conversation(text):
                problem = f"The field “{self._options.text_field}” holds a conversation as JSON, not text."
                raise CorpusError(problem, "Name the field messages, and import it in the format chat.")
            return text, None
        shape = shape_of(values)
        if self._shape not in (None, shape):
            before, now = (" and ".join(f"“{name}”" for name in names) for names in (self._shape or (), shape))
            problem = f"The record has {now}, the records before it {before}."
            raise CorpusError(problem, "Put different shapes into different files.")
        others = (self._options.domain_field, self._options.group_field)
        conversation = conversation_of(values, shape, others, self._options.leave_out)
        self._shape = shape
        counts = self._report.fields_not_read
        counts.update({name: counts.get(name, 0) + 1 for name in conversation.not_read})
        return as_text(conversation.messages), as_stored(conversation.messages, conversation.template_kwargs)


def checked_text(values: Mapping[str, Any], name: str, missing: str = "") -> str:
    """The text in a record's field; raises CorpusError when it is not valid text.

    `missing` is the next step where the field is missing.
    """
    text = _value(values, name, missing)
    if not isinstance(text, str):
        raise CorpusError(f"The field “{name}” must be text, got {_kind(text)}.")
    return valid_text(text)


def label_of(values: Mapping[str, Any], name: str, missing: str = "") -> str | None:
    """The label in a record's field, None without a field; raises CorpusError when it is not text or a number."""
    if not name:
        return None
    value = _value(values, name, missing)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise CorpusError(f"The field “{name}” must be text or a whole number, got {_kind(value)}.")
    label = str(value).strip()
    require_encodable(label)
    return label


def _value(values: Mapping[str, Any], name: str, missing: str) -> Any:
    if name in values:
        return values[name]
    fields = ", ".join(f"“{printable(str(key)[:40])}”" for key in list(values)[:12]) or "no fields"
    raise CorpusError(f"The record has no field “{name}”; it has {fields}.", missing or f"Rename the field to {name}.")


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
