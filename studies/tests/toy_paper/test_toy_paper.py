"""A further paper is a data file and its arms: claims are judged and sentences listed without a line of its own."""

from __future__ import annotations

from collections.abc import Mapping

from studies.tests.made_up_losses import losses_of
from workbench_studies.core.measurements import Measurements
from workbench_studies.core.study import SHAPES, Case, read_study
from workbench_studies.core.verdicts import REPRODUCED, UNTESTABLE, Verdict
from workbench_studies.demix.names import ReplicateDemix

DOMAINS = ("law", "sea")
STUDY = read_study(__file__)
SPEC = ReplicateDemix(name="toy", size="smoke", seeds=2, domains=list(DOMAINS), novel=["tweets"])


def judged(nats: Mapping[str, float]) -> list[Verdict]:
    measured = Measurements(SPEC, losses_of(nats, DOMAINS))
    names = {"small": "1M", "large": "2M"}  # models are called by their size
    main = Case(measured, names, {"training": DOMAINS}, names, ["gpu"])
    steps = [main.also({"before": one, "after": two}, {}) for one, two in (("1M", "1.5M"), ("1.5M", "2M"))]
    return STUDY.judge(SHAPES, {"": [main], "step": steps})


def test_each_claim_is_judged_in_each_case_that_it_is_stated_for() -> None:
    larger, *steps, _, _, faster = judged({"1M": 4.0, "1.5M": 3.9, "2M": 3.0})
    assert (larger.mark, larger.claim.sentence) == (REPRODUCED, "the 2M model has less perplexity than the 1M one")
    assert [(step.claim.id, step.claim.sentence) for step in steps] == [("close", "a step costs less than 1 %")] * 2
    assert (faster.mark, faster.why) == (UNTESTABLE, "Needs a GPU.")


def test_claims_that_differ_by_a_value_are_rows_and_need_an_arm_that_a_replication_may_lack() -> None:
    rows = [one for one in judged({}) if one.claim.where == "Table 2"]
    assert [row.claim.id for row in rows] == ["faster-on-gpu", "better-on-gpu"]
    assert [row.claim.sentence for row in rows] == [
        "on a GPU the 2M model is quicker",
        "on a GPU the 2M model is better",
    ]
    assert {(row.mark, row.why) for row in rows} == {(UNTESTABLE, "Needs a GPU.")}


def test_a_sentence_has_the_marks_of_the_claims_that_it_names_whatever_their_words() -> None:
    size, speed = STUDY.list_sentences(judged({"1M": 4.0, "1.5M": 3.9, "2M": 3.0}))
    assert [one["mark"] for one in size["judged_by"]] == [REPRODUCED]
    assert (speed["judged_by"], speed["why"]) == ([], "Needs a GPU.")


def test_a_claim_of_a_report_is_known_whatever_values_stand_in_its_words() -> None:
    row = {"where": "Table 1", "sentence": "the 7B model has less perplexity than the 1B one"}
    assert getattr(STUDY.find_claim(row), "id", "") == "large-below-small"
    assert STUDY.find_claim({**row, "where": "Table 2"}) is None
