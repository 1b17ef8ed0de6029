"""MoDE's claims: worlds whose answers are known get the marks they must."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from studies.tests.mode_worlds import ROWS, SIZE, SUBJECT, Accuracies, as_printed, evidence_of, hits_of
from workbench_studies.core.verdicts import CONTRADICTED, REPRODUCED, UNDECIDED, UNTESTABLE, Claim, Mark, Verdict
from workbench_studies.mode.arms import BACKBONE, PAPER, Arm, Arms
from workbench_studies.mode.claims import STUDY, ModeCase, ModeMeasurements, best_has_more, judge
from workbench_studies.mode.report import findings_of

SHAPES, RANKS, MORE = Arms(SIZE).by_shape, Arms(SIZE).by_rank, Arms(SIZE).in_more_layers
LORA, MODE = Arms(SIZE).by_sequences.values()
MIXED = Arms(SIZE).by_mixture


def table(name: str, evidence: ModeMeasurements) -> list[Any]:
    return list(findings_of(evidence)["tables"][name])


def world(changed: Mapping[Arm, Accuracies] | None = None) -> ModeMeasurements:
    """Everything as the paper has it, but for these arms."""
    return evidence_of(hits_of({**as_printed(), **(changed or {})}))


def marks(evidence: ModeMeasurements) -> dict[str, Mark]:
    return {f"{one.claim.where}: {one.claim.sentence}": one.mark for one in judge(evidence)}


def test_a_world_as_the_paper_has_it_reproduces_every_claim_that_can_be_tested() -> None:
    result = marks(world())
    assert {shown for shown, mark in result.items() if mark in (CONTRADICTED, UNDECIDED)} == set()
    assert list(result.values()).count(UNTESTABLE) == sum(bool(one.why) for one in STUDY.sentences)
    assert list(result.values()).count(REPRODUCED) >= 40
    assert len(result) == len(judge(world()))  # no claim is told twice


def test_nothing_measured_is_nothing_tested_and_each_verdict_says_why() -> None:
    verdicts = judge(evidence_of({}))
    assert {verdict.mark for verdict in verdicts} == {UNTESTABLE}
    assert all(verdict.why for verdict in verdicts)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({ROWS["full"]: (52, 52, 46)}, "Table 1: MoDE with 2 trained experts is above full fine-tuning on average"),
        ({ROWS["lora"]: (52, 52, 46)}, "Table 1: MoDE with 2 trained experts is above LoRA of rank 16 on average"),
        (
            {ROWS["two"]: (52, 52, 46)},
            "Table 1: MoDE with 2 trained experts is above MoDE with 2 fresh experts on average",
        ),
        ({ROWS["one"]: (52, 52, 46)}, "Table 1: MoDE with 2 fresh experts is above MoDE with 1 fresh"),
        ({ROWS["one"]: (40, 40, 43)}, "Table 1: MoDE with 1 fresh expert is above full fine-tuning on average"),
        (
            {ROWS["frozen"]: (52, 52, 46)},
            "Table 1: MoDE with 2 trained experts is above MoDE with 2 frozen experts on average",
        ),
        ({ROWS["lora"]: (47, 42, 46)}, "Table 1: MoDE with 2 trained experts is above LoRA of rank 16 on the first"),
        ({ROWS["lora"]: (42, 47, 46)}, "Table 1: MoDE with 2 trained experts is above LoRA of rank 16 on the second"),
        ({ROWS["full"]: (41, 45, 43)}, "Table 1: full fine-tuning is above LoRA of rank 16 on the first"),
        ({ROWS["full"]: (45, 41, 43)}, "Table 1: full fine-tuning is above LoRA of rank 16 on the second"),
        ({ROWS["full"]: (45, 45, 51.5)}, "Table 1: MoDE with 2 trained experts is above full fine-tuning in retention"),
        ({ROWS["lora"]: (40, 40, 51.5)}, "Table 1: MoDE with 2 trained experts is above LoRA of rank 16 in retention"),
        ({ROWS["lora"]: (42, 42, 42)}, "Table 1: LoRA of rank 16 is above full fine-tuning in retention"),
        ({ROWS["one"]: (48, 48, 42)}, "Table 1: MoDE with 1 fresh expert is above full fine-tuning in retention"),
        (
            {ROWS["composed"]: (44.2, 47, 51)},
            "§4.2: MoDE with 2 trained experts is comparable to full fine-tuning on the first",
        ),
        (
            {ROWS["composed"]: (47, 44.2, 51)},
            "§4.2: MoDE with 2 trained experts is comparable to full fine-tuning on the second",
        ),
        ({Arms(SIZE).longer["two"]: (52, 52, 46)}, "§3.2, §4.1: MoDE with 2 trained experts is above MoDE with 2"),
        ({Arms(SIZE).longer["full"]: (52, 52, 46)}, "§3.2, §4.1: MoDE with 2 trained experts is above full"),
        ({Arms(SIZE).longer["lora"]: (52, 52, 46)}, "§3.2, §4.1: MoDE with 2 trained experts is above LoRA"),
        ({Arms(SIZE).by_rate["full"][1e-3]: (52, 52, 46)}, "§4.1: MoDE with 1 fresh expert is above full"),
        ({Arms(SIZE).by_rate["lora"][1e-3]: (52, 52, 46)}, "§4.1: MoDE with 1 fresh expert is above LoRA"),
        ({RANKS[64]: (42, 44, 30)}, "Table 2: LoRA of rank 16 is above LoRA of rank 64"),
        ({RANKS[64]: (42, 35, 47)}, "Table 2: LoRA of rank 16 retains more than LoRA of rank 64"),
        ({RANKS[8]: (42, 42, 46)}, "Table 2: LoRA of rank 8 retains more"),
        ({MORE["ffn"]: (42, 42, 45)}, "Table 2: LoRA of rank 16 in FFNs, too, is above"),
        ({MORE["ffn"]: (42, 44, 47)}, "Table 2: LoRA of rank 16 retains more than LoRA of rank 16 in FFNs,"),
        ({MORE["embeddings"]: (42, 44, 45)}, "Table 2: LoRA of rank 16 is above LoRA of rank 16 in embeddings"),
        ({MORE["both"]: (42, 42, 44)}, "Table 2: LoRA of rank 16 in FFNs and embeddings, too, is above"),
        ({MORE["embeddings"]: (42, 42, 47)}, "Table 2: LoRA of rank 16 retains more than LoRA of rank 16 in emb"),
        ({MORE["both"]: (42, 44, 47)}, "Table 2: LoRA of rank 16 retains more than LoRA of rank 16 in FFNs and"),
        ({SHAPES[2, 2]: (30, 47, 47)}, "Table 3: MoDE of 2 × 2 layers is above MoDE of 2 × 1"),
        ({SHAPES[6, 1]: (30, 49, 47)}, "Table 3: MoDE of 6 × 1 layers is above MoDE of 3 × 2"),
        ({SHAPES[6, 2]: (30, 53, 45)}, "Table 3: MoDE of 6 × 2 layers retains as much"),
        ({SHAPES[6, 2]: (30, 53, 49)}, "Table 3: MoDE of 6 × 2 layers retains as much"),
        ({Arms(SIZE).by_layers[4]: (30, 47, 47)}, "Figure 3: MoDE of 3 × 4 layers is above MoDE of 3 × 1"),
        ({RANKS[8]: (42, 53, 47.5)}, "Figure 3: the best number of layers is above the best rank"),
        ({MODE[16]: (30, 41, 45)}, "Figure 3: on 16 sequences LoRA"),
        ({LORA[None]: (30, 51, 46)}, "Figure 3: on all sequences MoDE"),
        ({MODE[128]: (30, 50, 45)}, "Figure 3: from 128 sequences to all"),
        (
            {MIXED["composed"][8]: (44, 44, 49)},
            "Figure 5: MoDE with 2 frozen experts on 8 sequences of each target is above MoDE with 2 trained",
        ),
        (
            {MIXED["full"][8]: (44, 44, 49)},
            "Figure 5: MoDE with 2 frozen experts on 8 sequences of each target is above full",
        ),
        (
            {MIXED["two"][8]: (44, 44, 49)},
            "Figure 5: MoDE with 2 frozen experts on 8 sequences of each target is above MoDE with 2 fresh",
        ),
        (
            {MIXED["lora"][8]: (44, 44, 49)},
            "Figure 5: MoDE with 2 frozen experts on 8 sequences of each target is above LoRA",
        ),
        ({MIXED["composed"][8]: (46, 46, 51)}, "Figure 5: from 8 sequences of each target"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_turns_round_turns_its_claim(changed: Mapping[Arm, Accuracies], where: str) -> None:
    result = marks(world(changed))
    assert {mark for shown, mark in result.items() if shown.startswith(where)} in ({CONTRADICTED}, {UNDECIDED})


def best_of(evidence: ModeMeasurements, better: Mapping[int, Arm], others: Mapping[int, Arm]) -> Verdict:
    """The verdict on the best of some models against the best of others, on the second target."""
    groups = {name: {str(key): arm for key, arm in of.items()} for name, of in (("a", better), ("b", others))}
    case = ModeCase(evidence, groups, {"second": ["law"]})
    return best_has_more(case, Claim("", "", ""), {"better": "a", "others": "b", "on": "second"})


def test_equal_models_seldom_differ_by_the_best_of_several() -> None:
    """One in forty may look so by chance; of many, chosen and judged on the same documents, it is far more."""
    many = {rank: Arm("lora", on="second", lora=replace(SIZE.lora, rank=rank)) for rank in range(1, 25)}
    other, alike = SHAPES[3, 2], (45.0, 45.0, 45.0)
    ours = naive = 0
    for chance in range(60):
        evidence = evidence_of(hits_of(dict.fromkeys([*many.values(), other], alike), chance, suits=0.05))
        verdict = best_of(evidence, many, {1: other})
        ours += verdict.estimate is not None and verdict.estimate.low > 0
        means = {arm: result.value for arm in many.values() if (result := evidence.average(arm, ["law"]))}
        lead = evidence.difference(max(means, key=lambda arm: means[arm]), other, ["law"])
        naive += lead is not None and lead.low > 0
    assert ours <= 4 < naive


def test_the_best_of_several_is_chosen_in_the_seeds_that_all_of_them_have() -> None:
    hits = hits_of({RANKS[8]: (40, 40, 40), RANKS[16]: (45, 45, 45), SHAPES[3, 2]: (42, 42, 42)})
    for place in [hit for hit in hits if hit[1] == 1]:  # a seed in which all do better, and one has no score
        more = replace(hits[place], totals_N=hits[place].totals_N * 1.5)
        hits |= {place: more} if place[0] != RANKS[16] else {}
    del hits[RANKS[16], 1, "law"]
    ranks = {rank: RANKS[rank] for rank in (8, 16)}
    verdict = best_of(evidence_of(hits), ranks, {1: SHAPES[3, 2]})
    assert verdict.ours.startswith("16 and 1, ")
    assert verdict.estimate is not None
    assert verdict.estimate.value == pytest.approx(3, abs=0.3)


def test_an_average_is_of_both_targets_and_what_is_retained_in_percent() -> None:
    row = next(row for row in table("1", world()) if row["model"] == "full fine-tuning")
    assert [row[f"on {domain}"] for domain in SUBJECT.judged] == pytest.approx([45, 45, 43], abs=0.2)
    assert row["average"] == pytest.approx(fmean([45, 45, 43]), abs=0.2)
    assert row["low"] < row["average"] < row["high"]
    assert (row["parameters"], row["paper: average"]) == (9000, 64.34)


def test_parameters_are_those_of_the_backbone_and_what_was_added() -> None:
    rows = {row["model"]: row["parameters"] for row in table("1", world())}
    assert rows["MoDE with 2 fresh experts"] == 9000 + 2 * 1000
    assert rows["LoRA of rank 16"] == 9000 + 1000


def test_steps_count_the_trainings_of_both_experts() -> None:
    rows = {row["model"]: row["steps in all"] for row in table("steps", world())}
    assert set(rows.values()) == {3 * SIZE.training.num_steps}


def test_a_rank_is_no_learning_rate() -> None:
    assert {arm.lora.alpha / arm.lora.rank for arm in RANKS.values() if arm.lora} == {2.0}
    assert [row["rank"] for row in table("2", world())] == [8, 16, 64, 16, 16, 16]


def test_the_papers_numbers_agree_with_its_own_averages_but_for_those_named() -> None:
    for first, second, retained, average in PAPER["table_1"].values():
        assert average == pytest.approx((first + second + retained) / 3, abs=0.006)
    composed, full = PAPER["table_1"]["composed"], PAPER["table_1"]["full"]
    assert composed[2] - full[2] == pytest.approx(1.55)  # printed: 1.65
    assert PAPER["parameters"]["composed"] - PAPER["parameters"]["lora"] == pytest.approx(0.791)  # printed: 0.789


@pytest.mark.parametrize("size", ["tiny", "smoke", "small"])
def test_every_arm_is_named_once_and_table_1_comes_first(size: str) -> None:
    from workbench_studies.mode.arms import SIZES

    one = SIZES[size]  # type: ignore[index]
    result = Arms(one).every
    assert len({arm.key for arm in result}) == len(result) == len(set(result))
    assert set(Arms(one).table_1.values()) < set(result[:10])
    needed = [
        *Arms(one).longer.values(),
        *Arms(one).by_rank.values(),
        *Arms(one).by_shape.values(),
        *Arms(one).by_layers.values(),
        *Arms(one).in_more_layers.values(),
        Arms(one).copied,
        *(arm for of in Arms(one).by_rate.values() for arm in of.values()),
        *(arm for of in Arms(one).by_sequences.values() for arm in of.values()),
        *(arm for of in Arms(one).by_mixture.values() for arm in of.values()),
    ]
    assert set(needed) <= set(result)


def test_ranks_that_stand_in_for_the_papers_are_called_so() -> None:
    shown = {one.claim.sentence: one.claim.paper for one in judge(world())}
    assert shown["LoRA of rank 16 is above LoRA of rank 64 on law"] == (
        "76.17 > 66.55 (rank 16 and 2048; here 16 and 64 stand in for them)"
    )
    assert shown["LoRA of rank 8 retains more than LoRA of rank 16"] == "48.76 > 48.64 (rank 8 and 16)"


def test_every_row_of_tables_2_and_3_has_the_columns_of_the_paper() -> None:
    fewer = SUBJECT.model_copy(update={"budget": replace(SIZE, ranks=(2, 8))})
    rows = table("2", replace(world(), subject=fewer))
    assert [row["paper: Code"] for row in rows] == [
        None,
        *(PAPER["table_2"][name][0] for name in ("8", "16", "ffn", "embeddings", "both")),
    ]


def verdict_of(evidence: ModeMeasurements, start: str) -> Verdict:
    return next(one for one in judge(evidence) if f"{one.claim.where}: {one.claim.sentence}".startswith(start))


def test_an_arm_that_ended_below_the_untouched_backbone_is_no_result() -> None:
    claim = "Table 2: LoRA of rank 16 is above LoRA of rank 64"
    verdict = verdict_of(world({RANKS[64]: (42, 20.5, 30)}), claim)
    assert verdict.mark == UNTESTABLE
    assert "A floor: LoRA of rank 64 ended below the untouched backbone on law (20." in verdict.why
    assert verdict_of(world(), claim).mark == REPRODUCED


def test_an_arm_that_early_stopping_put_back_to_the_backbone_is_no_result() -> None:
    hits = hits_of(as_printed())
    hits |= {(RANKS[64], seed, domain): hits[BACKBONE, seed, domain] for seed in range(2) for domain in SUBJECT.judged}
    verdict = verdict_of(evidence_of(hits), "Table 2: LoRA of rank 16 is above LoRA of rank 64")
    assert verdict.mark == UNTESTABLE
    assert "A floor: LoRA of rank 64 did not leave the untouched backbone on law (" in verdict.why


def test_accuracies_near_a_guess_are_no_result() -> None:
    low = {arm: (3.0 + place / 1000, 3.0, 3.0) for place, arm in enumerate(as_printed())}
    low[BACKBONE] = (2.0, 2.0, 2.0)
    verdict = verdict_of(evidence_of(hits_of(low)), "Table 1: MoDE with 2 trained experts is above full fine-tuning on")
    assert verdict.mark == UNTESTABLE
    assert "within 5 points of a guess" in verdict.why
