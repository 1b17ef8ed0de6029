"""A model that processes divide among themselves trains as one that they share does; each holds its part alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for ranks, here and in the processes of the tests

from ranks import by_itself, model_of, together
from test_distributed import STOPPED_EARLY, assert_same_training, make_run, weights  # noqa: F401 (a fixture)

from engine.events import TrainingFinished
from engine.training.distributed import Layout

SHARDED = {"shard": True}


@pytest.mark.parametrize(
    ("num_ranks", "experts", "changes"),
    [
        (2, "abcd", {}),  # whole experts, two in each process
        (4, "ab", {"sequences_per_domain": 2}),  # each expert divided between two
        (3, "ab", {"accumulate": 2}),  # one divided, one whole
        (2, "a", {"activation_checkpointing": True}),
        (4, "aab", {"sequences_per_domain": 2}),
    ],
    ids=str,
)
def test_a_divided_model_trains_as_one_process_does(make_run, num_ranks: int, experts: str, changes) -> None:  # noqa: F811
    run, reference = make_run(experts, "many", **SHARDED, **changes), make_run(experts, "one", **changes)
    shown = together(num_ranks, run)
    expected = by_itself(reference)
    assert_same_training(shown, run, expected, reference)
    layout, full = Layout(tuple(sorted(set(experts))), num_ranks), model_of(sorted(set(experts)), run.family)
    shared = sum(parameter.numel() for parameter in full.shared_parameters().values())
    of_expert = sum(parameter.numel() for parameter in full.expert_parameters("a").values())
    assert sum(one.num_held for one in shown) == shared + of_expert * len(set(experts))  # nothing is held twice
    for rank, one in enumerate(shown):
        share = shared / num_ranks + sum(of_expert / len(layout.group(key)) for key in layout.held(rank))
        assert one.num_held <= 1.1 * share  # rows of matrices do not divide evenly


def test_a_family_with_tied_vectors_does(make_run) -> None:  # noqa: F811
    run, reference = (
        replace(make_run("ab", folder, **more), family="gpt2") for folder, more in (("many", SHARDED), ("one", {}))
    )
    assert_same_training(together(3, run), run, by_itself(reference), reference)


def test_it_is_resumed_on_more_fewer_and_one(make_run) -> None:  # noqa: F811
    reference, run = make_run("abc", "one"), make_run("abc", "cut", **SHARDED)
    parts = [together(4, replace(run, stop_after=3))[0], together(2, replace(run, stop_after=5))[0]]
    parts += [by_itself(replace(run, stop_after=8)), together(3, run)[0]]
    assert [len(part.losses) for part in parts] == [3, 2, 3, 2]
    seen = [loss for part in parts for loss in part.losses]
    assert seen == pytest.approx(by_itself(reference).losses, rel=1e-6)


def test_early_stopping_keeps_the_best_parts_and_is_resumed_to_the_bit(make_run) -> None:  # noqa: F811 (L17)
    run, cut = (make_run("ab", folder, **SHARDED, **STOPPED_EARLY) for folder in ("whole", "cut"))
    shown = together(3, run)
    end = shown[0].events[-1]
    assert isinstance(end, TrainingFinished)
    assert 0 < end.step < end.num_steps < 60
    first, second = together(3, replace(cut, stop_after=end.step + 1))[0], together(3, cut)[0]
    assert first.losses + second.losses == shown[0].losses
    assert second.events[-1] == end
    ours, theirs = weights(cut, end.num_steps), weights(run, end.num_steps)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_loss_that_is_no_number_stops_all_before_anything_is_updated(make_run) -> None:  # noqa: F811
    run = replace(make_run("ab", "nan", **SHARDED), broken="b")
    assert all(one.error.startswith("NonFiniteLossError: The held-out loss of ") for one in together(2, run))
    assert not list(run.folder.glob("step-*"))
