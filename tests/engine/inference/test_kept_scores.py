"""Scores are kept by content within a bound, and perplexities are those of scores that are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ScoresError
from engine.files import ArtifactRef, write_manifest
from engine.inference import kept_scores
from engine.inference.kept_scores import CACHE, ByteCache
from engine.inference.scores import counted_tokens, mixed_perplexities, mixed_perplexity, open_scores
from engine.mixing.base import Gate
from engine.mixing.evidence import EvidenceRule
from engine.mixing.fixed import FixedGate
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


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    CACHE.clear()
    yield
    CACHE.clear()


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


def as_read(gate: Gate, text: Sequence[ArtifactRef]) -> float:
    folders = [one.folder for one in text]
    return mixed_perplexity(gate, *open_scores(folders), None, counted_tokens(folders[0]))


def kept(gate: Gate, texts: Texts) -> list[float]:
    return mixed_perplexities(gate, texts, [None] * len(texts))


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
    num_misses = CACHE.num_misses
    monkeypatch.setattr(kept_scores, "open_scores", lambda _: pytest.fail("a file is read"))
    kept(PosteriorGate(PRIOR, "last_token", 2), texts)
    assert CACHE.num_misses == num_misses


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
        assert kept(gate, [text]) == pytest.approx([as_read(gate, text)], rel=1e-12)


def test_tokens_that_do_not_count_are_left_out(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    counts = draw.random(50) < 0.5
    text = [written(tmp_path / str(expert), -draw.exponential(3, 50), counts) for expert in range(NUM_EXPERTS)]
    assert kept(GATES["prefix"], [text]) == [as_read(GATES["prefix"], text)]


def test_scores_of_several_texts_are_refused(texts: Texts) -> None:
    with pytest.raises(ScoresError, match="differ in their tokens"):
        kept(GATES["prefix"], [[*texts[0][:3], texts[2][3]]])


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
