"""An excerpt speaks for its whole split: few tokens still come from many documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.blocks import EvalSample, Tokens, eval_sample, evenly_spaced

DOCUMENT = 50


@pytest.fixture
def split() -> Tokens:
    """20 documents of 50 tokens."""
    return Tokens(np.arange(20 * DOCUMENT, dtype=np.uint16), np.arange(0, 20 * DOCUMENT, DOCUMENT))


def test_a_tenth_of_the_tokens_comes_from_half_of_the_documents(split: Tokens) -> None:
    text = EvalSample.of(split, 10, 100)
    assert text.num_tokens == 100
    assert len(set(text.documents_N.tolist())) == 10
    assert text.documents_N[-1] >= 17


def test_a_split_that_is_not_too_long_is_taken_in_full_to_its_last_token(split: Tokens) -> None:
    text = EvalSample.of(split, 64, 10_000)
    assert text.num_tokens == len(split) - 1
    assert np.concatenate([targets.ravel() for _, targets in text.batches(3)]).tolist() == split.array[1:].tolist()


def test_a_block_predicts_the_tokens_that_follow_its_own(split: Tokens) -> None:
    text = EvalSample.of_blocks(split, 8, 3)
    for n, start in enumerate(text.starts_N):
        inputs, targets = text.block(n)
        assert (inputs.tolist(), targets.tolist()) == (list(range(start, start + 8)), list(range(start + 1, start + 9)))


@given(length=st.integers(0, 300), block_size=st.integers(1, 40), max_tokens=st.integers(1, 400))
def test_blocks_never_overlap_and_all_batches_together_are_the_excerpt(
    length: int, block_size: int, max_tokens: int
) -> None:
    text = EvalSample.of(
        Tokens(np.arange(length, dtype=np.uint16), np.zeros(1, dtype=np.int64)), block_size, max_tokens
    )
    predicted = [token for _, targets in text.batches(4) for token in targets.ravel().tolist()]
    assert len(predicted) == len(set(predicted)) == text.num_tokens
    assert text.num_tokens <= max_tokens
    assert predicted == sorted(predicted)


@given(available=st.integers(0, 200), wanted=st.integers(1, 50))
def test_places_are_as_many_as_wanted_and_evenly_apart(available: int, wanted: int) -> None:
    places = evenly_spaced(available, wanted)
    assert len(places) == min(available, wanted)
    assert len(places) < 2 or np.ptp(np.diff(places)) <= 1


def test_the_hash_differs_for_other_places_and_other_tokens(split: Tokens) -> None:
    changed = eval_sample(np.array([*split.array[:-1], 7]), 10)
    hashes = [EvalSample.of(split, 10, most).sha256 for most in (100, 200)]
    hashes += [eval_sample(split.array, 10).sha256, changed.sha256]
    assert len(set(hashes)) == 4
    assert EvalSample.of(split, 10, 100).sha256 == hashes[0]
