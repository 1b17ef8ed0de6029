from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.text.corpus import Document
from engine.text.overlap import (
    OverlapCorrelation,
    correlation,
    domain_bigrams,
    frequent_bigrams,
    overlap,
    overlap_matrix,
    student_t,
)
from engine.text.split import store_documents

SEA = ["the grey sea rose", "the grey sea fell"]
SKY = ["the grey sky rose"]
TEXTS = st.lists(st.text("abc ", max_size=30), max_size=5)


def test_a_bigram_is_two_words_in_a_row_of_one_document() -> None:
    assert frequent_bigrams(["The  Grey\nsea", "sea the"]) == {"the grey", "grey sea", "sea the"}


def test_only_the_most_frequent_are_kept_and_ties_go_by_letters() -> None:
    assert frequent_bigrams(SEA, num_bigrams=3) == {"the grey", "grey sea", "sea fell"}


def test_no_more_text_is_read_than_the_sample() -> None:
    def texts():
        yield "one two three"
        yield "four fünf"
        raise AssertionError("the sample was full")

    assert frequent_bigrams(texts(), sample_bytes=20) == {"one two", "two three", "four f"}


def test_one_endless_document_is_cut_where_the_sample_ends() -> None:
    assert len(frequent_bigrams(["ü " * 10_000 + "never seen"], sample_bytes=1000)) == 1


def test_the_overlap_is_the_share_of_bigrams_in_common() -> None:
    sea, sky = frequent_bigrams(SEA), frequent_bigrams(SKY)
    assert overlap(sea, sky) == pytest.approx(1 / 3)
    assert overlap(sky, frequent_bigrams(["something else"])) == 0
    assert overlap(frequent_bigrams([]), sky) == 0


@given(TEXTS, TEXTS)
def test_overlap_is_symmetric_between_nothing_and_all_and_complete_with_itself(
    one: list[str], other: list[str]
) -> None:
    a, b = frequent_bigrams(one), frequent_bigrams(other)
    assert 0 <= overlap(a, b) == overlap(b, a) <= 1
    assert overlap(a, a) == (1 if a else 0)


@given(TEXTS, st.randoms())
def test_the_order_of_the_documents_does_not_matter(texts: list[str], draw) -> None:
    mixed = list(texts)
    draw.shuffle(mixed)
    assert frequent_bigrams(mixed, num_bigrams=4) == frequent_bigrams(texts, num_bigrams=4)


def test_the_matrix_has_experts_down_and_domains_across() -> None:
    sea, sky, land = frequent_bigrams(SEA), frequent_bigrams(SKY), frequent_bigrams(["a green field"])
    matrix = overlap_matrix([sea, land], [sea, sky, land])
    assert matrix == pytest.approx(np.array([[1, 1 / 3, 0], [0, 0, 1]]))


def test_bigrams_of_a_domain_are_those_of_its_training_text(tmp_path: Path) -> None:
    documents = [Document(f"number {i} was here") for i in range(40)]
    list(store_documents(documents, tmp_path / "corpus"))
    result = domain_bigrams(tmp_path / "corpus" / "0")
    assert "was here" in result
    assert 36 < len(result) < 80, "held-out text was read"
    assert result == domain_bigrams(tmp_path / "corpus" / "0")


RATIOS = [[1.0, 2.0, 4.0], [1.5, 1.0, 3.0], [5.0, 4.0, 1.0]]
OVERLAPS = [[1.0, 0.4, 0.2], [0.4, 1.0, 0.3], [0.2, 0.3, 1.0]]


def test_experts_that_carry_over_where_text_is_shared_correlate_positively() -> None:
    result = correlation(RATIOS, OVERLAPS)
    off = ~np.eye(3, dtype=bool)
    expected = np.corrcoef(-np.array(RATIOS)[off], np.array(OVERLAPS)[off])[0, 1]
    assert (result.r, result.num_cells) == (pytest.approx(expected), 6)
    assert result.r > 0.9
    assert 0 < result.p < 0.05


def test_the_in_domain_cells_count_only_on_request() -> None:
    assert correlation(RATIOS, OVERLAPS, with_own=True).num_cells == 9
    wide = [[2.0, 1.0, 4.0, 7.0], [1.0, 3.0, 5.0, 6.0]]
    assert correlation(wide, [[0.1, 1, 0.3, 0.2], [1, 0.2, 0.4, 0.3]], own_columns=[1, 0]).num_cells == 6


def test_cells_that_were_not_measured_are_left_out() -> None:
    holes = [[1.0, None, 4.0], [1.5, 1.0, float("nan")], [5.0, 4.0, 1.0]]
    assert correlation(holes, OVERLAPS).num_cells == 4


def test_the_papers_t_fits_its_r_with_all_64_cells_and_not_with_56() -> None:
    """DEMix §4.4: r = 0.40, t = 3.45, p = 0.001, for 8 experts on 8 domains."""
    assert student_t(0.395, 64) < 3.45 < student_t(0.405, 64)
    assert student_t(0.405, 56) < 3.3


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.1, 10), st.floats(-5, 5))
def test_neither_unit_nor_order_of_the_domains_changes_the_correlation(seed: int, scale: float, shift: float) -> None:
    draw = np.random.default_rng(seed)
    ratios, overlaps = draw.random((2, 5, 5))
    order = draw.permutation(5)
    before = correlation(ratios, overlaps)
    after = correlation((scale * ratios + shift)[np.ix_(order, order)], overlaps[np.ix_(order, order)])
    assert (after.r, after.t, after.p) == pytest.approx((before.r, before.t, before.p), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("ratios", "overlaps"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.5, 1.0]]),
        ([[1.0] * 3] * 3, OVERLAPS),
        (RATIOS, [[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]]),
        (RATIOS, [[1.0, 0.5], [0.5, 1.0]]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    ],
)
def test_what_has_no_correlation_is_refused(ratios: list[object], overlaps: list[object]) -> None:
    with pytest.raises(EngineError, match=r"matrices of one shape|different cells"):
        correlation(ratios, overlaps)


def test_an_exact_line_has_no_finite_t() -> None:
    assert OverlapCorrelation(1.0, student_t(1.0, 6), 0.0, 6).t == math.inf
    assert student_t(-1.0, 6) == -math.inf
