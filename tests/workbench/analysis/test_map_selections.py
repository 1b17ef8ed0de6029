"""Who reads the documents of a selection, how well, and what experts gained on their own domain."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.analysis.map_selections import gains_of, readings_of

NAN = float("nan")
LOSSES = {
    "law": np.array([1.0, 2.0, NAN, 5.0, 5.0, 9.0], dtype=np.float32),
    "sea": np.array([2.0, 4.0, 3.0, 3.0, 4.0, 9.0], dtype=np.float32),
}


def test_experts_are_compared_on_the_documents_that_all_were_scored_on_the_best_first() -> None:
    readings = readings_of(LOSSES, np.array([0, 1, 2]))
    assert [(one.expert, one.num_documents, one.loss.mean) for one in readings] == [("law", 2, 1.5), ("sea", 2, 3.0)]
    assert readings[0].loss.low < 1.5 < readings[0].loss.high


def test_a_single_scored_document_says_nothing() -> None:
    assert readings_of(LOSSES, np.array([0])) == readings_of({}, np.array([0, 1])) == []


def test_an_expert_that_scored_nothing_of_a_selection_does_not_blank_the_others() -> None:
    losses = {**LOSSES, "new": np.full(6, np.nan, dtype=np.float32)}
    assert [one.expert for one in readings_of(losses, np.array([3, 4]))] == ["sea", "law"]


def test_the_gain_of_an_expert_is_over_the_best_of_the_others_on_its_own_domain() -> None:
    own = {"law": np.array([1, 1, 1, 0, 0, 0], dtype=bool), "sea": np.array([0, 0, 0, 1, 1, 0], dtype=bool)}
    assert gains_of(LOSSES, own) == {"law": pytest.approx(1.5), "sea": pytest.approx(1.5)}


def test_an_expert_without_another_to_compare_with_has_no_gain() -> None:
    assert gains_of({"law": LOSSES["law"]}, {"law": np.ones(6, dtype=bool)}) == {}
