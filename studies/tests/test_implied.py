"""What is marked as implied could not have come out otherwise; what is not marked could have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import Evidence
from engine.mixing.posterior import PosteriorGate, end_of_block_posteriors, estimate_prior
from engine.statistics.estimates import Floats, Loss
from studies.tests.demix_worlds import DOMAINS, NOVEL, belief_of, evidence_of, verdicts_of
from studies.tests.made_up_losses import losses_of
from studies.tests.test_forest import stored
from workbench_studies.core.averages import Place
from workbench_studies.core.verdicts import CONTRADICTED, IMPLIED, REPRODUCED, UNTESTABLE, Verdict, is_below
from workbench_studies.demix.claims import STUDY, judge
from workbench_studies.demix.measurements import Belief, DemixMeasurements
from workbench_studies.demix.names import CODE, GRID, PAPER, System, system
from workbench_studies.papers.todays_rule import mark_implied

BLOCKS, BLOCK, SEEDS = 10, 256, 3


def scores_on(worse_E: Floats, added: float, chance: np.random.Generator) -> torch.Tensor:
    """Scores [E+1, N, T] of experts that are so many nats worse than the own one; the last, added one is `added`."""
    nats_ENT = (
        3.0 + chance.gamma(1.0, 1.0, (1, BLOCKS, BLOCK)) + chance.normal(0, 0.5, (len(DOMAINS) + 1, BLOCKS, BLOCK))
    )
    return -torch.from_numpy(nats_ENT + np.append(worse_E, added)[:, None, None])


def mixed(scores_ENT: torch.Tensor, dev_ENT: torch.Tensor, evidence: Evidence) -> Loss:
    """The loss of a mixture with a cached prior, as the replication measures it."""
    prior_E = estimate_prior(PosteriorGate([1.0] * len(dev_ENT), evidence), dev_ENT, BLOCKS)
    nats_NT = -PosteriorGate(prior_E.tolist(), evidence).mixed(scores_ENT)
    return Loss(nats_NT.sum(1).numpy(), np.full(BLOCKS, float(BLOCK)), np.arange(BLOCKS))


def world(trial: int, added: float, evidence: Evidence) -> DemixMeasurements:
    """A replication with scores by chance, where each domain's own expert is best and one expert is added."""
    chance = np.random.default_rng(trial)
    losses: dict[Place, Loss] = {}
    beliefs: dict[tuple[int, str], Belief] = {}
    reading = PAPER if evidence == "prefix" else CODE
    worse_DE = chance.uniform(0.2, 0.6, (len(DOMAINS), len(DOMAINS))) * ~np.eye(len(DOMAINS), dtype=bool)
    for seed in range(SEEDS):
        for place, domain in enumerate(DOMAINS):
            test, dev = (scores_on(worse_DE[place], added, chance) for _ in range(2))
            others = [number for number in range(len(DOMAINS)) if number != place]
            of: dict[System, Any] = {system("cached", reading): slice(0, -1), system("minus expert", reading): others}
            of |= dict.fromkeys(
                [system("grown", reading), *(system("demix-dapt", reading, one) for one in NOVEL)], slice(None)
            )
            losses |= {(name, seed, domain): mixed(test[rows], dev[rows], evidence) for name, rows in of.items()}
            for number, one in enumerate(DOMAINS):
                own = -test[number].sum(1).numpy()
                losses[System("alone", domain=one), seed, domain] = Loss(
                    own, np.full(BLOCKS, float(BLOCK)), np.arange(BLOCKS)
                )
            gate = PosteriorGate([1.0] * len(DOMAINS))
            beliefs[seed, domain] = belief_of(end_of_block_posteriors(gate, dev[:-1]).numpy())
    names = {
        system("cached", reading),
        system("grown", reading),
        *(system("demix-dapt", reading, one) for one in NOVEL),
    }
    losses |= losses_of(dict.fromkeys(names, 3.0), NOVEL, seeds=SEEDS)
    return evidence_of(losses, beliefs=beliefs, seeds=SEEDS)


FROZEN = ("added-not-up", "demix-dapt-not-up")


@pytest.mark.parametrize("added", [-0.01, 0.0, 0.05, 1.0], ids="{} nats worse than the own expert".format)
def test_with_the_full_prefix_a_frozen_base_does_not_forget_whatever_is_added(added: float) -> None:
    result = verdicts_of(world(1, added, "prefix"))
    assert {result[claim].mark for claim in FROZEN} == {REPRODUCED}
    assert result["own-expert"].mark == REPRODUCED
    assert result["own-posterior"].mark == result["without-expert"].mark == REPRODUCED


