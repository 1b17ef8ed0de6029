"""Folders of tasks are made of labelled text as classification reads them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.analysis.fewshot.make_tasks import LEAST, PUBLIC_TASKS, _draw_sample, download_task, make_task
from engine.analysis.fewshot.tasks import read_tasks
from engine.errors import CorpusError

NUM_LABELS = {"agnews": 4, "dbpedia": 14, "sst2": 2, "amazon": 2, "phrasebank": 3, "twitter": 2}


def texts(label: str, number: int) -> list[tuple[str, str]]:
    return [(f"{label} text {place} " + "word " * 50, label) for place in range(number)]


def test_a_task_has_as_many_examples_of_each_label_in_both_parts(tmp_path: Path) -> None:
    pairs = [*texts("law", 30), *texts("sea", 21), *texts("rare", LEAST - 1)]
    assert make_task(pairs, tmp_path / "kind", most=25, characters=40) == {"law": 21, "sea": 21}
    (task,) = read_tasks(tmp_path)
    assert (task.name, task.labels) == ("kind", ("law", "sea"))
    parts = [Counter(task.labels[one.label] for one in part) for part in (task.train, task.test)]
    assert parts == [{"law": 10, "sea": 10}, {"law": 11, "sea": 11}]
    every = [one.text for one in (*task.train, *task.test)]
    assert len(set(every)) == len(every) == 42
    assert all(len(text) <= 40 and text.endswith(" word") for text in every)


def test_one_label_is_no_task_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="two labels with at least 8 texts each; there are law: 9, sea: 3"):
        make_task([*texts("law", 9), *texts("sea", 3)], tmp_path / "kind", most=25, characters=40)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "kind").mkdir()
    (tmp_path / "kind" / "mine.txt").write_text("mine")
    with pytest.raises(CorpusError, match="exists already"):
        make_task([*texts("law", 9), *texts("sea", 9)], tmp_path / "kind", most=25, characters=40)
    assert [file.name for file in tmp_path.rglob("*")] == ["kind", "mine.txt"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The hub with rows sorted by their label, some without one; what it was asked for."""
    requests: list[Any] = []

    def dataset_info(_: Any, name: str, revision: str | None) -> Any:
        requests.append((name, revision))
        return SimpleNamespace(sha="c0ffee")

    def load_dataset(place: str, config: str | None, *, split: str, revision: str, streaming: bool) -> Iterator[Any]:
        requests.append((place, config, split, revision))
        assert streaming
        (task,) = [one for one in PUBLIC_TASKS.values() if one.dataset.split("@")[0].split(":")[0] == place]
        for label in (-1, *range(len(task.label_words))):
            for number in range(40):
                values = {name: f"{name} {split} {label} {number}" for name in task.fields}
                yield {**values, "label": label, "more": 1}

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    return requests


@pytest.mark.parametrize("name", PUBLIC_TASKS)
def test_a_public_task_is_read_at_one_commit_and_as_classification_reads_it(
    name: str, hub: list[Any], tmp_path: Path
) -> None:
    source = download_task(name, tmp_path / name, most=30)
    assert source.revision == "c0ffee"
    assert all(requests[-1] == "c0ffee" for requests in hub[1:])
    (task,) = read_tasks(tmp_path)
    assert len(task.labels) == len(set(task.label_words)) == NUM_LABELS[name]
    assert (len(task.train), len(task.test)) == (30, 30)
    assert not {one.text for one in task.train} & {one.text for one in task.test}
    assert len({one.label for one in task.test}) > min(NUM_LABELS[name], 8) - 1  # not the first rows alone
    assert all(f"{field} " in task.test[0].text for field in PUBLIC_TASKS[name].fields)
    recorded = json.loads((tmp_path / name / "source.json").read_text())
    assert recorded["dataset"].endswith("@c0ffee")


def test_the_same_rows_are_drawn_each_time_and_each_with_the_same_chance() -> None:
    pairs = [(str(number), "a") for number in range(1000)]
    drawn = _draw_sample(pairs, 200)
    assert drawn == _draw_sample(iter(pairs), 200)
    assert len(set(drawn)) == 200
    assert 70 < sum(int(text) < 500 for text, _ in drawn) < 130
    assert sorted(_draw_sample(pairs[:5], 200)) == sorted(pairs[:5])


def test_a_data_set_whose_fields_changed_is_refused_by_its_name(
    hub: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: [{"body": "x", "label": 0}])
    with pytest.raises(CorpusError, match=r"“fancyzhx/ag_news@c0ffee” has no field “text”"):
        download_task("agnews", tmp_path / "agnews", most=5)
    with pytest.raises(CorpusError, match="no public task “mnist”"):
        download_task("mnist", tmp_path / "mnist", most=5)
