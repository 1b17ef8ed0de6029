"""Losses come from stored scores by the engine's own gates, or are left out with what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.analysis.calibration import DevText, calibrate_from_equal_priors
from engine.analysis.inference_modes import compare_inference_modes
from engine.config import TrainingConfig
from engine.inference.scores import full_blocks, mix_scores, perplexity
from engine.mixing.evidence import READINGS
from engine.mixing.posterior import PosteriorGate, estimate_prior
from studies.tests.demix_worlds import calibration
from studies.tests.score_files import BLOCK, COUNTS, write_scores
from workbench_studies.core.measurements import Fit, ScoredText, ScoreKey, Stored
from workbench_studies.demix.measurements import DemixMeasurements
from workbench_studies.demix.names import (
    CALIBRATED,
    CODE,
    GRID,
    PAPER,
    SIZES,
    DemixRun,
    Reading,
    ReplicateDemix,
    System,
    Variant,
    system,
)

TEST, DEV = COUNTS.values()
SIZE = replace(SIZES["smoke"], training=TrainingConfig(block_size=BLOCK), test_tokens=TEST, prior_blocks=DEV // BLOCK)
TEXTS = {"domains": ["law", "sea"], "novel": ["poems"], "removed": ["law"]}
SUBJECT = ReplicateDemix(name="rep", seeds=1, budget=SIZE, **TEXTS)
RUN = DemixRun("rep", 0)
MODES: tuple[Variant, ...] = ("average", "uniform", "updating", "cached")


@pytest.fixture
def scores(tmp_path: Path) -> dict[ScoreKey, Stored]:
    """Scores of the DEMix experts everywhere, of Dense on test text, and of law's absence."""
    demix = [(expert, split) for expert in RUN.experts("demix", SUBJECT.domains) for split in ("test", "dev")]
    others = [(RUN.expert("dense", "law"), "test"), (f"{RUN.without('law')}/sea", "test"), (RUN.added("poems"), "test")]
    every = [*demix, *others]
    return write_scores(tmp_path, ((expert, domain, split) for expert, split in every for domain in SUBJECT.everywhere))


def measured(scores: dict[ScoreKey, Stored]) -> DemixMeasurements:
    into = DemixMeasurements(SUBJECT)
    assert len(list(into.measure(scores))) == 3
    return into


def rows(scores: dict[ScoreKey, Stored], domain: str, split: str) -> torch.Tensor:
    experts = RUN.experts("demix", SUBJECT.domains)
    folders = [scores[expert, domain, split].kept.folder for expert in experts]
    return torch.stack([torch.from_numpy(np.load(folder / "logprobs.npy")) for folder in folders])


