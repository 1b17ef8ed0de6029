"""Tasks are read whole or refused with file and line; prompts hold what the paper says, and fit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.analysis.fewshot.prompts import Episode, Shots, encode_options, make_episode, max_prompt_tokens
from engine.analysis.fewshot.tasks import LabelledExample, Task, read_tasks
from engine.errors import CorpusError, ModelError
from engine.text.tokenizer import Tokenizer

Write = Callable[..., Path]
TRAIN = [{"text": f"text {number}", "label": ["good", "bad"][number % 2]} for number in range(20)]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str = "mood", card: Any = None, **parts: list[dict[str, Any]]) -> Path:
        folder = tmp_path / "tasks" / name
        folder.mkdir(parents=True)
        for part, records in parts.items():
            (folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
        if card is not None:
            (folder / "task.json").write_text(json.dumps(card), encoding="utf-8")
        return tmp_path / "tasks"

    return write


def task_of(num_train: int = 20, length: int = 1, **more: Any) -> Task:
    train = tuple(LabelledExample(f"text {number} " * length, number % 2) for number in range(num_train))
    test = tuple(LabelledExample(f"test {number} " * length, number % 2) for number in range(12))
    return Task("mood", ("bad", "good"), ("bad", "good"), "Text: {text}\nLabel: {label}", train, test, **more)


def episode_of(task: Task, tokenizer: Tokenizer, page: int = 1000, seed: int = 0, **shots: int) -> Episode:
    return make_episode(task, tokenizer, Shots(**shots), seed, page)


def test_every_folder_is_a_task_and_labels_are_in_order(write: Write) -> None:
    write("mood", train=TRAIN, test=TRAIN[:4])
    root = write("topic/news", train=TRAIN, test=TRAIN[:2], validation=TRAIN[:3])
    (root / "topic" / "README.md").write_text("about these tasks", encoding="utf-8")
    mood, topic = read_tasks(root)
    assert (mood.name, topic.name, mood.labels) == ("mood", "topic/news", ("bad", "good"))
    assert mood.train[0] == LabelledExample("text 0", 1)
    assert (len(mood.validation), len(topic.validation), len(topic.test)) == (0, 3, 2)
    (by_itself,) = read_tasks(root / "mood")
    assert by_itself == mood


def test_a_card_gives_the_template_and_the_words(write: Write) -> None:
    records = [{"text": "a {label} b", "label": 0}, {"text": "c", "label": 1}]
    card = {"template": "{text} It was {label}", "words": {"0": "bad", "1": "good"}}
    (task,) = read_tasks(write(card=card, train=records, test=records))
    assert (task.labels, task.label_words, task.lead) == (("0", "1"), ("bad", "good"), " ")
    assert task.demonstration(task.train[0]) == "a {label} b It was bad"
    assert task.question("c") == "c It was"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"train": [*TRAIN, {"text": "no label"}], "test": TRAIN}, ["train.jsonl, line 21", "“label”"]),
        ({"train": [*TRAIN, {"text": " ", "label": "bad"}], "test": TRAIN}, ["line 21", "text", "empty"]),
        ({"train": [*TRAIN, {"text": "a", "label": ""}], "test": TRAIN}, ["line 21", "The label"]),
        ({"train": [*TRAIN, {"text": "a", "label": None}], "test": TRAIN}, ["line 21", "null"]),
        ({"train": [{"text": "a", "label": "one"}] * 9, "test": [{"text": "a", "label": "one"}]}, ["2 to", "“one”"]),
        ({"train": TRAIN}, ["no file of test examples"]),
        ({"train": TRAIN, "test": []}, ["test.jsonl", "no labelled examples"]),
        ({"train": TRAIN, "test": TRAIN, "card": {"words": {"good": "yes"}}}, ["“bad”", "task.json"]),
        ({"train": TRAIN, "test": TRAIN, "card": {"template": "{text}"}}, ["task.json", "{label}"]),
        ({"train": TRAIN, "test": TRAIN, "card": {"shots": 3}}, ["“shots”"]),
        ({"train": TRAIN, "test": TRAIN, "card": [1]}, ["list"]),
        ({"train": TRAIN, "test": TRAIN, "card": {"words": {"bad": "\ud800", "good": "g"}}}, ["as JSON"]),
    ],
)
def test_what_is_no_task_is_refused_with_its_place(write: Write, parts: dict[str, Any], words: list[str]) -> None:
    root = write(**parts)
    with pytest.raises(CorpusError) as caught:
        read_tasks(root)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_links_are_not_followed_and_nothing_is_chosen_between_two(write: Write, tmp_path: Path) -> None:
    root = write(train=TRAIN, test=TRAIN)
    (root / "mood" / "test.jsonl").rename(tmp_path / "elsewhere.jsonl")
    (root / "mood" / "test.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    with pytest.raises(CorpusError, match="link"):
        read_tasks(root)
    (root / "mood" / "test.jsonl").unlink()
    (root / "mood" / "train.csv").write_text("text,label\na,b\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="second file of train"):
        read_tasks(root)


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_where_no_task_is_the_layout_is_shown(tmp_path: Path, what: str) -> None:
    place = tmp_path / what
    if what == "file":
        place.write_text("{}", encoding="utf-8")
    if what == "empty":
        place.mkdir()
    with pytest.raises(CorpusError, match=r"train\.jsonl and test\.jsonl"):
        read_tasks(place)


def test_a_prompt_is_its_demonstrations_and_its_question(tokenizer: Tokenizer) -> None:
    task = task_of()
    result = episode_of(task, tokenizer, num_shots=3, num_validation=2)
    text = tokenizer.decode(result.test[0].ids)
    *demonstrations, question = text.split("\n\n")
    assert result.test[0].ids[0] == tokenizer.bos_id
    assert set(demonstrations) <= {task.demonstration(one) for one in task.train}
    assert (len(demonstrations), question.endswith("Label:")) == (3, True)
    assert {prompt.num_shots for prompt in result.test} == {3}
    assert not any(prompt.is_cut for prompt in result.test)


def test_the_seed_draws_demonstrations_and_the_test_examples_stay(tokenizer: Tokenizer) -> None:
    def read(seed: int) -> tuple[str, list[str]]:
        texts = [tokenizer.decode(one.ids) for one in episode_of(task_of(), tokenizer, seed=seed, max_examples=5).test]
        return texts[0].rpartition("\n\n")[0], [text.rpartition("\n\n")[2] for text in texts]

    assert read(0) == read(0)
    assert read(0)[0] != read(1)[0]
    assert read(0)[1] == read(1)[1]


def test_the_trials_are_those_of_the_paper(tokenizer: Tokenizer) -> None:  # A.7
    result = episode_of(task_of(), tokenizer)
    shots = Counter(tokenizer.decode(result.test[0].ids).split("\n\n")[:-1])
    assert (len(result.permuted), len(result.validation)) == (8, 8)
    for prompt in result.permuted:
        *before, requested = tokenizer.decode(prompt.ids).split("\n\n")
        assert (len(before), prompt.num_shots) == (7, 7)
        (left,) = (shots - Counter(before)).elements()
        assert left == f"{requested} {task_of().label_words[prompt.label]}"
    assert len({prompt.ids for prompt in result.permuted}) > 1
    for prompt in result.validation:
        *before, requested = tokenizer.decode(prompt.ids).split("\n\n")
        assert Counter(before) == shots
        assert not any(shot.startswith(requested) for shot in shots)


def test_validation_examples_are_of_their_file_where_there_is_one(tokenizer: Tokenizer) -> None:
    task = task_of(8, validation=tuple(LabelledExample(f"kept aside {number}", 0) for number in range(8)))
    requested = {tokenizer.decode(prompt.ids).split("\n\n")[-1] for prompt in episode_of(task, tokenizer).validation}
    assert requested == {f"Text: kept aside {number}\nLabel:" for number in range(8)}


@pytest.mark.parametrize(("num_train", "word"), [(7, "training"), (12, "validation")])
def test_too_few_examples_to_draw_from_are_refused(tokenizer: Tokenizer, num_train: int, word: str) -> None:
    with pytest.raises(CorpusError, match=rf"8 {word} examples"):
        episode_of(task_of(num_train), tokenizer)


def test_a_prompt_that_is_too_long_loses_full_demonstrations_and_finally_its_start(tokenizer: Tokenizer) -> None:
    task = task_of(length=3)
    full = len(episode_of(task, tokenizer).test[0].ids)
    cut = episode_of(task, tokenizer, page=full // 2).test[0]
    text = tokenizer.decode(cut.ids)
    assert cut.is_cut
    assert 0 < cut.num_shots < 8
    assert text.count("\n\n") == cut.num_shots
    assert text.startswith("Text:")
    tiny = episode_of(task, tokenizer, page=9).test[0]
    assert (len(tiny.ids), tiny.num_shots, tiny.is_cut) == (9, 0, True)
    assert tokenizer.decode(tiny.ids).endswith("Label:")


def test_options_are_tokenized_as_they_stand_in_a_text(tokenizer: Tokenizer) -> None:
    task = task_of()
    for option, word in zip(encode_options(task, tokenizer), task.label_words, strict=True):
        before = tokenizer.encode(task.question("text 5"))
        assert [*before, *option] == tokenizer.encode(f"{task.question('text 5')} {word}")


def test_words_of_which_one_begins_as_the_other_are_refused(tokenizer: Tokenizer) -> None:
    task = task_of()
    for words in (("b", "b"), ("no", "no way")):
        with pytest.raises(CorpusError, match="begin with the same tokens"):
            encode_options(Task("m", ("0", "1"), words, task.template, task.train, task.test), tokenizer)


def test_options_that_leave_no_space_are_refused(tokenizer: Tokenizer) -> None:
    options = encode_options(task_of(), tokenizer)
    longest = max(map(len, options))
    assert max_prompt_tokens(task_of(), options, 50) == 51 - longest
    with pytest.raises(ModelError, match="fit a context"):
        max_prompt_tokens(task_of(), options, longest)
