"""Labelled examples in folders: one folder for each task.

A task's folder holds `train` and `test`, and `validation` where there is one: jsonl, csv, tsv or parquet, plain or
packed, with the fields `text` and `label`. A `task.json` beside them may name the `template` of a demonstration, and
the `words` that stand for the labels: {"template": "{text}\\nMood: {label}", "words": {"0": "bad", "1": "good"}}.
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
from engine.text.records import Record, names_of
from engine.text.streams import TextFile, find_files, printable

TEMPLATE = "Text: {text}\nLabel: {label}"  # ours: the paper prints none
MAX_EXAMPLES = 200_000  # of one file: they are held in memory
MAX_LABELS = 1000
_TEXT, _LABEL, _CARD = "{text}", "{label}", "task.json"
_PARTS = ("train", "test", "validation")
_LAYOUT = "Give a folder with train.jsonl and test.jsonl for each task, with the fields text and label."


@dataclass(frozen=True, slots=True)
class Example:
    """A text, and the number of its label among those of its task."""

    text: str
    label: int


@dataclass(frozen=True)
class Task:
    """Labelled examples; `words` are what a model reads and says in the place of each of the `labels`."""

    name: str
    labels: tuple[str, ...]
    words: tuple[str, ...]
    template: str
    train: tuple[Example, ...]
    test: tuple[Example, ...]
    validation: tuple[Example, ...] = ()  # none: the task has no such file

    def question(self, text: str) -> str:
        """What a model reads of an example before it says the label, without white space at the end."""
        return self.template.removesuffix(_LABEL).replace(_TEXT, text).rstrip()

    @property
    def lead(self) -> str:
        """The white space between a question and the word of its label."""
        before = self.template.removesuffix(_LABEL)
        return before[len(before.rstrip()) :]

    def answered(self, example: Example) -> str:
        """A demonstration: question and answer."""
        return f"{self.question(example.text)}{self.lead}{self.words[example.label]}"


def read_tasks(path: Path) -> list[Task]:
    """All tasks of a folder, by name: those of the folders in it, or that of the folder itself.

    Raises CorpusError with file and line for the first fault: nothing is left out silently.
    """
    if not path.is_dir():
        raise CorpusError("Tasks must lie in a folder, but there is none here.", _LAYOUT, path=printable(str(path)))
    folders: dict[Path, dict[str, TextFile]] = {}
    for file, part in _parts(path):
        parts = folders.setdefault(file.path.parent, {})
        if part in parts:
            problem = f"A task must have one file of {part} examples, but has {parts[part].name}, too."
            raise CorpusError(problem, "Leave one of them.", path=file.name)
        parts[part] = file
    if not folders:
        raise CorpusError("The folder must hold tasks, but holds none.", _LAYOUT, path=printable(path.name))
    return [_read_task(folder, parts, _task_name(folder, path)) for folder, parts in sorted(folders.items())]


def _parts(path: Path) -> Iterator[tuple[TextFile, str]]:
    """The files of tasks, each with the part that its name says; other files are not ours."""
    for found in find_files(path):
        name = found.path if isinstance(found, CorpusError) else found.name
        part = Path(str(name)).name.partition(".")[0]
        if part not in _PARTS:
            continue
        if isinstance(found, CorpusError):
            raise found
        yield found, part


def _task_name(folder: Path, root: Path) -> str:
    return printable(root.name if folder == root else folder.relative_to(root).as_posix())


def _read_task(folder: Path, parts: Mapping[str, TextFile], name: str) -> Task:
    for part in ("train", "test"):
        if part not in parts:
            raise CorpusError(f"A task must have {part} examples, but this one has no such file.", _LAYOUT, path=name)
    template, words = _read_card(folder / _CARD, name)
    found = {part: list(_read_examples(file)) for part, file in parts.items()}
    labels = sorted({label for pairs in found.values() for _, label in pairs} | set(words))
    _refuse_labels(labels, words, name)
    number = {label: place for place, label in enumerate(labels)}
    examples = {part: tuple(Example(text, number[label]) for text, label in found.get(part, ())) for part in _PARTS}
    return Task(name, tuple(labels), tuple(words.get(label, label) for label in labels), template, **examples)


def _refuse_labels(labels: list[str], words: Mapping[str, str], name: str) -> None:
    if not 2 <= len(labels) <= MAX_LABELS:
        problem = f"A task must have 2 to {MAX_LABELS} labels, but has {len(labels)} instead: {names_of(labels)}."
        raise CorpusError(problem, "With one label there is nothing to tell apart.", path=name)
    if words and (missing := [label for label in labels if label not in words]):
        raise CorpusError(
            f"Every label must have a word in {_CARD}, but {names_of(missing)} has none.", "Add it.", path=name
        )


def _read_examples(file: TextFile) -> Iterator[tuple[str, str]]:
    """Text and label of every record; raises CorpusError for the first that is no example."""
    count = 0
    for record in read_records(file, ("text", "label"), lambda _: None):
        if isinstance(record, CorpusError):
            raise record
        count += 1
        if count > MAX_EXAMPLES:
            problem = f"A file must hold at most {MAX_EXAMPLES:,} examples, but holds more."
            raise CorpusError(problem, "Take a sample of them.", path=file.name, line=record.line)
        yield _example(record, file.name)
    if not count:
        raise CorpusError("The file must hold labelled examples, but holds none.", _LAYOUT, path=file.name)


def _example(record: Record, name: str) -> tuple[str, str]:
    try:
        text, label = checked_text(record.values, "text"), label_of(record.values, "label") or ""
        if not text.strip():
            raise CorpusError("The text of an example must not be empty, but is.")
        if not label.isprintable() or not label:
            raise CorpusError("A label must have at least one character, all printable, but has not.")
    except CorpusError as fault:
        remedy = fault.next_step or "Mend or remove the record."
        raise CorpusError(fault.problem, remedy, path=name, line=record.line) from None
    return text.strip(), label


def _read_card(file: Path, name: str) -> tuple[str, dict[str, str]]:
    """Template and words of a task; the usual template and no words where there is no card."""
    place = f"{name}/{_CARD}"
    if file.is_symlink():
        raise CorpusError("The card must be a file, but is a link instead: not followed.", "Copy it.", path=place)
    if not file.exists():
        return TEMPLATE, {}
    try:
        card = json.loads(file.read_text(encoding="utf-8"))
        json.dumps(card, ensure_ascii=False).encode()  # half a character is no text
    except (OSError, ValueError, RecursionError) as error:
        raise CorpusError(f"The card must be JSON, but cannot be read ({error}).", "Mend it.", path=place) from None
    if not isinstance(card, dict) or (strange := sorted(set(card) - {"template", "words"})):
        told = names_of(strange) if isinstance(card, dict) else type(card).__name__
        raise CorpusError(f"The card must hold template and words, but holds {told}.", "Mend it.", path=place)
    template, words = card.get("template", TEMPLATE), card.get("words", {})
    if not isinstance(template, str) or not _is_template(template):
        problem = f"The template must hold {_TEXT} once and end with {_LABEL}, but does not."
        raise CorpusError(problem, f"Write it like this: {json.dumps(TEMPLATE)}.", path=place)
    return template, _words(words, place)


def _is_template(template: str) -> bool:
    return template.count(_TEXT) == template.count(_LABEL) == 1 and template.endswith(_LABEL)


def _words(words: Any, place: str) -> dict[str, str]:
    is_right = isinstance(words, dict) and all(isinstance(word, str) and word.strip() for word in words.values())
    if not is_right:
        problem = "The words must be an object of labels and what stands for each, but are not."
        raise CorpusError(problem, 'Write them like this: {"0": "bad", "1": "good"}.', path=place)
    return {str(label).strip(): word.strip() for label, word in words.items()}
