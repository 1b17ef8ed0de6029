"""Reads labelled examples, one folder for each task.

A task's folder has `train`, `test` and optionally `validation`: jsonl, csv, tsv or parquet, plain or compressed,
with the fields `text` and `label`. An optional `task.json` sets the `template` of a demonstration, and the `words`
for the labels: {"template": "{text}\\nMood: {label}", "words": {"0": "bad", "1": "good"}}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import CorpusError
from engine.text.corpus import checked_text, label_of
from engine.text.formats import read_records
from engine.text.streams import Record, TextFile, find_files, names_of, printable

TEMPLATE = "Text: {text}\nLabel: {label}"  # ours: the paper prints none
MAX_EXAMPLES = 200_000  # of one file: they are held in memory
MAX_LABELS = 1000
_TEXT, _LABEL, _CARD = "{text}", "{label}", "task.json"
_PARTS = ("train", "test", "validation")
_LAYOUT = "Give a folder with train.jsonl and test.jsonl for each task, with the fields text and label."


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """A text and the index of its label."""

    text: str
    label: int


@dataclass(frozen=True)
class Task:
    """Labelled examples; `label_words` replace the `labels` in prompts."""

    name: str
    labels: tuple[str, ...]
    label_words: tuple[str, ...]
    template: str
    train: tuple[LabelledExample, ...]
    test: tuple[LabelledExample, ...]
    validation: tuple[LabelledExample, ...] = ()  # none: the task has no such file

    def question(self, text: str) -> str:
        """The prompt text of an example before its label, without trailing white space."""
        return self.template.removesuffix(_LABEL).replace(_TEXT, text).rstrip()

    @property
    def lead(self) -> str:
        """The white space between a question and the word of its label."""
        before = self.template.removesuffix(_LABEL)
        return before[len(before.rstrip()) :]

    def demonstration(self, example: LabelledExample) -> str:
        """A demonstration: question and answer."""
        return f"{self.question(example.text)}{self.lead}{self.label_words[example.label]}"


def read_tasks(path: Path) -> list[Task]:
    """All tasks of a folder in the order of their names: one for each subfolder, or the folder itself.

    Raises CorpusError with file and line for the first fault.
    """
    if not path.is_dir():
        raise CorpusError("There is no folder at this path.", _LAYOUT, path=printable(str(path)))
    folders: dict[Path, dict[str, TextFile]] = {}
    for file, part in _parts(path):
        parts = folders.setdefault(file.path.parent, {})
        if part in parts:
            problem = f"The task has a second file of {part} examples: {parts[part].name}."
            raise CorpusError(problem, "Remove one of them.", path=file.name)
        parts[part] = file
    if not folders:
        raise CorpusError("The folder has no tasks.", _LAYOUT, path=printable(path.name))
    names = {folder: path.name if folder == path else folder.relative_to(path).as_posix() for folder in folders}
    return [_read_task(folder, parts, printable(names[folder])) for folder, parts in sorted(folders.items())]


def _parts(path: Path) -> Iterator[tuple[TextFile, str]]:
    """The files of tasks, each with its part; other files are skipped."""
    for file in find_files(path, "all"):
        name = file.path if isinstance(file, CorpusError) else file.name
        part = Path(str(name)).name.partition(".")[0]
        if part not in _PARTS:
            continue
        if isinstance(file, CorpusError):
            raise file
        yield file, part


def _read_task(folder: Path, parts: Mapping[str, TextFile], name: str) -> Task:
    for part in ("train", "test"):
        if part not in parts:
            raise CorpusError(f"The task has no file of {part} examples.", _LAYOUT, path=name)
    template, words = _read_card(folder / _CARD, name)
    pairs_by_part = {part: list(_read_examples(file)) for part, file in parts.items()}
    labels = sorted({label for pairs in pairs_by_part.values() for _, label in pairs} | set(words))
    _refuse_labels(labels, words, name)
    number = {label: place for place, label in enumerate(labels)}
    examples = {
        part: tuple(LabelledExample(text, number[label]) for text, label in pairs_by_part.get(part, ()))
        for part in _PARTS
    }
    return Task(name, tuple(labels), tuple(words.get(label, label) for label in labels), template, **examples)


def _refuse_labels(labels: list[str], words: Mapping[str, str], name: str) -> None:
    if not 2 <= len(labels) <= MAX_LABELS:
        problem = f"The task has {len(labels)} labels ({names_of(labels)}); 2 to {MAX_LABELS} are supported."
        raise CorpusError(problem, "Check the field label.", path=name)
    if words and (missing := [label for label in labels if label not in words]):
        raise CorpusError(
            f"{_CARD} has no word for the label {names_of(missing)}.", "Add one for every label.", path=name
        )


def _read_examples(file: TextFile) -> Iterator[tuple[str, str]]:
    """Text and label of every record; raises CorpusError for the first invalid one."""
    count = 0
    for record in read_records(file, ("text", "label")):
        if isinstance(record, CorpusError):
            raise record
        count += 1
        if count > MAX_EXAMPLES:
            problem = f"The file has more than {MAX_EXAMPLES:,} examples."
            raise CorpusError(problem, "Take a sample of them.", path=file.name, line=record.line)
        yield _example(record, file.name)
    if not count:
        raise CorpusError("The file has no labelled examples.", _LAYOUT, path=file.name)


def _example(record: Record, name: str) -> tuple[str, str]:
    try:
        text, label = checked_text(record.values, "text"), label_of(record.values, "label") or ""
        if not text.strip():
            raise CorpusError("The text of the example is empty.")
        if not label.isprintable() or not label:
            raise CorpusError("The label is empty or not printable.")
    except CorpusError as fault:
        remedy = fault.next_step or "Fix or remove the record."
        raise CorpusError(fault.problem, remedy, path=name, line=record.line) from None
    return text.strip(), label


def _read_card(file: Path, name: str) -> tuple[str, dict[str, str]]:
    """Template and words of a task; the default template and no words without a card."""
    path = f"{name}/{_CARD}"
    if file.is_symlink():
        raise CorpusError("The card is a link; links are not followed.", "Copy it.", path=path)
    if not file.exists():
        return TEMPLATE, {}
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
        json.dumps(card, ensure_ascii=False).encode()  # raises for an unpaired surrogate
    except (OSError, ValueError, RecursionError) as error:
        raise CorpusError(f"The card cannot be read as JSON ({error}).", "Fix the file.", path=path) from None
    if not isinstance(card, dict) or (unknown := sorted(set(card) - {"template", "words"})):
        content = names_of(unknown) if isinstance(card, dict) else type(card).__name__
        raise CorpusError(f"The card may have only template and words, but has {content}.", "Fix the file.", path=path)
    template, words = card.get("template", TEMPLATE), card.get("words", {})
    if not isinstance(template, str) or not (
        template.count(_TEXT) == template.count(_LABEL) == 1 and template.endswith(_LABEL)
    ):
        problem = f"The template must have {_TEXT} once and end with {_LABEL}."
        raise CorpusError(problem, f"Write it like this: {json.dumps(TEMPLATE)}.", path=path)
    return template, _words(words, path)


def _words(words: Any, path: str) -> dict[str, str]:
    is_right = isinstance(words, dict) and all(isinstance(word, str) and word.strip() for word in words.values())
    if not is_right:
        problem = "The words must be an object that maps labels to words."
        raise CorpusError(problem, 'Write them like this: {"0": "bad", "1": "good"}.', path=path)
    return {str(label).strip(): word.strip() for label, word in words.items()}
