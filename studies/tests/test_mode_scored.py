"""Losses and hits of MoDE's arms come from stored scores, or are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.config import TrainingConfig
from studies.tests.score_files import BLOCK, COUNTS, write_scores
from workbench_studies.core.measurements import ScoreKey, Stored
from workbench_studies.mode.arms import BACKBONE, SIZES, Arms, ModeRun, ReplicateMode
from workbench_studies.mode.claims import ModeMeasurements

SIZE = replace(SIZES["smoke"], training=TrainingConfig(block_size=BLOCK), test_tokens=COUNTS["test"])
DOMAINS = ["books", "cs", "law", "wiki"]
SUBJECT = ReplicateMode(
    name="rep", seeds=1, domains=DOMAINS, novel=["sea"], budget=SIZE, targets=["cs", "law"], retention="books"
)
RUN, ROWS = ModeRun("rep", 0), Arms(SIZE).table_1


@pytest.fixture
def scores(tmp_path: Path) -> dict[ScoreKey, Stored]:
    """Of the backbone and of table 1 everywhere."""
    experts = [RUN.expert(arm, SUBJECT.targets) for arm in (BACKBONE, *ROWS.values())]
    return write_scores(tmp_path, ((e, d, "test") for e in experts for d in SUBJECT.everywhere), with_hits=True)


def measured(scores: dict[ScoreKey, Stored]) -> ModeMeasurements:
    into = ModeMeasurements(SUBJECT)
    assert len(list(into.measure(scores))) == 5
    return into


def test_every_arm_has_the_perplexity_and_the_accuracy_of_its_own_expert(scores: dict[ScoreKey, Stored]) -> None:
    result = measured(scores)
    for arm in (BACKBONE, *ROWS.values()):
        folder = scores[RUN.expert(arm, SUBJECT.targets), "law", "test"].kept.folder
        logprobs, hits = (np.load(folder / f"{name}.npy") for name in ("logprobs", "hits"))
        assert result.losses[arm, 0, "law"].value == pytest.approx(np.exp(-logprobs.astype(float).mean()))
        assert result.hits[arm, 0, "law"].value == pytest.approx(hits.mean())
    assert len({result.hits[arm, 0, "law"].value for arm in ROWS.values()}) > 3


@pytest.mark.parametrize("shared", [True, False])
def test_a_shared_backbone_has_its_scores_in_every_seed(scores: dict[ScoreKey, Stored], shared: bool) -> None:
    into = ModeMeasurements(SUBJECT.model_copy(update={"seeds": 2, "budget": replace(SIZE, shared_backbone=shared)}))
    assert list(into.measure(scores))
    assert ((BACKBONE, 1, "law") in into.hits) == shared
    assert (ROWS["full"], 1, "law") not in into.hits
    if shared:
        assert into.hits[BACKBONE, 1, "law"].value == into.hits[BACKBONE, 0, "law"].value


def test_what_has_no_scores_or_no_hits_is_left_out(scores: dict[ScoreKey, Stored]) -> None:
    full, lora = (RUN.expert(ROWS[row], SUBJECT.targets) for row in ("full", "lora"))
    del scores[full, "cs", "test"]
    (scores[lora, "cs", "test"].kept.folder / "hits.npy").unlink()
    result = measured(scores)
    assert (ROWS["full"], 0, "cs") not in result.losses
    assert (ROWS["lora"], 0, "cs") in result.losses
    assert not {(ROWS[row], 0, "cs") for row in ("full", "lora")} & result.hits.keys()
    assert not {arm for arm, _, _ in result.losses} - {BACKBONE, *ROWS.values()}


def test_the_texts_of_table_1_are_the_targets_and_what_is_retained() -> None:
    assert SUBJECT.judged == ["cs", "law", "books"]
    assert SUBJECT.others == ["wiki"]
