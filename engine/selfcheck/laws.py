"""Checks the laws of docs/methods/README.md on this machine: the real engine on a tiny model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.device import choose_device
from engine.selfcheck.anchored_laws import anchored_are_joined
from engine.selfcheck.cluster_laws import balanced_and_seeded, incremental_is_from_scratch
from engine.selfcheck.decoding_laws import (
    batches_and_padding,
    cached_is_plain,
    probabilities_sum_to_one,
    removed_is_never_loaded,
    stored_is_live,
)
from engine.selfcheck.gate_laws import (
    all_weight_on_one,
    cut_streams,
    equal_shares_are_uniform,
    identical_experts,
    impossible_tokens,
    permuted_experts,
    single_expert,
    weights_sum_to_one,
)
from engine.selfcheck.law import Law, LawVerdict, judge
from engine.selfcheck.mode_laws import parts_of_one_backbone
from engine.selfcheck.persistence_laws import adding_touches_nothing, moving_changes_nothing, resumed_is_uninterrupted
from engine.selfcheck.router_laws import routers_are_solved
from engine.selfcheck.test_bed import TestBed

LAWS = (
    Law("L1", "a mixture with weight 1 on expert j is expert j", "bit-equal", 0, all_weight_on_one),
    Law(
        "L2",
        "a mixture of one expert is that expert; C-BTM with K=1 is the dense model",
        "bit-equal",
        0,
        single_expert,
    ),
    Law("L3", "a cached prior of 1/E is the uniform mode", "bit-equal", 0, equal_shares_are_uniform),
    Law("L4", "identical experts: any posterior gives the same probabilities", "1e-6", 1e-6, identical_experts),
    Law(
        "L5",
        "weights sum to 1 at every token, in every mode, the first token and after top-k included",
        "1e-6",
        1e-6,
        weights_sum_to_one,
    ),
    Law("L6", "permuting experts permutes the weights and changes no perplexity", "1e-6", 1e-6, permuted_experts),
    Law("L7", "remove(j) is the mixture that never loaded j", "bit-equal", 0, removed_is_never_loaded),
    Law("L8", "add(j) leaves every other tensor's hash unchanged", "exact", 0, adding_touches_nothing),
    Law("L9", "perplexity does not depend on batch size or padding", "1e-5", 1e-5, batches_and_padding),
    Law("L10", "incremental gate weights are those computed from scratch", "1e-6", 1e-6, incremental_is_from_scratch),
    Law("L11", "cluster sizes differ by at most 1; same seed, same clusters", "exact", 0, balanced_and_seeded),
    Law(
        "L12",
        "MoDE at its start is the backbone; composed with one expert masked it is the single-expert model",
        "bit-equal where arithmetic allows, else 1e-6",
        1e-6,
        parts_of_one_backbone,
    ),
    Law(
        "L13",
        "a mixture's probabilities sum to 1; generation's distribution is the scorer's",
        "1e-5",
        1e-5,
        probabilities_sum_to_one,
    ),
    Law("L14", "no NaN when every expert gives a token probability 0 in half precision", "–", 0, impossible_tokens),
    Law("L15", "a posterior stream cut in two and resumed is the uncut one", "1e-6", 1e-6, cut_streams),
    Law("L16", "moving or renaming a data folder changes nothing", "exact", 0, moving_changes_nothing),
    Law(
        "L17",
        "training resumed is training uninterrupted: every loss and the final weights",
        "bit-equal on CPU",
        0,
        resumed_is_uninterrupted,
    ),
    Law("L18", "cached decoding is plain decoding", "1e-5", 1e-5, cached_is_plain),
    Law("L19", "mixing from stored scores is mixing from live forward passes", "1e-5", 1e-5, stored_is_live),
    Law(
        "L20",
        "routers of streamed sums are those of all inputs at once; the expert always chosen is the joined model",
        "1e-5",
        1e-5,
        routers_are_solved,
    ),
    Law(
        "L21",
        "an anchored expert begins as its seed, and joined with its seed by its rows it is itself",
        "1e-5",
        1e-5,
        anchored_are_joined,
    ),
)


def run_laws(device: str = "auto", laws: Sequence[Law] = LAWS) -> Iterator[LawVerdict]:
    """Yields the verdict on each law, on a device such as `auto`, `cpu`, `cuda:1`.

    An error inside a law fails only that law. Raises ModelError for a missing device.
    """
    where = choose_device(device)
    with TemporaryDirectory(prefix="workbench-selfcheck-") as folder:
        bed = TestBed(where, Path(folder))
        for law in laws:
            yield judge(law, bed)
