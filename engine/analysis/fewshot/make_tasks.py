"""Makes folders of labelled examples, as `tasks` reads them: of any labelled text, or of C-BTM's six data sets."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from engine.analysis.fewshot.tasks import TEMPLATE
from engine.errors import CorpusError
from engine.files import new_folder
from engine.text.dataset_source import DatasetSource
from engine.text.streams import names_of

LEAST = 8  # examples of each label, half of them demonstrations
MOST_ROWS = 600_000  # of one split that are looked at: all of DBPedia, whose rows are sorted by their label
_PARTS = ("train", "test")
_SOURCE = "source.json"

Pair = tuple[str, str]  # text and label


@dataclass(frozen=True)
class PublicTask:
    """A data set with labels: the fields of its text, the word of each label, and the split that each part is from."""

    dataset: str  # NAME[:CONFIG][@REVISION]
    fields: tuple[str, ...]
    label_words: Mapping[str, str]
    splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    template: str = TEMPLATE


_SENTIMENT = {"0": "negative", "1": "positive"}
_TOPIC, _MOOD = "{text}\nTopic: {label}", "{text}\nSentiment: {label}"
_DBPEDIA = [
    "company",
    "school",
    "artist",
    "athlete",
    "politician",
    "vehicle",
    "building",
    "landscape",
    "village",
    "animal",
    "plant",
    "album",
    "film",
    "book",
]
PUBLIC_TASKS: Mapping[str, PublicTask] = {  # C-BTM A.7; words and templates are ours: the paper prints none
    "agnews": PublicTask(
        "fancyzhx/ag_news",
        ("text",),
        {"0": "world", "1": "sports", "2": "business", "3": "technology"},
        template=_TOPIC,
    ),
    "dbpedia": PublicTask(
        "fancyzhx/dbpedia_14",
        ("title", "content"),
        {str(number): word for number, word in enumerate(_DBPEDIA)},
        template=_TOPIC,
    ),
    "sst2": PublicTask(  # its test split has no labels
        "stanfordnlp/sst2", ("sentence",), _SENTIMENT, {"train": "train", "test": "validation"}, _MOOD
    ),
    "amazon": PublicTask("fancyzhx/amazon_polarity", ("title", "content"), _SENTIMENT, template=_MOOD),
    "phrasebank": PublicTask(  # one split only
        "takala/financial_phrasebank:sentences_50agree@refs/convert/parquet",
        ("sentence",),
        {"0": "negative", "1": "neutral", "2": "positive"},
        {"train": "train", "test": "train"},
        _MOOD,
    ),
    "twitter": PublicTask(
        "cardiffnlp/tweet_eval:hate",
        ("text",),
        {"0": "harmless", "1": "hateful"},
        template="{text}\nThis tweet is {label}",
    ),
}


def make_task(pairs: Iterable[Pair], folder: Path, *, most: int, characters: int) -> dict[str, int]:
    """Writes a task with as many examples of each label, half of them to draw demonstrations from.

    Gives the number of examples by label. Texts are cut to so many characters, at white space. Labels with fewer than
    LEAST texts are left out; raises CorpusError unless two are left, or where the folder exists.
    """
    texts: dict[str, list[str]] = defaultdict(list)
    for text, label in pairs:
        if len(texts[label]) < most and (kept := _cut(text, characters)):
            texts[label].append(kept)
    enough = {label: of_label for label, of_label in sorted(texts.items()) if len(of_label) >= LEAST}
    if len(enough) < 2:
        given = ", ".join(f"{label}: {len(of_label)}" for label, of_label in sorted(texts.items())) or "none"
        problem = f"A task needs two labels with at least {LEAST} texts each; there are {given}."
        raise CorpusError(problem, "Name more domains, or domains with more held-out text.")
    each = min(map(len, enough.values()))
    rows = [(text, label) for place in range(each) for label, of_label in enough.items() for text in [of_label[place]]]
    half = each // 2 * len(enough)
    _write(folder, {"train": rows[:half], "test": rows[half:]})
    return dict.fromkeys(enough, each)


def _cut(text: str, characters: int) -> str:
    """The start of a text, without its last word where that is cut."""
    text = " ".join(text.split())
    return text if len(text) <= characters else text[: characters + 1].rpartition(" ")[0] or text[:characters]


def download_task(name: str, folder: Path, *, most: int) -> DatasetSource:
    """Writes one of the public tasks and gives the commit that was read, which its folder also names.

    At most `most` rows of each part, drawn with one seed. Raises CorpusError for an unknown name or a data set that
    cannot be read, and where the folder exists.
    """
    if name not in PUBLIC_TASKS:
        raise CorpusError(f"There is no public task “{name}”.", f"Choose among {', '.join(PUBLIC_TASKS)}.")
    task = PUBLIC_TASKS[name]
    source = DatasetSource.parse(task.dataset).pinned()
    drawn: dict[str, list[Pair]] = {}
    for split in dict.fromkeys(task.splits.values()):
        parts = [part for part in _PARTS if task.splits[part] == split]
        of_split = DatasetSource(source.dataset, source.config, source.revision, split)
        rows = _draw_sample(_read_pairs(of_split, task), most * len(parts))
        drawn |= {part: rows[place :: len(parts)] for place, part in enumerate(parts)}
    if missing := [part for part in _PARTS if not drawn[part]]:
        raise CorpusError(f"“{source.name}” has no labelled rows for {names_of(missing)}.", "Check the data set.")
    card = {"template": task.template, "words": dict(task.label_words)}
    _write(folder, drawn, {"task.json": card, _SOURCE: {"dataset": source.name, "splits": dict(task.splits)}})
    return source


def _read_pairs(source: DatasetSource, task: PublicTask) -> Iterator[Pair]:
    """Text and label of the rows; those without a known label are skipped."""
    for row in islice(source.rows(), MOST_ROWS):
        if lacking := [name for name in (*task.fields, "label") if name not in row]:
            problem = f"The data set “{source.name}” has no field {names_of(lacking)}."
            raise CorpusError(problem, "Its newest version differs: give an earlier one, or make the folder by hand.")
        text = " ".join(" ".join(str(row[name]).split()) for name in task.fields).strip()
        if text and (label := str(row["label"])) in task.label_words:
            yield text, label


def _draw_sample(pairs: Iterable[Pair], most: int) -> list[Pair]:
    """At most so many, each with the same chance, always the same ones (algorithm R)."""
    generator, kept = random.Random(0), list[Pair]()
    for number, pair in enumerate(pairs):
        index = number if number < most else generator.randrange(number + 1)
        if index < len(kept):
            kept[index] = pair
        elif index < most:
            kept.append(pair)
    generator.shuffle(kept)
    return kept


def _write(folder: Path, parts: Mapping[str, Sequence[Pair]], others: Mapping[str, Any] | None = None) -> None:
    try:
        with new_folder(folder, replace=False) as aside:
            for part, pairs in parts.items():
                lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in pairs]
                (aside / f"{part}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            for name, content in (others or {}).items():
                (aside / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    except FileExistsError:
        raise CorpusError("The folder of the task exists already.", "Choose another name.", path=folder) from None