@pytest.mark.parametrize("reading", [*GRID.values(), CODE, Reading("prefix", 0.3)], ids=str)
@pytest.mark.parametrize("domain", ["law", "poems"])
def test_every_mode_is_the_engines_own(scores: dict[ScoreKey, Stored], domain: str, reading: Reading) -> None:
    dev_ENT = full_blocks(rows(scores, domain, "dev"), BLOCK)
    prior_E = estimate_prior(PosteriorGate([1.0, 1.0], reading.evidence), dev_ENT, DEV // BLOCK)
    expected = compare_inference_modes(
        rows(scores, domain, "test"),
        BLOCK,
        own_row=0 if domain == "law" else None,
        cached_prior_E=prior_E,
        evidence=reading.evidence,
        newest_weight=reading.newest_weight,
    )
    result = measured(scores).losses
    for mode in MODES:
        loss = result[system(mode, reading), 0, domain]
        assert loss.value == pytest.approx(getattr(expected, mode), rel=1e-7)
        assert (len(loss.totals_N), loss.tokens_N.sum()) == (TEST // BLOCK, TEST)
        assert loss.documents_N.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    naive = expected.label if domain == "law" else expected.naive  # the label where there is one, else the best
    assert result[System("naive"), 0, domain].value == pytest.approx(naive, rel=1e-7)


def test_each_single_expert_is_listed_under_its_home(scores: dict[ScoreKey, Stored]) -> None:
    result = measured(scores).losses
    expected = np.exp(-rows(scores, "sea", "test").double().mean(1).numpy())
    assert [result[System("alone", domain=home), 0, "sea"].value for home in SUBJECT.domains] == pytest.approx(
        expected.tolist()
    )


def test_what_was_not_scored_is_left_out(scores: dict[ScoreKey, Stored]) -> None:
    names = {name for name, _, _ in measured(scores).losses}
    assert {System("dense"), System("naive"), system("minus expert", PAPER)} <= names
    missing = {System("dense-balanced"), System("domain-token"), system("grown", PAPER), system("minus domain", PAPER)}
    assert not names & missing


def shortened(scores: dict[ScoreKey, Stored], domain: str, num_tokens: int) -> dict[ScoreKey, Stored]:
    """The same scores, of which a domain's development text is shorter."""
    for (_, name, split), one in scores.items():
        if (name, split) == (domain, "dev"):
            path = one.kept.folder / "logprobs.npy"
            np.save(path, np.load(path)[:num_tokens])
    return {
        key: replace(score, num_tokens=num_tokens) if key[1:] == (domain, "dev") else score
        for key, score in scores.items()
    }


def test_a_short_development_text_gives_its_own_prior_of_what_it_has_and_leaves_the_others_unchanged(
    scores: dict[ScoreKey, Stored],
) -> None:
    before = measured(scores)
    result = measured(shortened(scores, "sea", 3 * BLOCK + 5))
    assert result.prior_blocks == {"law": DEV // BLOCK, "sea": 3, "poems": DEV // BLOCK}
    cached = system("cached", PAPER)
    assert result.losses[cached, 0, "law"].value == before.losses[cached, 0, "law"].value
    prior_E = estimate_prior(PosteriorGate([1.0, 1.0]), full_blocks(rows(scores, "sea", "dev"), BLOCK), 3)
    expected = mix_scores(PosteriorGate(prior_E.tolist()), rows(scores, "sea", "test"), BLOCK)
    assert result.losses[cached, 0, "sea"].value == pytest.approx(perplexity(expected))


def test_a_development_text_without_a_full_block_gives_no_prior_and_no_belief(scores: dict[ScoreKey, Stored]) -> None:
    result = measured(shortened(scores, "law", BLOCK - 1))
    assert (0, "law") not in result.beliefs
    names = {name for name, _, domain in result.losses if domain == "law"}
    assert not names & {system("cached", PAPER), system("minus expert", PAPER), system("demix-dapt", PAPER, "poems")}
    assert system("uniform", PAPER) in names


def test_a_reading_keeps_of_itself_what_touches_a_mode() -> None:
    assert system("cached", CODE) == system("cached", Reading("last_token", 0.7))
    assert system("updating", CODE) != system("updating", Reading("last_token", 0.7))
    assert system("naive", CODE) == System("naive")
    assert system("demix-dapt", PAPER, "poems") != system("demix-dapt", PAPER, "tweets")


def test_a_belief_holds_the_posteriors_of_the_development_text(scores: dict[ScoreKey, Stored]) -> None:
    belief = measured(scores).beliefs[0, "poems"]
    assert belief.experts == ("rep-s0/law", "rep-s0/sea")
    assert belief.documents_N.tolist() == [0, 0, 1, 1, 2]
    assert belief.posterior_EN.shape == (2, DEV // BLOCK)
    assert belief.updating_EN.shape == (2, DEV // BLOCK + 1)
    assert belief.posterior_EN.sum(0) == pytest.approx(np.ones(DEV // BLOCK))


def test_hits_are_read_beside_the_scores_and_are_none_where_they_were_not_counted(
    scores: dict[ScoreKey, Stored],
) -> None:
    text, counted = ScoredText(DemixMeasurements(SUBJECT), RUN, "law", scores), RUN.experts("demix", SUBJECT.domains)[0]
    assert text.hits(counted) is None
    assert text.hits("nobody") is None
    right = np.random.default_rng(1).random(TEST) < 0.3
    np.save(scores[counted, "law", "test"].kept.folder / "hits.npy", right)
    result = text.hits(counted)
    assert result is not None
    assert result.value == pytest.approx(right.mean())
    assert result.documents_N.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def poisoned(scores: dict[ScoreKey, Stored], domain: str, split: str) -> None:
    """Reverses which expert is better on a text."""
    for (_, name, where), score in scores.items():
        if (name, where) == (domain, split):
            path = score.kept.folder / "logprobs.npy"
            np.save(path, (-8 - np.load(path)).astype(np.float32))


def test_the_calibrated_reading_is_the_engines_fit_of_dev_text_of_the_training_domains(
    scores: dict[ScoreKey, Stored],
) -> None:
    texts = [
        DevText(domain, rows(scores, domain, "dev"), BLOCK, np.array([0, 0, 1, 1, 2]), frozenset({place}))
        for place, domain in enumerate(SUBJECT.domains)
    ]
    expected = calibrate_from_equal_priors(texts)
    rule = expected.now if expected.keeps else expected.best
    result = measured(scores)
    assert (result.fits[0].rule, result.fits[0].domains) == (rule, tuple(SUBJECT.domains))
    for domain in ("law", "poems"):
        uniform = mix_scores(PosteriorGate([1.0, 1.0], rule), rows(scores, domain, "test"), BLOCK)
        assert result.losses[system("uniform", CALIBRATED), 0, domain].value == pytest.approx(perplexity(uniform))


def test_only_a_gain_is_taken() -> None:
    proposed = calibration(keeps=False)
    assert Fit(proposed, ()).rule == proposed.best
    assert Fit(replace(proposed, keeps=True), ()).rule == READINGS["prefix"]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_novel_dev_text_and_all_test_text_are_not_read_by_the_fit(scores: dict[ScoreKey, Stored], split: str) -> None:
    before = measured(scores)
    for domain in ["poems"] if split == "dev" else SUBJECT.everywhere:
        poisoned(scores, domain, split)
    after = measured(scores)
    assert after.fits == before.fits
    cached, uniform = system("cached", CALIBRATED), system("uniform", CALIBRATED)
    if split == "dev":  # only the cached prior of the novel domain reads it, as in the paper
        assert same(after, before, uniform, "poems")
        assert same(after, before, cached, "law")
        assert not same(after, before, cached, "poems")
    else:
        assert not same(after, before, uniform, "poems")


def test_dev_text_of_training_domains_is_read_by_the_fit(scores: dict[ScoreKey, Stored]) -> None:
    before = measured(scores)
    poisoned(scores, "sea", "dev")
    assert measured(scores).fits != before.fits


def same(measurements: DemixMeasurements, other: DemixMeasurements, name: System, domain: str) -> bool:
    return measurements.losses[name, 0, domain].totals_N.tolist() == other.losses[name, 0, domain].totals_N.tolist()


def test_with_dev_text_of_one_domain_nothing_is_calibrated(scores: dict[ScoreKey, Stored]) -> None:
    result = measured(shortened(scores, "law", BLOCK - 1))
    assert not result.fits
    assert not [name for name, _, _ in result.losses if name.reading and name.reading.evidence == "calibrated"]
    assert system("updating", CODE) in {name for name, _, _ in result.losses}


def test_experts_in_some_layers_are_measured_on_their_own_domains(scores: dict[ScoreKey, Stored]) -> None:
    for domain in SUBJECT.everywhere:
        scores[f"{RUN.interleaved}/law", domain, "test"] = scores[RUN.expert("dense", "law"), domain, "test"]
    losses = measured(scores).losses
    assert losses[System("interleaved"), 0, "law"].value == losses[System("dense"), 0, "law"].value
    assert [domain for one, _, domain in losses if one == System("interleaved")] == ["law"]
