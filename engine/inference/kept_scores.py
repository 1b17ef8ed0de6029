"""What mixtures need of stored scores, kept in memory from one answer to the next: toggles and priors change no score.

Of each artifact are kept, by its SHA-256: the probability of each token; the expert's weight before each token, without
its prior, under each rule that was asked for; the sum of each block. An entry depends on nothing but its artifacts and
the rule, so that an answer does not depend on what was kept before it. All processes of a machine have a bound of their
own.
Letters: E experts, N blocks, D texts, M groups of positions, G positions of a group (see `engine.mixing.quick_sums`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from engine.clusters.distances import open_distances
from engine.files import ArtifactRef
from engine.inference.scores import (
    as_blocks,
    counted_tokens,
    mixed_perplexity,
    open_scores,
    require_same_cards,
    score_card,
)
from engine.mixing.base import FLOOR, FixedGate, Gate, mix
from engine.mixing.cluster import ClusterGate, ClusterPosteriorGate
from engine.mixing.evidence import READINGS
from engine.mixing.posterior import PosteriorGate, UpdatingGate
from engine.mixing.quick_sums import fixed_total, likelihoods_of, weighted_total, weights_of
from engine.statistics.perplexity import perplexity_of

MOST_BYTES = 256 << 20

Number = TypeVar("Number", np.float32, np.float64)


class ByteCache:
    """Arrays by key, the last used of them within a bound in bytes; for any number of threads."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = self.num_hits = self.num_misses = 0
        self._arrays: OrderedDict[Hashable, NDArray[Any]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], NDArray[Number]]) -> NDArray[Number]:
        """The array of a key, made where it is not kept. An array that exceeds the bound is not kept."""
        with self._lock:
            if (kept := self._arrays.get(key)) is not None:
                self._arrays.move_to_end(key)
                self.num_hits += 1
                return kept
            self.num_misses += 1
        made = make()
        made.flags.writeable = False
        with self._lock:
            if key not in self._arrays and made.nbytes <= self.most_bytes:
                self._arrays[key] = made
                self.num_bytes += made.nbytes
            while self.num_bytes > self.most_bytes:
                self.num_bytes -= self._arrays.popitem(last=False)[1].nbytes
        return made


CACHE = ByteCache(MOST_BYTES)


