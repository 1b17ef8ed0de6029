"""Training on several processes is training on one: the same global batch, losses and weights. Real gloo processes.

Sums of float32 in another order differ in the last bits: losses by less than 1e-6 of themselves, a tensor's weights
by less than 5e-5 of its norm and its moments by less than 1e-4, after ten steps that were all clipped. The same number
of processes gives the same bits.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for ranks, here and in the processes of the tests

from ranks import Run, Shown, by_itself, together

from engine.config import TrainingConfig
from engine.events import TrainingFinished
from engine.text.blocks import CONTEXT, COUNTED, Tokens
from engine.training.checkpoint import state_at

CONFIG = TrainingConfig(
    num_steps=10,
    block_size=16,
    sequences_per_domain=3,
    learning_rate=3e-3,
    checkpoint_every=6,
    evaluate_every=5,
    evaluation_blocks=3,
    seed=1,
)
STOPPED_EARLY = {
    "num_steps": 60,
    "learning_rate": 0.1,
    "clip": 1.0,
    "evaluate_every": 2,
    "checkpoint_every": 5,
    "patience": 3,
}
KEY_BIASES = ("k_proj.bias", "c_attn.bias")  # attention does not see them: what moves them is rounding alone


@pytest.fixture
def make_run(make_texts, tmp_path: Path):
    """A run on one domain per letter, each for the expert of that letter."""

    def make(experts: str, folder: str, **changes) -> Run:
        texts = make_texts([f"{number}" for number in range(len(experts))])
        texts = [replace(text, expert=expert) for text, expert in zip(texts, experts, strict=True)]
        return Run(texts, replace(CONFIG, **changes), tmp_path / folder)

    return make


def weights(run: Run, step: int = CONFIG.num_steps) -> dict[str, torch.Tensor]:
    """Everything in a checkpoint: parameters and moments."""
    state = {tuple(name.split("/", 1)): tensor for name, tensor in state_at(run.folder, step).items()}
    return {
        name if kind == "parameters" else f"moment {kind}/{name}": tensor
        for (kind, name), tensor in state.items()
        if kind != "best"
    }


def assert_same_training(shown: list[Shown], run: Run, expected: Shown, reference: Run) -> None:
    for one in shown:
        assert not one.error
        assert one.losses == pytest.approx(expected.losses, rel=1e-6)
        assert one.losses == shown[0].losses
        assert one.shared == shown[0].shared
        for seen, wanted in zip(one.by_domain, expected.by_domain, strict=True):
            assert seen == pytest.approx(wanted, rel=1e-6)
    both = weights(run), weights(reference)
    assert both[0].keys() == both[1].keys()
    for name, tensor in both[0].items():
        difference, size = float((tensor - both[1][name]).norm()), float(both[1][name].norm())
        allowed = 1e-5 if name.endswith(KEY_BIASES) else size * (1e-4 if name.startswith("moment") else 5e-5)
        assert difference <= allowed, name


@pytest.mark.parametrize(
    ("num_ranks", "experts", "changes"),
    [
        (2, "abcd", {}),
        (4, "ab", {}),
        (3, "ab", {"accumulate": 2}),
        (2, "a", {}),
        (1, "abc", {}),
        (2, "abc", {"sequences_per_domain": 1}),
        (3, "aaa", {"sequences_per_domain": 1}),  # dense: plain data parallelism
        (4, "aab", {"sequences_per_domain": 2}),  # an expert of two domains beside one of one
    ],
    ids=lambda value: str(value),
)
def test_any_layout_trains_as_one_process_does(make_run, num_ranks: int, experts: str, changes) -> None:
    run, reference = make_run(experts, "many", **changes), make_run(experts, "one", **changes)
    shown = together(num_ranks, run)
    assert_same_training(shown, run, by_itself(reference), reference)
    assert set().union(*(one.keys for one in shown)) == set(experts)
    assert all(len(one.keys) <= max(1, -(-len(set(experts)) // num_ranks)) for one in shown)  # no other expert is on it


@pytest.mark.parametrize(
    ("num_ranks", "experts", "method", "changes"),
    [
        (2, "aaaa", "dense", {}),
        (3, "aaa", "dense", {"sequences_per_domain": 1, "accumulate": 2}),
        (2, "aaa", "dense-balanced", {}),
        (2, "abc", "domain-token", {}),
        (4, "ab", "domain-token", {"accumulate": 2}),
    ],
    ids=lambda value: str(value),
)
def test_a_baseline_trains_on_several_processes_as_on_one(
    make_run, num_ranks: int, experts: str, method: str, changes
) -> None:
    run, reference = (replace(make_run(experts, folder, **changes), method=method) for folder in ("many", "one"))
    assert_same_training(together(num_ranks, run), run, by_itself(reference), reference)


@pytest.mark.parametrize(
    ("num_ranks", "experts", "method", "changes"),
    [
        (3, "ab", "demix", {"accumulate": 2}),
        (2, "aaa", "dense", {}),
        (3, "ab", "demix", {"separate_conversations": True}),
    ],
    ids=lambda value: str(value),
)
def test_answers_are_normalised_over_all_processes(
    make_run, num_ranks: int, experts: str, method: str, changes
) -> None:
    """The share of tokens that count differs between rows, so a mean of means would differ."""

    def masked(folder: str) -> Run:
        run = replace(make_run(experts, folder, **changes), method=method)
        texts = [
            replace(text, train=_marked(text.train, number), dev=_marked(text.dev, number))
            for number, text in enumerate(run.texts)
        ]
        return replace(run, texts=texts)

    run, reference = masked("many"), masked("one")
    assert_same_training(together(num_ranks, run), run, by_itself(reference), reference)


def _marked(tokens: Tokens, seed: int) -> Tokens:
    """In each domain another share of the tokens counts."""
    drawn = np.random.default_rng(seed).random(len(tokens))
    marks = np.where(drawn < (seed + 1) / 5, COUNTED, CONTEXT).astype(np.uint8)
    starts = np.arange(0, len(tokens), 7)
    return Tokens(tokens.array, starts, marks, np.arange(len(starts), dtype=np.int32))


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_every_family_does(make_run, family: str) -> None:
    run, reference = (replace(make_run("ab", folder), family=family) for folder in ("many", "one"))
    assert_same_training(together(3, run), run, by_itself(reference), reference)


def test_all_these_steps_are_clipped(make_run) -> None:
    free, clipped = make_run("ab", "free", clip=1e9), make_run("ab", "clipped")
    by_itself(free), by_itself(clipped)
    mean = "moment exp_avg/lm_head.weight" if "lm_head.weight" in weights(free) else "moment exp_avg/model.norm.weight"
    assert float(weights(clipped)[mean].norm()) < 0.2 * float(weights(free)[mean].norm())


def test_a_training_is_resumed_on_more_and_on_fewer_processes(make_run) -> None:
    reference, run = make_run("abc", "one"), make_run("abc", "cut")
    first = together(4, replace(run, stop_after=3))
    second = together(2, replace(run, stop_after=5))
    third = by_itself(replace(run, stop_after=8))
    shown = together(3, run)
    assert [len(one.losses) for one in (first[0], second[0], third, shown[0])] == [3, 2, 3, 2]
    expected = by_itself(reference)
    full = Shown([*first[0].events, *second[0].events, *third.events, *shown[0].events])
    assert full.losses == pytest.approx(expected.losses, rel=1e-6)
    last = replace(expected, events=[event for event in expected.events if event.step > 8])
    assert_same_training(shown, run, last, reference)


@pytest.mark.parametrize(("num_ranks", "experts"), [(2, "abc"), (3, "ab")])
def test_resumed_on_as_many_it_is_the_uninterrupted_training_to_the_bit(  # L17
    make_run, num_ranks: int, experts: str
) -> None:
    full, cut = make_run(experts, "whole"), make_run(experts, "cut")
    expected = together(num_ranks, full)[0]
    seen = together(num_ranks, replace(cut, stop_after=4))[0].losses + together(num_ranks, cut)[0].losses
    assert seen == expected.losses
    ours, theirs = weights(cut), weights(full)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_early_stopping_is_one_decision_of_all_processes_and_is_resumed_to_the_bit(make_run) -> None:  # L17
    run, cut = (make_run("abc", folder, **STOPPED_EARLY) for folder in ("whole", "cut"))
    shown = together(2, run)
    end = shown[0].events[-1]
    assert isinstance(end, TrainingFinished)
    assert 0 < end.step < end.num_steps < 60
    first = together(2, replace(cut, stop_after=end.step + 1))[0].losses
    resumed = together(2, cut)
    assert first + resumed[0].losses == shown[0].losses
    for one in [*shown, *resumed]:
        assert not one.error
        assert one.events[-1] == end
        assert one.shared == shown[0].shared
    ours, theirs = weights(cut, end.num_steps), weights(run, end.num_steps)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    more = together(4, cut)  # it is over on any number of processes
    assert [one.events for one in more] == [[end]] * 4


def test_a_loss_of_one_process_that_is_no_number_stops_all_before_anything_is_updated(make_run) -> None:
    run = replace(make_run("ab", "nan"), broken="b")
    errors = [one.error for one in together(2, run)]
    assert len(errors) == 2
    assert all(error.startswith("NonFiniteLossError: The held-out loss of ") for error in errors)
    assert not list(run.folder.glob("step-*"))
