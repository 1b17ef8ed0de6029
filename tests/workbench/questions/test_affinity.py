"""An expert's affinity to a domain goes with the overlap of their texts: the numbers are those of the cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from workbench.analysis import perplexity_tables
from workbench.errors import InUseError
from workbench.job_records import jobs
from workbench.kinds.analysis import MeasureOverlap
from workbench.questions.affinity import AffinityRequest
from workbench.registry import corpora, experts, mixtures, reports
from workbench.specs.requests import MixtureSpec

if TYPE_CHECKING:
    from tests.workbench.conftest import World

DOMAINS = ["law", "news", "sea"]
PERPLEXITIES = [[10.0, 30.0, 50.0], [20.0, 15.0, 40.0], [40.0, 60.0, 20.0]]  # expert by domain
OVERLAPS = [[1.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 1.0]]


def scored(world: World) -> None:
    world.experts(*DOMAINS)
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=DOMAINS))
    for expert, row in zip(DOMAINS, PERPLEXITIES, strict=True):
        for domain, perplexity in zip(DOMAINS, row, strict=True):
            perplexity_tables.register_evaluation(
                world.session,
                expert_id=experts.get_expert(world.session, expert).id,
                domain_id=corpora.get_domain(world.session, domain).id,
                split="test",
                block_size=8,
                num_tokens=100,
                log_likelihood=-100 * math.log(perplexity),
                artifact=world.artifact("scores"),
            )


def measured(world: World, domains: list[str] = DOMAINS, overlaps: list[list[float]] = OVERLAPS) -> None:
    hashes = [corpora.get_domain(world.session, name).data_sha256 for name in domains]
    size = len(domains)
    findings: dict[str, Any] = {
        "domains": domains,
        "data_sha256": hashes,
        "overlap": [row[:size] for row in overlaps[:size]],
    }
    reports.register_report(world.session, "overlap", "Bigram overlap", findings)


def test_the_correlation_is_that_of_the_cells_away_from_home(world: World) -> None:
    scored(world)
    measured(world)
    result = AffinityRequest(mixture="mix").answer(world.session, world.storage)
    ratios = np.array(PERPLEXITIES) / np.diag(PERPLEXITIES)
    away = ~np.eye(3, dtype=bool)
    expected = np.corrcoef(-ratios[away], np.array(OVERLAPS)[away])[0, 1]
    assert result.without_homes.r == pytest.approx(expected)
    assert (result.without_homes.num_cells, result.with_homes.num_cells) == (6, 9)
    assert result.with_homes.r == pytest.approx(np.corrcoef(-ratios.ravel(), np.ravel(OVERLAPS))[0, 1])
    assert result.changed == result.unmeasured == []


def test_before_the_first_measurement_there_are_only_ratios(world: World) -> None:
    scored(world)
    result = AffinityRequest(mixture="mix").answer(world.session, world.storage)
    assert (result.report, result.without_homes) == (None, None)
    assert {cell.overlap for cell in result.cells} == {None}
    assert len(result.cells) == 9


def test_a_domain_that_was_not_measured_is_named(world: World) -> None:
    scored(world)
    measured(world, DOMAINS[:2])
    result = AffinityRequest(mixture="mix").answer(world.session, world.storage)
    assert result.unmeasured == ["sea"]
    assert "at least 3 different cells" in result.why_not


def test_without_scores_there_is_nothing_to_correlate(world: World) -> None:
    world.experts("law")
    mixtures.create_mixture(world.session, MixtureSpec(name="mix", experts=["law"]))
    result = AffinityRequest(mixture="mix").answer(world.session, world.storage)
    assert result.cells == []
    assert result.without_homes is None


def test_text_that_a_measurement_will_read_is_not_deleted(world: World) -> None:
    world.corpus("corpus", "law", "sea")
    jobs.create_job(world.session, MeasureOverlap())
    with pytest.raises(InUseError, match="Measure overlap"):
        corpora.delete_corpus(world.session, "corpus")


def test_a_later_measurement_of_other_domains_hides_none_before_it(world: World) -> None:
    scored(world)
    measured(world)
    measured(world, DOMAINS[:2], [[1.0, 0.9], [0.9, 1.0]])
    result = AffinityRequest(mixture="mix").answer(world.session, world.storage)
    overlaps = {(cell.home, cell.domain): cell.overlap for cell in result.cells}
    assert overlaps["law", "sea"] == 0.1
    assert overlaps["law", "news"] == 0.9  # of two, the newest
    assert result.changed == result.unmeasured == result.unpaired == []


def test_domains_that_were_never_measured_together_are_named_as_a_pair(world: World) -> None:
    scored(world)
    measured(world, ["law", "news"])
    measured(world, ["sea", "news"])
    result = AffinityRequest(mixture="mix").answer(world.session, world.storage)
    assert (result.unmeasured, result.unpaired) == ([], ["law and sea"])
