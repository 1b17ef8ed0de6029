"""C-BTM's claims about worlds whose answers are known get the marks they must."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.statistics.estimates import Ints
from studies.tests.cbtm_worlds import DOMAINS, MAIN, NOVEL, SUBJECT, answers, as_printed, evidence_of, groupings, homes
from studies.tests.made_up_losses import losses_of
from workbench_studies.cbtm.claims import STUDY, judge
from workbench_studies.cbtm.measurements import CbtmMeasurements, Grouping, frozen, in_grid
from workbench_studies.cbtm.names import DENSE, DENSE_AT_LESS, PAPER, Arm, System, balanced, printed, sparse
from workbench_studies.cbtm.tables import findings_of
from workbench_studies.core.verdicts import CONTRADICTED, REPRODUCED, UNDECIDED, UNTESTABLE, WEAKER, Mark, Verdict

RIGHT: dict[tuple[str, int | None], float] = {
    ("chance", None): 0.3,
    ("dense", None): 0.5,
    ("seed", None): 0.45,
    ("cluster", None): 0.6,
    ("fixed", None): 0.65,
    ("fixed-validation", None): 0.7,
}
LESS = balanced(4, at_less=True)
PARTLY = [[80, 10, 5, 5], [30, 25, 25, 20]]  # law mostly in one cluster, code in none


def table(name: str, evidence: CbtmMeasurements) -> list[Any]:
    return list(findings_of(evidence)["tables"][name])


def world(changed: Mapping[System, float] | None = None) -> CbtmMeasurements:
    """Everything as the paper has it, but for these systems."""
    nats = {**as_printed(), **(changed or {})}
    losses = losses_of(nats, DOMAINS, own=0.002) | losses_of(nats, NOVEL) | homes(2.5, 3.0)
    return evidence_of(losses, groupings(PARTLY, [100, 100, 100, 100], [10, 20, 70, 300]), answers(RIGHT))


FAILED = (CONTRADICTED, UNDECIDED)
MORE = "Figure 12: at the whole budget a mixture of experts has more perplexity than"


def verdict_of(claim: str, evidence: CbtmMeasurements) -> Verdict:
    return judge(evidence, lambda one: one.id == claim)[0]


def marks(evidence: CbtmMeasurements) -> dict[str, Mark]:
    return {f"{one.claim.where}: {one.claim.sentence}": one.mark for one in judge(evidence)}


def test_a_world_as_the_paper_has_it_reproduces_every_claim_that_can_be_tested() -> None:
    result = marks(world())
    assert {shown for shown, mark in result.items() if mark in FAILED} == set()
    assert list(result.values()).count(UNTESTABLE) == sum(bool(one.why) for one in STUDY.sentences)
    assert list(result.values()).count(REPRODUCED) >= 20
    weaker = {shown for shown, mark in result.items() if mark == WEAKER}
    assert weaker == {
        "§2.2: weights may stay after half of a text without a drop",
        "Figure 8: an update of the slowest of 4 clusters takes less time than one of Dense",
        "Figure 8: an update of a mixture of experts takes more time than one of Dense",
    }


def test_nothing_measured_is_nothing_tested_and_each_verdict_says_why() -> None:
    verdicts = judge(evidence_of({}))
    assert {verdict.mark for verdict in verdicts} == {UNTESTABLE}
    assert all(verdict.why for verdict in verdicts)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({System(balanced(2)): 3.1}, "Figure 5: 2 clusters have less perplexity than one"),
        ({System(balanced(4, at_less=True)): 2.8}, "Figure 5: the lead of 4 clusters"),
        ({System(balanced(8)): 2.5}, "Figure 6: 8 clusters are too many"),
        ({System(balanced(4)): 3.01}, "Figure 6: the best number"),
        ({System(balanced(4)): 3.01, System(balanced(4, at_less=True)): 3.2}, "Figure 6: the best number"),
        ({sparse(MAIN, 1): 3.1}, "Figure 9: the nearest of 4 clusters alone"),
        ({sparse(MAIN, 2): 2.75}, "Figure 9: the nearest 2 of 4 clusters are as good as all"),
        ({sparse(balanced(8), 2): 2.95}, "Figure 10: the nearest 2 of 8 clusters"),
        ({in_grid(MAIN, 4, 0.01): 2.6}, "Table 9: with all of 4 clusters, T = 0.1 has less perplexity than T = 0.01"),
        ({in_grid(MAIN, 4, 1.0): 2.6}, "Table 9: with all of 4 clusters, T = 0.1 has less perplexity than T = 1"),
        ({in_grid(MAIN, 4, 1.0): 2.9}, "Table 9: with all of 4 clusters, T = 1 has more perplexity than Dense"),
        ({in_grid(MAIN, 2, 1.0): 3.3}, "Table 9: at T = 1 the nearest 2"),
        ({frozen(SUBJECT): 2.75}, "§2.2: weights may stay"),
        ({System(MAIN, "average"): 2.6}, "§2.4: the average"),
        ({System(DENSE_AT_LESS, "moe"): 3.4}, "Figure 12: at the smaller budget"),
        ({System(DENSE, "moe"): 2.6}, f"{MORE} 4 clusters"),
        (
            {System(DENSE, "moe"): 2.9},
            f"{MORE} one",
        ),
        ({System(Arm("random", 4)): 2.8}, "Figure 13: 4 random clusters have more perplexity than Dense"),
        ({System(Arm("unbalanced", 4)): 2.8}, "§7.2: with 4 clusters balancing has little effect"),
        ({System(Arm("random", 2)): 3.3}, "Figure 13: random clusters do more harm the more there are: 4 against 2"),
        ({System(Arm("unbalanced", 2)): 2.95}, "§7.2: balancing gains more with 4 clusters than with 2"),
        ({System(LESS, is_smaller=True): 3.7}, "Figure 7: of smaller experts, too, 4 clusters"),
        ({System(LESS, is_smaller=True): 3.62}, "Figure 7: 4 clusters gain less over one"),
        ({System(LESS, top_k=1, is_smaller=True): 3.4}, "Figure 11: 1 of 4 clusters of smaller experts"),
        ({System(SUBJECT.metadata, "cached"): 2.6}, "Table 8: 4 clusters have less perplexity than metadata"),
        ({System(SUBJECT.metadata, "cached"): 3.1}, "Table 8: metadata experts have less perplexity than one"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_turns_round_turns_its_claim(changed: Mapping[System, float], where: str) -> None:
    result = marks(world(changed))
    assert {mark for shown, mark in result.items() if shown.startswith(where)} in ({CONTRADICTED}, {UNDECIDED})


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({("cluster", None): 0.4}, "Table 1"),
        ({("fixed-validation", None): 0.5}, "Table 11"),
    ],
)
def test_who_is_right_more_often_is_judged_over_draws(changed: dict[tuple[str, int | None], float], where: str) -> None:
    verdicts = {one.claim.sentence: one for one in judge(evidence_of({}, None, answers({**RIGHT, **changed})))}
    failed = [verdict for verdict in verdicts.values() if verdict.mark in FAILED]
    assert [one.claim.where for one in failed] == [where]
    assert all(one.unit == "percentage points" for one in failed)


@pytest.mark.parametrize(
    ("shown", "why"),
    [({"apart": 0.0}, "every draw of demonstrations gives the same"), ({"num_test": 30}, "too few examples")],
)
def test_draws_that_show_no_difference_are_undecided(shown: dict[str, Any], why: str) -> None:
    for shares in (RIGHT, {**RIGHT, ("cluster", None): 0.4}):
        verdict = next(
            one for one in judge(evidence_of({}, None, answers(shares, **shown))) if "Table 1" in one.claim.where
        )
        assert verdict.mark == UNDECIDED
        assert verdict.why.startswith("Undecided: ")
        assert why in verdict.why


def test_table_8_is_not_testable_where_there_are_not_as_many_labels_as_clusters() -> None:
    evidence = world()
    fewer = replace(evidence, subject=SUBJECT.model_copy(update={"domains": DOMAINS[:2]}))
    verdict = next(one for one in judge(fewer) if one.claim.sentence.endswith("than metadata experts"))
    assert verdict.mark == UNTESTABLE
    assert verdict.why.endswith("here there are 2 metadata domains and 4 clusters.")


def test_the_table_of_divisions_says_how_many_updates_each_model_makes() -> None:
    size = replace(SUBJECT.budget, training=replace(SUBJECT.budget.training, num_steps=90, sequences_per_domain=8))
    subject = SUBJECT.model_copy(update={"domains": DOMAINS[:3], "budget": size})
    rows = {row["models"]: row["updates"] for row in table("divisions", replace(world(), subject=subject))}
    assert rows == {
        "1 cluster": 90,
        "4 clusters": 90,
        "2 clusters": 90,
        "4 random clusters": 90,
        "4 unbalanced clusters": 90,
        "2 random clusters": 90,
        "2 unbalanced clusters": 90,
        "3 metadata domains": 120,
    }


def test_ablations_are_held_against_arms_of_their_own_budget() -> None:
    less = SUBJECT.model_copy(update={"budget": replace(SUBJECT.budget, ablations_at_less=True)})
    nats = as_printed() | {System(balanced(4, at_less=True)): 3.0, System(DENSE_AT_LESS): 3.3}
    nats |= {System(less.ablated("random")): 3.5, System(less.ablated("unbalanced")): 3.0}
    nats |= {System(less.metadata, "cached"): 3.1, System(Arm("random", 4)): 1.0, System(Arm("unbalanced", 4)): 1.0}
    result = marks(replace(evidence_of(losses_of(nats, DOMAINS, own=0.002)), subject=less))
    judged = [mark for shown, mark in result.items() if shown.startswith(("Figure 13: 4", "§7.2: with", "Table 8"))]
    assert judged == [REPRODUCED] * 5
    rows = table("divisions", replace(evidence_of(losses_of(nats, DOMAINS)), subject=less))
    assert {row["models"]: row["ours"] is not None for row in rows} == {
        "1 cluster": True,
        "4 clusters": True,
        "2 clusters": False,
        "4 random clusters": True,
        "4 unbalanced clusters": True,
        "2 random clusters": False,
        "2 unbalanced clusters": False,
        "4 metadata domains": True,
    }


def test_a_size_of_one_shape_and_one_number_says_what_it_lacks() -> None:
    evidence = world()
    plain = replace(SUBJECT.budget, smaller=None, also_ablated=())
    result = judge(replace(evidence, subject=SUBJECT.model_copy(update={"budget": plain})))
    lacking = [one for one in result if one.mark == UNTESTABLE and not one.claim.sentence.startswith("“")]
    assert [one.claim.where for one in lacking] == ["Figure 13", "§7.2", "Figure 7", "Figure 7", "Figure 11"]
    assert table("shapes", replace(evidence, subject=SUBJECT.model_copy(update={"budget": plain}))) == []


@pytest.mark.parametrize(
    ("key", "seconds", "mark"), [("k4", 2.5, CONTRADICTED), ("moe", 1.0, CONTRADICTED), ("moe", None, UNTESTABLE)]
)
def test_times_of_updates_turn_their_claims(key: str, seconds: float | None, mark: Mark) -> None:
    evidence = world()
    for seed in range(2):
        evidence.updates[seed, key] = [] if seconds is None else [0.1, seconds * (1 + 0.01 * seed)]
    result = {one.claim.sentence: one for one in judge(evidence) if one.claim.where == "Figure 8"}
    verdict = next(one for sentence, one in result.items() if ("mixture" in sentence) == (key == "moe"))
    assert verdict.mark == mark
    rows = {row["models"]: row["ours"] for row in table("updates", evidence)}
    assert rows.get("mixture of experts" if key == "moe" else "4 clusters") == (
        seconds and pytest.approx(seconds, rel=0.01)
    )


def test_the_operations_of_both_shapes_stand_beside_their_perplexities() -> None:
    rows = table("shapes", world())
    assert [(row["experts"], row["models used"]) for row in rows] == [
        ("smaller", 1),
        ("smaller", 4),
        ("smaller", 1),
        ("larger", 1),
        ("larger", 4),
    ]
    costs = {row["experts"]: row["GFLOPs with the seed model"] for row in rows}
    claim = next(one.claim for one in judge(world()) if one.claim.where == "Figure 11")
    assert f"{costs['larger'] / costs['smaller']:.1f} times fewer operations" in claim.sentence


def test_equal_numbers_of_clusters_are_seldom_called_too_many() -> None:
    """One in forty may look so by chance; with the best chosen in every draw anew it is one in ten here."""
    alike = {System(balanced(n)): 3.0 for n in SUBJECT.budget.clusters}
    result = [verdict_of("too-many", evidence_of(losses_of(alike, DOMAINS, chance=number))) for number in range(120)]
    above = sum(verdict.estimate is not None and verdict.estimate.low > 0 for verdict in result)
    assert above <= 5


def test_equal_numbers_of_clusters_are_seldom_reported_to_grow_with_the_tokens() -> None:
    """One is best at the smaller budget, and at the whole one all are as good: growth would be chance."""
    numbers = (1, 2, 4, 8)
    subject = SUBJECT.model_copy(update={"budget": replace(SUBJECT.budget, clusters_at_less=numbers)})
    less = {System(balanced(n, at_less=True)): 3.3 + 0.1 * (n > 1) for n in numbers}
    full = {System(balanced(n)): 3.0 for n in numbers}
    result = [
        verdict_of("best-grows", replace(evidence_of(losses_of(less | full, DOMAINS, chance=number)), subject=subject))
        for number in range(120)
    ]
    assert sum(verdict.mark == REPRODUCED for verdict in result) <= 5


def test_as_many_best_at_both_budgets_is_no_growth_and_decides_nothing_where_they_are_the_most() -> None:
    one, most = ({System(balanced(4, at_less=at_less)): nats for at_less in (True, False)} for nats in (3.4, 2.6))
    verdicts = [verdict_of("best-grows", world(changed)) for changed in (one, most)]
    assert [verdict.mark for verdict in verdicts] == [UNDECIDED, UNTESTABLE]
    assert verdicts[0].why == "Of 1, 4 clusters 1 are best at both budgets."
    assert "4, are best at both budgets" in verdicts[1].why


def test_a_family_without_a_mixture_of_experts_says_so() -> None:
    evidence = world()
    without = replace(evidence, subject=SUBJECT.model_copy(update={"budget": replace(SUBJECT.budget, moe=None)}))
    result = [one for one in judge(without) if one.claim.where == "Figure 12"]
    assert {one.mark for one in result} == {UNTESTABLE}
    assert sum("transformers has no mixture" in one.why for one in result) == 3
    assert table("upcycled", without) == []


def test_labels_of_texts_that_were_cut_are_drawn_by_full_texts() -> None:
    counts = [[60, 20, 10, 10], [30, 25, 25, 20]]
    full = groupings(counts, [100] * 4, [10, 20, 70, 300])
    cut = {place: replace(one, wholes_D=_wholes(one)) for place, one in full.items()}
    widths = [_width(evidence_of({}, result), "label-in-one") for result in (full, cut)]
    assert widths[1] > 5 * widths[0]
    widths = [_width(evidence_of({}, result), "size-range") for result in (full, cut)]
    assert widths[1] > 2 * widths[0]


def _wholes(grouping: Grouping) -> Ints:
    """Fifty neighbours of one label and cluster are one text."""
    order = np.lexsort((grouping.clusters_D, grouping.labels_D, grouping.is_held_out_D))
    wholes_D = np.empty_like(order)
    wholes_D[order] = order[np.arange(len(order)) // 50 * 50]
    return wholes_D


def _width(evidence: CbtmMeasurements, claim: str) -> float:
    result = verdict_of(claim, evidence).estimate
    assert result is not None
    return result.high - result.low


def test_accuracies_stand_beside_the_papers_and_tasks_beside_their_clusters() -> None:
    evidence = evidence_of({}, None, answers(RIGHT))
    rows = {(row["answers"], row["of"]): row for row in table("tasks", evidence)}
    assert rows["Dense", ""]["ours"] == pytest.approx(50)
    assert (rows["Dense", ""]["paper"], rows["cluster routing", "all"]["paper"]) == (66.2, 69.9)
    assert rows["Dense", ""]["low"] < 50 < rows["Dense", ""]["high"]
    assert table("routes", evidence) == [{"task": task, "1st": "a, b, c", "2nd": "e"} for task in ("news", "mood")]


def test_one_out_of_domain_expert_that_wins_in_one_cluster_of_one_seed_breaks_the_diagonal() -> None:
    losses = homes(2.5, 3.0)
    assert verdict_of("own-expert", evidence_of(losses)).mark == REPRODUCED
    broken = {**losses, **{place: home for place, home in homes(2.5, 3.0, {(1, 3): 2.4}).items() if place[1] == 1}}
    verdict = verdict_of("own-expert", evidence_of(broken))
    assert verdict.mark == CONTRADICTED
    assert verdict.ours.startswith("7 of 8 clusters of all seeds")


@pytest.mark.parametrize(
    ("counts", "own", "spread"),
    [
        (PARTLY, REPRODUCED, REPRODUCED),
        ([[99, 1, 0, 0], [1, 99, 0, 0]], REPRODUCED, CONTRADICTED),
        ([[25, 25, 25, 25], [25, 25, 25, 25]], CONTRADICTED, REPRODUCED),
    ],
    ids=["partly", "whole", "not at all"],
)
def test_labels_go_with_clusters_partly_and_only_then(counts: list[list[int]], own: Mark, spread: Mark) -> None:
    evidence = evidence_of({}, groupings(counts, [100] * 4, [100] * 4))
    assert verdict_of("label-in-one", evidence).mark == own
    assert verdict_of("label-spread", evidence).mark == spread


def test_equal_sizes_are_no_effect_of_balancing() -> None:
    alike = evidence_of({}, groupings(PARTLY, [40, 60, 100, 200], [40, 60, 100, 200]))
    assert verdict_of("size-range", alike).mark == verdict_of("size-median", alike).mark == UNDECIDED


def test_the_speed_up_is_interpolated_between_the_budgets() -> None:
    result = {row["clusters"]: row for row in table("efficiency", world())}
    assert result[1]["speed-up at Dense's last perplexity"] == pytest.approx(1.0)
    assert 1.2 < result[4]["speed-up at Dense's last perplexity"] < 1.8
    assert result[4]["TFLOPs of all"] == pytest.approx(result[1]["TFLOPs of all"])  # §A.2
    assert result[4]["TFLOPs of each model"] == pytest.approx(result[1]["TFLOPs of each model"] / 4)


def test_the_papers_numbers_stand_beside_the_arms_that_it_has() -> None:
    assert printed(8, 8) == 13.24
    assert printed(32, 1, 1.0) == 13.55
    assert (printed(16, 16), printed(2, 2, 0.01)) == (None, 13.60)
    rows = [row["paper"] for row in table("clusters", world()) if row["budget"] == "whole"]
    assert rows == [PAPER["dense"], 13.50, None, 13.24]


def test_every_arm_is_named_once_and_dense_comes_first() -> None:
    arms = SUBJECT.arms
    assert arms[:2] == [DENSE, MAIN]
    assert len({arm.key for arm in arms}) == len(arms)


@pytest.mark.parametrize(("chance", "mark"), [(0.3, REPRODUCED), (0.56, UNTESTABLE)])
def test_answers_near_chance_are_a_floor_and_no_result(chance: float, mark: Mark) -> None:
    shown = answers({**RIGHT, ("chance", None): chance})
    verdict = next(one for one in judge(evidence_of({}, None, shown)) if one.claim.where == "Table 1")
    assert verdict.mark == mark
    assert ("A floor: 60.0 and 50.0 % are within 5 points of chance" in verdict.why) is (mark == UNTESTABLE)
