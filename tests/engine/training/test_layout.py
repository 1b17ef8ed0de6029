"""Every number of processes over every number of experts: nobody idle, nothing twice, loads even."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from engine.errors import TrainingError
from engine.models.rows import Rows
from engine.training.data import BlockSampler
from engine.training.distributed import Layout, layout_of, most_ranks

UP_TO_NINE = [
    Layout(tuple(f"e{i}" for i in range(num_keys)), num_ranks)
    for num_ranks, num_keys in itertools.product(range(1, 10), repeat=2)
]


@pytest.mark.parametrize("layout", UP_TO_NINE, ids=lambda layout: f"{layout.num_ranks}x{len(layout.keys)}")
def test_processes_are_partitioned_among_experts_as_evenly_as_can_be(layout: Layout) -> None:
    groups = [list(layout.group(key)) for key in layout.keys]
    held = [layout.held(rank) for rank in range(layout.num_ranks)]
    assert all(groups)
    assert all(held)
    assert all(len(group) == 1 for group in groups) or all(len(keys) == 1 for keys in held)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert max(map(len, held)) - min(map(len, held)) <= 1
    assert sorted(set(itertools.chain(*groups))) == list(range(layout.num_ranks))
    assert [key for keys in held for key in dict.fromkeys(keys)] == sorted(itertools.chain(*held))
    assert layout.keys[0] in held[0]  # the first process leads the first expert: a checkpoint begins with it


@given(some.sampled_from(UP_TO_NINE), some.integers(0, 30))
def test_the_processes_of_an_expert_take_each_of_its_rows_once(layout: Layout, num_rows: int) -> None:
    for key in layout.keys:
        taken = [list(layout.rows(key, rank, num_rows)) for rank in range(layout.num_ranks)]
        assert sorted(itertools.chain(*taken)) == list(range(num_rows))
        sizes = [len(taken[rank]) for rank in layout.group(key)]
        assert max(sizes) - min(sizes) <= 1
        assert not any(taken[rank] for rank in set(range(layout.num_ranks)) - set(layout.group(key)))


@pytest.mark.parametrize(
    ("num_ranks", "experts"), [(2, "abcd"), (4, "ab"), (5, "ab"), (3, "aaa"), (3, "aab"), (1, "ab")]
)
@pytest.mark.parametrize("number", [0, 7])
def test_the_processes_rows_are_those_of_one_process_and_no_block_is_drawn_twice(
    make_texts, num_ranks: int, experts: str, number: int
) -> None:
    texts = [
        text_of(text, expert) for text, expert in zip(make_texts(list("wxyz")[: len(experts)]), experts, strict=True)
    ]
    layout = layout_of(texts, 3, num_ranks)
    full = BlockSampler(texts, 16, 3, seed=1)
    inputs_BT = torch.full_like(full.batch(number).inputs_BT, -1)
    for rank in range(num_ranks):
        mine = BlockSampler(texts, 16, 3, 1, lambda key, num_rows, rank=rank: layout.rows(key, rank, num_rows))
        batch = mine.batch(number)
        assert set(batch.rows.keys) <= set(layout.held(rank))
        assert torch.all(inputs_BT[list(batch.places)] == -1)
        inputs_BT[list(batch.places)] = batch.inputs_BT
        assert mine.rows == full.rows == full.batch(number).rows
    assert torch.equal(inputs_BT, full.batch(number).inputs_BT)
    assert len(np.unique(inputs_BT.numpy(), axis=0)) == len(inputs_BT)


def text_of(text, expert: str):
    from dataclasses import replace

    return replace(text, expert=expert)


def test_rows_of_experts_that_share_domains_lie_together(make_texts) -> None:
    texts = [text_of(text, expert) for text, expert in zip(make_texts(list("xyz")), "bab", strict=True)]
    assert BlockSampler(texts, 16, 2, seed=0).rows == Rows(("b", "a"), (4, 2))


def test_rows_and_processes_lie_in_the_order_of_the_texts_whatever_experts_are_called(make_texts) -> None:
    texts = make_texts(list("xyz"))
    one, other = ([text_of(*pair) for pair in zip(texts, keys, strict=True)] for keys in ("abc", "cba"))
    batches = [BlockSampler(some, 16, 2, seed=0).batch(3) for some in (one, other)]
    assert torch.equal(batches[0].inputs_BT, batches[1].inputs_BT)
    assert [layout_of(some, 2, 2).keys for some in (one, other)] == [tuple("abc"), tuple("cba")]


@pytest.mark.parametrize(
    ("num_ranks", "experts", "sequences", "words"),
    [
        (5, "ab", 2, "“y” must be at most its 2 sequences in a batch, but are 3 .*at most 4 .*at least 3"),
        (9, "aaa", 2, "“x”, “y”, “z” must be at most its 6 .*but are 9 .*at most 6 .*at least 3"),
        (2, "a", 1, "at most 1 processes, or sequences_per_domain of at least 2"),
    ],
)
def test_more_processes_than_sequences_are_refused_with_the_numbers_to_choose(
    make_texts, num_ranks: int, experts: str, sequences: int, words: str
) -> None:
    texts = [
        text_of(text, expert) for text, expert in zip(make_texts(list("xyz")[: len(experts)]), experts, strict=True)
    ]
    names = {text.name: text.name.removeprefix("domain ") for text in texts}
    texts = [type(text)(names[text.name], text.expert, text.train, text.dev) for text in texts]
    with pytest.raises(TrainingError, match=words):
        layout_of(texts, sequences, num_ranks)
    assert layout_of(texts, sequences, most_ranks(texts, sequences))