class QuickSums:
    """The log-likelihoods of texts under a gate, from kept arrays; NaN of a text for which this is not possible.

    A gate with clusters has the distances of each text.
    """

    def __init__(
        self,
        gate: Gate,
        texts: Sequence[Sequence[ArtifactRef]],
        distances: Sequence[ArtifactRef | None],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._gate, self._texts, self._distances = gate, texts, distances
        self._active = _with_weight(gate)
        self._learned = self._learn(gate, pool) if isinstance(gate, UpdatingGate) and len(self._active) > 1 else {}

    def total(self, number: int) -> float:
        """The mixture's log-likelihood of a text (nats)."""
        if not self._can(number):
            return math.nan
        experts, gate = [self._texts[number][place] for place in self._active], self._gate
        if isinstance(gate, FixedGate):
            weights_E = gate.log_weights_E[self._active].exp().numpy()
            return fixed_total(weights_E, [_likelihoods(one, gate) for one in experts])
        assert isinstance(gate, PosteriorGate | ClusterGate)
        priors_EN = self._learned.get(number, gate.log_prior_E[self._active].numpy()[:, None])
        is_plain = not isinstance(gate, ClusterPosteriorGate) and gate.top_k is None
        if is_plain and isinstance(gate, PosteriorGate) and gate.evidence == READINGS["prefix"]:  # its `total` does so
            sums_EN = np.stack([_block_sums(one, gate) for one in experts])
            return float(mix(torch.from_numpy(priors_EN), torch.from_numpy(sums_EN)).sum())
        distances = self._distances[number]
        weights = [_weights(one, gate, place, distances) for one, place in zip(experts, self._active, strict=True)]
        return weighted_total(priors_EN, weights, [_likelihoods(one, gate) for one in experts], gate.top_k)

    def _can(self, number: int) -> bool:
        """Whether several experts take part, and all tokens count; raises ScoresError for scores of several texts."""
        text, distances = self._texts[number], self._distances[number]
        if len(self._active) < 2 or any(one.sha256 is None for one in text):
            return False  # an expert on its own has its own bits (law L1)
        if _nearness(self._gate) and (distances is None or distances.sha256 is None):
            return False
        require_same_cards([_card(one) for one in text])
        return bool(_card(text[0])["all_count"])

    def _learn(self, gate: UpdatingGate, pool: ThreadPoolExecutor) -> dict[int, NDArray[np.float64]]:
        """The priors [E, N] of each text, learnt side by side by texts with as many blocks."""

        def at_ends(scores: ArtifactRef) -> NDArray[np.float64]:
            key = scores.sha256, "ends", gate.evidence, _block_size(scores, gate)
            return CACHE.get(key, lambda: gate.evidence_at_end(_blocks(scores, gate))[0].double().numpy())

        def ends(number: int) -> NDArray[np.float64]:
            return np.stack([at_ends(self._texts[number][place]) for place in self._active])

        numbers = [number for number in range(len(self._texts)) if self._can(number)]
        by_size: dict[int, dict[int, NDArray[np.float64]]] = {}
        for number, ends_EN in zip(numbers, pool.map(ends, numbers), strict=True):
            by_size.setdefault(ends_EN.shape[1], {})[number] = ends_EN
        learned, prior_E = {}, gate.log_prior_E[self._active].numpy()
        for same in by_size.values():
            priors_END = gate.priors_after(prior_E, np.stack(list(same.values()), 2))[:, :-1]
            learned.update({number: priors_END[..., place] for place, number in enumerate(same)})
        return learned


def _with_weight(gate: Gate) -> list[int]:
    """The experts that take part; none of a gate that needs more than kept arrays."""
    if type(gate) is FixedGate:
        return _finite(gate.log_weights_E)
    if type(gate) not in (PosteriorGate, UpdatingGate, ClusterGate, ClusterPosteriorGate):
        return []
    assert isinstance(gate, PosteriorGate | ClusterGate)
    active = _finite(gate.log_prior_E)
    if isinstance(gate, ClusterPosteriorGate) and gate.nearness and not set(active) <= set(gate.places_C):
        return []  # how much the clusters get together then depends on all of them
    return active


def _finite(logs_E: torch.Tensor) -> list[int]:
    places: list[int] = torch.nonzero(logs_E > -torch.inf).flatten().tolist()
    return places


def _nearness(gate: Gate) -> ClusterGate | None:
    """The part of a gate that goes by distances."""
    return gate if isinstance(gate, ClusterGate) else gate.nearness if isinstance(gate, ClusterPosteriorGate) else None


@lru_cache(maxsize=1 << 14)
def _card(scores: ArtifactRef) -> dict[str, Any]:
    return score_card(scores.folder) | {"all_count": counted_tokens(scores.folder) is None}


def _block_size(scores: ArtifactRef, gate: Gate) -> int:
    """The number of tokens after which evidence starts again."""
    card = _card(scores)
    size, total = int(card["block_size"]), int(card["num_tokens"])
    return min(gate.update_every, -(-total // size) * size) if isinstance(gate, UpdatingGate) else size


def _blocks(scores: ArtifactRef, gate: Gate) -> torch.Tensor:
    """The scores [1, N, T] of an artifact, in blocks in which evidence gathers."""
    return as_blocks(open_scores([scores.folder])[0], _block_size(scores, gate))


def _likelihoods(scores: ArtifactRef, gate: Gate) -> NDArray[np.float32]:
    key = scores.sha256, "likelihoods", _block_size(scores, gate)
    return CACHE.get(key, lambda: likelihoods_of(_blocks(scores, gate)[0].numpy()))


def _weights(
    scores: ArtifactRef, gate: PosteriorGate | ClusterGate, expert: int, distances: ArtifactRef | None
) -> NDArray[np.float32]:
    """Those of the expert in this place: by the evidence, by the distance to its cluster, or by both."""
    nearness, cluster, rule = _nearness(gate), 0, None
    if nearness is not None and distances is not None:
        number = gate.places_C.index(expert) if isinstance(gate, ClusterPosteriorGate) else expert
        cluster = int(nearness.clusters_E[number])
        rule = distances.sha256, cluster, nearness.temperature, nearness.distance_power, nearness.freeze_after

    def make() -> NDArray[np.float32]:
        blocks_1NT = _blocks(scores, gate)
        logs_NT = (
            gate.evidence_before(blocks_1NT)[0]
            if isinstance(gate, PosteriorGate)
            else torch.zeros(blocks_1NT.shape[1:])
        )
        if nearness is not None and distances is not None:
            measured = open_distances(distances.folder)
            logs_NT = logs_NT + nearness.relative_nearness(measured, cluster, *logs_NT.shape)
        return weights_of(logs_NT.numpy())

    evidence = gate.evidence if isinstance(gate, PosteriorGate) else None
    return CACHE.get((scores.sha256, "weights", evidence, _block_size(scores, gate), rule), make)


def _block_sums(scores: ArtifactRef, gate: PosteriorGate) -> NDArray[np.float64]:
    def make() -> NDArray[np.float64]:
        logprobs_NT = _blocks(scores, gate)[0]
        sums_N = logprobs_NT.sum(-1, dtype=torch.float64)
        # below FLOOR evidence is not what was seen, and blocks do not add up: NaN leaves them to exact sums
        return sums_N.masked_fill(~(logprobs_NT >= FLOOR).all(-1), math.nan).numpy()

    return CACHE.get((scores.sha256, "sums", _block_size(scores, gate)), make)


def mixed_perplexities(
    gate: Gate, texts: Sequence[Sequence[ArtifactRef]], distances: Sequence[ArtifactRef | None]
) -> list[float]:
    """The perplexity of a mixture on each text, which is given by the artifacts with the scores of its experts.

    `distances` are the artifacts with those of each text to clusters, for a gate that needs them.

    As many texts as there are threads are read and summed at the same time, so that memory does not grow with them.
    What was read is kept for the next call: so a perplexity may differ from that of
    `mixed_perplexity` by rounding in float32.
    """
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        quick = QuickSums(gate, texts, distances, pool)

        def perplexity_on(number: int) -> float:
            total, folders = quick.total(number), [one.folder for one in texts[number]]
            if math.isnan(total):
                measured = distances[number]
                near = None if measured is None else open_distances(measured.folder)
                return mixed_perplexity(gate, *open_scores(folders), near, counted_tokens(folders[0]))
            return perplexity_of(-total / int(_card(texts[number][0])["num_tokens"]))

        return list(pool.map(perplexity_on, range(len(texts))))
