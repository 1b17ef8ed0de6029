"""A folder is read for what it is: of a data set one split and no card; a model or a pointer is called by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import CorpusError
from engine.text.corpus import ReadOptions, read_documents
from engine.text.import_report import ReadReport
from engine.text.streams import size_on_disk, split_of_name

CARD = "---\nconfigs:\n- config_name: default\n---\n# A card\n"


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text if path.suffix in (".md", ".txt") else json.dumps({"text": text})
        path.write_text(content, encoding="utf-8")


def read(folder: Path, split: str = "train") -> tuple[list[str], dict[str, str]]:
    report = ReadReport()
    texts = [document.text for document in read_documents(folder, ReadOptions(split=split), report)]
    return texts, {str(one.path): one.reason for one in report.refused}


def data_set(folder: Path) -> Path:
    write(folder, README_md=CARD, data__train_jsonl="to learn", data__test_jsonl="held out", LICENSE_txt="terms")
    (folder / "dataset_infos.json").write_text('{\n "default": {}\n}')
    return folder


def test_of_a_data_set_one_split_is_read_and_the_rest_is_listed(tmp_path: Path) -> None:
    texts, left_out = read(data_set(tmp_path))
    assert texts == ["to learn"]
    assert sorted(left_out) == ["LICENSE.txt", "README.md", "data/test.jsonl", "dataset_infos.json"]
    assert "split test, and train was chosen" in left_out["data/test.jsonl"]
    assert size_on_disk(tmp_path) == (tmp_path / "data" / "train.jsonl").stat().st_size


@pytest.mark.parametrize(
    ("split", "texts"), [("test", ["held out"]), ("all", ["terms", "held out", "to learn"])], ids=["test", "all"]
)
def test_another_split_or_all_may_be_chosen(split: str, texts: list[str], tmp_path: Path) -> None:
    assert read(data_set(tmp_path), split)[0] == texts


def test_a_split_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no files of the split “validation”, only of test, train"):
        read(data_set(tmp_path), "validation")


def test_a_folder_of_two_splits_needs_no_card(tmp_path: Path) -> None:
    write(tmp_path, train_jsonl="to learn", valid_jsonl="held out", more_jsonl="of no split")
    assert read(tmp_path)[0] == ["of no split", "to learn"]


def test_files_of_text_whose_names_hold_such_words_are_read(tmp_path: Path) -> None:
    write(tmp_path, **{"a train to Rome_txt": "a", "my test_txt": "b", "test_md": "c", "train_jsonl": "d"})
    assert read(tmp_path)[0] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00001.parquet", "train"),
        ("en/validation.csv", "validation"),
        ("dev/a.jsonl", "validation"),
        ("wiki.test.txt", "test"),
        ("my_eval_set.jsonl", "test"),
        ("latest.jsonl", None),
        ("trainer.jsonl", None),
        ("test.md", None),
    ],
)
def test_the_split_of_a_file_is_named_by_its_path(name: str, split: str | None) -> None:
    assert split_of_name(name) == split


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"config.json": "{}", "model.safetensors": ""}, "holds a model"),
        ({"adapter_config.json": "{}", "README.md": CARD}, "holds an adapter"),
        ({"model.gguf": "GGUF\3\0\0\0", "README.md": "# A model"}, "GGUF"),
        ({"dataset_dict.json": "{}"}, "save_to_disk"),
        ({"optimizer.pt": "", "trainer_state.json": "{}"}, "state of a training"),
    ],
)
def test_what_holds_no_text_is_called_by_its_name(files: dict[str, str], word: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=word) as refusal:
        read(tmp_path)
    assert refusal.value.next_step
