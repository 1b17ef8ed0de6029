"""Scores are kept by content within a bound, and perplexities are those of scores that are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.clusters.distances import open_distances
from engine.errors import ScoresError
from engine.files import ArtifactRef, write_manifest
from engine.inference import kept_scores
from engine.inference.kept_scores import ByteCache, mixed_perplexities
from engine.inference.scores import counted_tokens, mixed_perplexity, open_scores
from engine.mixing.base import FixedGate, Gate
from engine.mixing.cluster import ClusterGate, Routing
from engine.mixing.evidence import AnyEvidence, EvidenceRule
from engine.mixing.gate_type import GateConfig, build_gate
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.mixing.gates.cluster_posterior import ClusterPosteriorGateConfig
from engine.mixing.gates.fixed import FixedGateConfig
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.mixing.gates.updating import UpdatingGateConfig
from engine.mixing.posterior import PosteriorGate, UpdatingGate

NUM_EXPERTS, BLOCK = 4, 20
PRIOR = [1.0, 2.0, 0.0, 3.0]
GATES: dict[str, Gate] = {
    "prefix": PosteriorGate(PRIOR),
    "top-k": PosteriorGate(PRIOR, top_k=2),
    "last token": PosteriorGate(PRIOR, "last_token"),
    "forgetting": PosteriorGate(PRIOR, EvidenceRule(0.5, 0.6, 0.98, 0.08)),
    "updating": UpdatingGate(PRIOR, update_every=BLOCK),
    "updating in longer blocks": UpdatingGate(PRIOR, "last_token", 2, update_every=33),
    "updating after all": UpdatingGate(PRIOR, "last_token", update_every=10_000),
    "fixed": FixedGate(PRIOR),
    "fixed, top-k": FixedGate(PRIOR, 2),
    "one": PosteriorGate([0, 0, 1, 0]),
}
Texts = list[list[ArtifactRef]]
EVIDENCE: st.SearchStrategy[AnyEvidence] = st.sampled_from(["prefix", "last_token", EvidenceRule(0.5, 0.6, 0.98, 0.08)])
TEMPERATURES, POWERS, FREEZES = (
    st.sampled_from([0.01, 0.1, 2.0]),
    st.sampled_from([2.0, 4.0]),
    st.sampled_from([None, 5]),
)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_scores, "CACHE", ByteCache(kept_scores.MOST_BYTES))


def written(folder: Path, logprobs: np.ndarray, counted: Sequence[bool] | None = None) -> ArtifactRef:
    folder.mkdir()
    np.save(folder / "logprobs.npy", logprobs.astype(np.float32))
    if counted is not None:
        np.save(folder / "counted.npy", np.array(counted))
    card = {"block_size": BLOCK, "num_tokens": len(logprobs)}
    (folder / "scores.json").write_text(json.dumps(card), encoding="utf-8")
    return ArtifactRef(folder, write_manifest(folder))


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    """Three texts, two of them of one length."""
    draw = np.random.default_rng(0)
    return [
        [written(tmp_path / f"{text}-{expert}", -draw.exponential(3, size)) for expert in range(NUM_EXPERTS)]
        for text, size in enumerate((205, 205, 97))
    ]


@pytest.fixture
def distances(tmp_path: Path) -> list[ArtifactRef]:
    """Of each text, to as many clusters as there are experts."""
    draw = np.random.default_rng(1)
    return [measured(tmp_path / f"{text}-near", draw, size) for text, size in enumerate((205, 205, 97))]


def measured(folder: Path, draw: np.random.Generator, size: int) -> ArtifactRef:
    folder.mkdir()
    squared_KX = draw.uniform(0, 3, (NUM_EXPERTS, size))
    np.save(folder / "further.npy", (squared_KX - squared_KX.min(0)).astype(np.float32))
    np.save(folder / "nearest.npy", squared_KX.min(0).astype(np.float32))
    np.save(folder / "known.npy", np.arange(size, dtype=np.int32))
    (folder / "distances.json").write_text(json.dumps({"block_size": BLOCK, "num_tokens": size}), encoding="utf-8")
    return ArtifactRef(folder, write_manifest(folder))


def as_read(gate: Gate, text: Sequence[ArtifactRef], near: ArtifactRef | None = None) -> float:
    folders = [one.folder for one in text]
    distances = None if near is None else open_distances(near.folder)
    return mixed_perplexity(gate, *open_scores(folders), distances, counted_tokens(folders[0]))


def kept(gate: Gate, texts: Texts, distances: Sequence[ArtifactRef | None] = (None,) * 3) -> list[float]:
    return mixed_perplexities(gate, texts, distances)


CONFIGS: st.SearchStrategy[GateConfig] = st.one_of(
    st.builds(FixedGateConfig),
    st.builds(PosteriorGateConfig, evidence=EVIDENCE),
    st.builds(UpdatingGateConfig, evidence=EVIDENCE, update_every=st.sampled_from([1, 9, BLOCK, 33, 10_000])),
    st.builds(ClusterGateConfig, temperature=TEMPERATURES, distance_power=POWERS, freeze_after=FREEZES),
    st.builds(
        ClusterPosteriorGateConfig,
        evidence=EVIDENCE,
        temperature=TEMPERATURES,
        distance_power=POWERS,
        freeze_after=FREEZES,
    ),
)


WEIGHTS: st.SearchStrategy[float] = st.sampled_from([0.0, 1.0, 1.0]) | st.floats(1e-6, 1e6)  # equal ones, too


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    config=CONFIGS,
    weights=st.lists(WEIGHTS, min_size=NUM_EXPERTS, max_size=NUM_EXPERTS).filter(any),
    top_k=st.none() | st.integers(1, NUM_EXPERTS),
    clusters=st.permutations([0, 1, 2, 3]) | st.just([2, 2, 1, 0]),
    has_unclustered=st.booleans(),
)
def test_every_gate_prior_and_toggle_gives_what_is_read(
    config: GateConfig,
    weights: list[float],
    top_k: int | None,
    clusters: list[int | None],
    has_unclustered: bool,
    texts: Texts,
    distances: list[ArtifactRef],
) -> None:
    if has_unclustered and config.kind == "cluster-posterior":
        clusters = [*clusters[:3], None]
    gate = build_gate(replace(config, top_k=top_k), weights, Routing(clusters))
    expected = [as_read(gate, *both) for both in zip(texts, distances, strict=True)]
    assert kept(gate, texts, distances) == pytest.approx(expected, rel=1e-6)


def test_a_toggle_of_a_cluster_gate_reads_no_file(
    texts: Texts, distances: list[ArtifactRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    routing = Routing(range(NUM_EXPERTS))
    kept(ClusterGate([1.0] * NUM_EXPERTS, routing, top_k=2), texts, distances)
    monkeypatch.setattr(kept_scores, "open_scores", lambda _: pytest.fail("a file is read"))
    monkeypatch.setattr(kept_scores, "open_distances", lambda _: pytest.fail("a file is read"))
    kept(ClusterGate(PRIOR, routing, top_k=2), texts, distances)


def test_a_cluster_gate_without_distances_is_refused(texts: Texts) -> None:
    with pytest.raises(ScoresError, match="distances"):
        kept(ClusterGate(PRIOR, Routing(range(NUM_EXPERTS))), texts)


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_perplexities_are_those_of_scores_that_are_read(gate: Gate, texts: Texts) -> None:
    assert kept(gate, texts) == pytest.approx([as_read(gate, text) for text in texts], rel=1e-6)


def test_a_single_expert_has_its_own_bits(texts: Texts) -> None:  # L1
    assert kept(GATES["one"], texts) == [as_read(GATES["one"], text) for text in texts]


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_what_was_kept_before_does_not_change_an_answer(gate: Gate, texts: Texts) -> None:
    first = kept(gate, texts)
    for other in GATES.values():
        kept(other, texts)
    assert kept(gate, texts) == first


def test_an_answer_after_a_toggle_reads_no_file(texts: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    everyone = PosteriorGate([1.0] * NUM_EXPERTS, "last_token", 2)
    kept(everyone, texts)
    num_misses = kept_scores.CACHE.num_misses
    monkeypatch.setattr(kept_scores, "open_scores", lambda _: pytest.fail("a file is read"))
    kept(PosteriorGate(PRIOR, "last_token", 2), texts)
    assert kept_scores.CACHE.num_misses == num_misses


def test_other_scores_in_the_same_place_are_other_scores(texts: Texts) -> None:
    gate, place = GATES["last token"], texts[2][0].folder
    before = kept(gate, texts)
    shutil.rmtree(place)
    texts[2][0] = written(place, np.full(97, -0.5))
    after = kept(gate, texts)
    assert after[:2] == before[:2]
    assert after[2] == pytest.approx(as_read(gate, texts[2]), rel=1e-6)
    assert after[2] < 0.9 * before[2]


def test_a_token_that_nobody_finds_possible_is_summed_exactly(tmp_path: Path) -> None:
    logprobs = -np.random.default_rng(0).exponential(3, (NUM_EXPERTS, 50))
    logprobs[:, 30] = -200
    text = [written(tmp_path / str(expert), row) for expert, row in enumerate(logprobs)]
    for gate in GATES.values():
        assert kept(gate, [text], [None]) == pytest.approx([as_read(gate, text)], rel=1e-12)


def test_tokens_that_do_not_count_are_left_out(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    counts = draw.random(50) < 0.5
    text = [written(tmp_path / str(expert), -draw.exponential(3, 50), counts) for expert in range(NUM_EXPERTS)]
    assert kept(GATES["prefix"], [text], [None]) == [as_read(GATES["prefix"], text)]


def test_scores_of_several_texts_are_refused(texts: Texts) -> None:
    with pytest.raises(ScoresError, match="differ in their tokens"):
        kept(GATES["prefix"], [[*texts[0][:3], texts[2][3]]], [None])


def test_the_least_recently_used_arrays_leave_a_full_cache() -> None:
    cache = ByteCache(most_bytes=3 * 80)

    def get(key: str, size: int = 10) -> None:
        cache.get(key, lambda: np.zeros(size))

    for key in "abcab":
        get(key)
    assert (cache.num_hits, cache.num_misses, cache.num_bytes) == (2, 3, 240)
    get("d")  # c leaves
    for key in "abd":
        get(key)
    assert (cache.num_hits, cache.num_misses, cache.num_bytes) == (5, 4, 240)
    get("c")
    assert cache.num_misses == 5
    get("much", 100)  # is not kept, and nothing leaves
    assert cache.num_bytes == 240
    get("c")
    assert cache.num_hits == 6


def test_kept_arrays_cannot_be_changed() -> None:
    array = ByteCache(1000).get("a", lambda: np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize("gate", [GATES["prefix"], GATES["updating"]], ids=["prefix", "updating"])
def test_a_text_that_each_expert_finds_impossible_somewhere_has_the_perplexity_of_its_scores(
    gate: Gate, tmp_path: Path
) -> None:
    logprobs_EX = -np.random.default_rng(0).exponential(3, (NUM_EXPERTS, 2 * BLOCK))
    logprobs_EX[range(NUM_EXPERTS), range(NUM_EXPERTS)] = -np.inf
    text = [written(tmp_path / str(expert), one) for expert, one in enumerate(logprobs_EX)]
    exact = mixed_perplexity(gate, *open_scores([one.folder for one in text]), None, None)
    assert mixed_perplexities(gate, [text], [None]) == [exact]
