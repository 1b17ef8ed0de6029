"""A further paper is a data file and its arms: claims are judged and sentences listed without a line of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.statistics.bootstrap import Resampled
from tests.engine.statistics.texts import losses_of
from workbench_studies.core.evidence import Evidence
from workbench_studies.core.scored import Measured, Subject
from workbench_studies.core.shapes import SHAPES
from workbench_studies.core.study import read_study
from workbench_studies.core.verdicts import REPRODUCED, UNTESTABLE, Verdict
from workbench_studies.demix.sizes import SIZES

DOMAINS = ("law", "sea")
STUDY = read_study(__file__)


@dataclass(frozen=True)
class ToyCase:
    """The arms of the paper: models are called by their size."""

    evidence: Evidence
    systems: Mapping[str, str]
    words: Mapping[str, object] = field(default_factory=dict)

    def system(self, name: str) -> str:
        return self.systems[name]

    def texts(self, name: str) -> Sequence[str]:
        return {"training": DOMAINS}[name]


def judged(nats: Mapping[str, float]) -> list[Verdict]:
    losses = losses_of(nats, DOMAINS)
    evidence = Evidence(Subject("toy", 2, DOMAINS, (), SIZES["smoke"]), Measured(losses), Resampled(losses))
    names = {"small": "1M", "large": "2M"}
    steps = [ToyCase(evidence, {"before": "1M", "after": "1.5M"}), ToyCase(evidence, {"before": "1.5M", "after": "2M"})]
    cases = {"": [ToyCase(evidence, names, names)], "step": steps}
    return [*STUDY.judge(SHAPES, cases.__getitem__), *STUDY.untestable()]


def test_each_claim_is_judged_in_each_case_that_it_is_stated_for() -> None:
    larger, *steps, faster = judged({"1M": 4.0, "1.5M": 3.9, "2M": 3.0})
    assert (larger.mark, larger.claim.sentence) == (REPRODUCED, "the 2M model has less perplexity than the 1M one")
    assert [(one.claim.id, one.claim.sentence) for one in steps] == [("close", "a step costs less than 1 %")] * 2
    assert (faster.mark, faster.why) == (UNTESTABLE, "Needs a GPU.")


def test_a_sentence_has_the_marks_of_the_claims_that_it_names_whatever_their_words() -> None:
    size, speed = STUDY.listed(judged({"1M": 4.0, "1.5M": 3.9, "2M": 3.0}))
    assert [one["mark"] for one in size["judged_by"]] == [REPRODUCED]
    assert (speed["judged_by"], speed["why"]) == ([], "Needs a GPU.")


def test_a_claim_of_a_report_is_known_whatever_values_stand_in_its_words() -> None:
    row = {"where": "Table 1", "sentence": "the 7B model has less perplexity than the 1B one"}
    assert STUDY.id_of(row) == "large-below-small"
    assert STUDY.id_of({**row, "where": "Table 2"}) == ""
