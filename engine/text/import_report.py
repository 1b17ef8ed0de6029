"""What an import kept and what it left out, counted by reason, and in sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.errors import CorpusError

MAX_LISTED = 50  # refusals listed one by one; all are counted
_MAX_REASONS = 30  # counted one by one; a text that differs in each record is a reason of its own
_MAX_SHOWN, _MAX_DUPLICATES = 5, 10
_OTHERS = "other reasons"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record or file that was left out, and why."""

    path: str | None
    line: int | None
    reason: str


@dataclass(slots=True)
class ReadReport:
    """Counts of what was read and what was left out; updated while documents are read."""

    num_documents: int = 0
    num_bytes: int = 0  # of text, in UTF-8
    num_duplicates: int = 0
    num_empty: int = 0
    num_refused: int = 0  # records and files
    num_files_refused: int = 0  # of these, files that were left out unread
    refused: list[Refusal] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)  # why records were refused -> how many
    file_reasons: dict[str, int] = field(default_factory=dict)  # the same of files
    fields_not_read: dict[str, int] = field(default_factory=dict)  # next to conversations, with a value -> records
    notes: list[str] = field(default_factory=list)  # what was recognised or chosen while reading
    bytes_read: int = 0  # taken from disk, for a progress bar against size_on_disk
    anonymized: dict[str, int] = field(default_factory=dict)  # dummy tokens by category; empty without `anonymize`

    def refuse(self, fault: CorpusError, reasons: dict[str, int] | None = None) -> None:
        """Counts a fault by its reason, without what differs from record to record; lists it if there is space."""
        self.num_refused += 1
        if len(self.refused) < MAX_LISTED:
            path = None if fault.path is None else str(fault.path)
            self.refused.append(Refusal(path, fault.line, f"{fault.problem} {fault.next_step}".strip()))
        counts = self.reasons if reasons is None else reasons
        reason = re.sub(r" ?\([^()]*\)", "", fault.problem).rstrip(".").removeprefix("Not read: ")
        key = reason if reason in counts or len(counts) < _MAX_REASONS else _OTHERS
        counts[key] = counts.get(key, 0) + 1

    def count_duplicate(self, source: str) -> None:
        """Counts a document that was read before; the first of them are listed."""
        self.num_duplicates += 1
        if self.num_duplicates <= _MAX_DUPLICATES and len(self.refused) < MAX_LISTED:
            name, _, line = source.rpartition(":")
            is_line = line.isdecimal()
            reason = "It repeats a document before it."
            self.refused.append(Refusal(name if is_line else source, int(line) if is_line else None, reason))

    def count(self, size_bytes: int, dummies: Mapping[str, int]) -> None:
        """Counts an accepted document of this size, and the dummy tokens in it."""
        self.num_documents += 1
        self.num_bytes += size_bytes
        for category, number in dummies.items():
            self.anonymized[category] += number

    def note(self, sentence: str) -> None:
        """Adds a sentence, unless it stands there."""
        if sentence not in self.notes and len(self.notes) < MAX_LISTED:
            self.notes.append(sentence)

    @property
    def num_left_out(self) -> int:
        """Documents that were not kept; files that were not read do not count."""
        return self.num_duplicates + self.num_empty + self.num_refused - self.num_files_refused

    def kept_text(self) -> str:
        """How many documents of how many were kept, and what was left out by reason."""
        total = self.num_documents + self.num_left_out
        number = f"{self.num_documents:,} of {total:,}" if self.num_left_out else f"all {total:,}" if total > 1 else "1"
        parts = _parts(self.reasons, self.num_refused - self.num_files_refused)
        parts += [f"{self.num_duplicates:,} duplicate{'s' * (self.num_duplicates != 1)}"] if self.num_duplicates else []
        parts += [f"{self.num_empty:,} without text"] if self.num_empty else []
        left_out = f" Left out: {'; '.join(parts)}." if parts else ""
        files = _parts(self.file_reasons, self.num_files_refused)
        return f"Kept {number} document{'s' * (total != 1)}.{left_out}" + (
            f" Files left out: {'; '.join(files)}." if files else ""
        )

    def fields_text(self) -> str:
        """Which fields next to the conversations were not read."""
        if not self.fields_not_read:
            return ""
        names = [f"“{name}” ({number:,})" for name, number in list(self.fields_not_read.items())[:20]]
        return f"Not read, with the number of records: {', '.join(names)}."

    def with_reasons(self, error: CorpusError) -> CorpusError:
        """The same error of too little text, with what was left out before it and the first reason."""
        if not (self.num_left_out or self.num_files_refused):
            return error
        problem, remedy = f"{error.problem} {self.kept_text()}", error.next_step
        if first := next((refusal for refusal in self.refused if refusal.line), None):
            problem += f" The first one left out: {first.path}, line {first.line}: {first.reason}"
            remedy = ""
        return CorpusError(problem, remedy, path=error.path)


def _parts(counts: Mapping[str, int], total: int) -> list[str]:
    most = sorted(counts.items(), key=lambda item: -item[1])[:_MAX_SHOWN]
    parts = [f"{number:,} ({reason})" for reason, number in most]
    rest = total - sum(number for _, number in most)
    return parts + ([f"{rest:,} for other reasons"] if rest > 0 else [])