def test_with_the_last_token_as_evidence_it_can_forget_so_there_nothing_is_implied() -> None:
    result = verdicts_of(world(0, 1.0, "last_token"), CODE)
    assert {result[claim].mark for claim in FROZEN} == {CONTRADICTED}
    for claim in FROZEN:
        row = {**result[claim].as_dict(), "mark": REPRODUCED}
        marks = [mark_implied(STUDY, [], [row | {"reading": str(one)}])[1][0]["mark"] for one in (PAPER, CODE)]
        assert marks == [IMPLIED, REPRODUCED]


def by_chance(trial: int) -> Iterator[Verdict]:
    """Verdicts on a world in which every system has a loss by chance."""
    chance = np.random.default_rng(trial)
    grown = [name for one in NOVEL for name in (System("dense-dapt", domain=one), system("demix-dapt", PAPER, one))]
    modes = [system(one, reading) for one in ("uniform", "updating", "cached") for reading in (PAPER, *GRID.values())]
    own = [System(one) for one in ("dense", "dense-balanced", "domain-token", "naive", "average", "interleaved")]
    rest = [system(one, PAPER) for one in ("grown", "minus expert", "minus domain")]
    losses: dict[Place, Loss] = {}
    singles = [System("alone", domain=one) for one in DOMAINS]
    for domain in (*DOMAINS, *NOVEL):
        every = [*dict.fromkeys([*own, *modes, *rest, *grown, *singles])]
        losses |= losses_of({one: float(chance.uniform(2.0, 4.0)) for one in every}, [domain], own=0.001)
    overlap = {(one, other): float(chance.uniform()) for one in DOMAINS for other in DOMAINS}
    posteriors = {domain: chance.dirichlet(np.ones(len(DOMAINS))) for domain in (*DOMAINS, *NOVEL)}
    turned = chance.permutation(len(DOMAINS))
    halves = {d: np.repeat(np.stack([p, p[turned]]), 50, axis=0).T for d, p in posteriors.items()}
    beliefs = {(seed, domain): belief_of(half) for seed in range(2) for domain, half in halves.items()}
    yield from judge(evidence_of(losses, beliefs=beliefs, overlap=overlap, removed=DOMAINS))


def test_every_other_claim_can_come_out_otherwise() -> None:
    """In some world of numbers by chance it is not reproduced, and in some it is contradicted or undecided."""
    marks: dict[str, set[str]] = {}
    for trial in range(12):
        for one in by_chance(trial):
            marks.setdefault(f"{one.claim.where}: {one.claim.sentence}", set()).add(one.mark)
    judged = {name: own - {UNTESTABLE} for name, own in marks.items() if own != {UNTESTABLE}}
    assert len(judged) > 40
    assert [name for name, own in judged.items() if own <= {REPRODUCED}] == []


def test_each_declared_claim_is_one_of_the_paper_and_says_why() -> None:
    declared = {claim.id: claim.implied for claim in STUDY.claims}
    implied = [one for one in declared.values() if one]
    assert len(implied) == 7
    assert all(one.why.endswith(".") and (not one.follows or one.follows in declared) for one in implied)
    for verdict in judge(evidence_of({})):
        declared_claim = STUDY.find_claim(verdict.as_dict())
        assert (declared_claim and declared_claim.id) == (verdict.claim.id if verdict.claim.id in declared else None)


def test_a_claim_that_follows_from_another_is_implied_only_where_that_holds() -> None:
    rows = {id: one.as_dict() for id, one in verdicts_of(evidence_of({})).items()}
    numbers = stored(is_below, -2.0, -3.0, -1.0)
    known, diagonal = (
        {**numbers, "where": rows[id]["where"], "sentence": rows[id]["sentence"]}
        for id in ("own-posterior", "own-expert")
    )
    known, diagonal = known | {"mark": REPRODUCED}, diagonal | {"value": -5.0}
    marks = [
        mark_implied(STUDY, [diagonal | {"mark": mark}, known], [])[0][1]["mark"] for mark in (REPRODUCED, CONTRADICTED)
    ]
    assert marks == [IMPLIED, REPRODUCED]


@pytest.mark.parametrize(("moved", "mark"), [(0.0, IMPLIED), (0.01, IMPLIED), (0.1, REPRODUCED)])
def test_a_claim_with_the_numbers_of_an_earlier_one_is_no_further_evidence(moved: float, mark: str) -> None:
    first = stored(is_below, -2.0, -3.0, -1.0)
    again = {**first, "where": "Figure 10"} | {name: first[name] + moved for name in ("value", "low", "high")}
    marked, _ = mark_implied(STUDY, [first, again], [])
    assert [row["mark"] for row in marked] == [REPRODUCED, mark]
    assert ("Its numbers are those of “Table 3: " in marked[1]["why"]) is (mark == IMPLIED)
