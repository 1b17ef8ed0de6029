"""MoDE's report says what was found and where the paper disagrees, and nothing that a name could smuggle in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from studies.tests.mode_worlds import ROWS, SIZE, Accuracies, as_printed, evidence_of, hits_of
from workbench_studies.core.report import not_reproduced, with_interval
from workbench_studies.mode.arms import Arm, Arms
from workbench_studies.mode.charts import _who_leads
from workbench_studies.mode.claims import ModeMeasurements
from workbench_studies.mode.report import REPORT, describe_best, reasons
from workbench_studies.papers.catalog import MODE, Circumstances, JobFacts
from workbench_studies.papers.report_pages import charts, markdown, page

TOKENS = {"training_tokens": 2_400_000, "seeding_tokens": 5_000_000}
BUDGET = {**asdict(SIZE), **TOKENS, "block_size": 128, "prior_blocks": 0, "shared_backbone": False}


def test_a_report_says_over_what_its_seeds_differ() -> None:
    shared = {**findings(), "budget": {**BUDGET, "shared_backbone": True, "ablation_seeds": 3}}
    assert "not over backbones" in markdown(shared)
    assert "at most the first 3." in markdown(shared)
    assert "over backbones" not in markdown(findings())  # as before that was so


def findings(changed: Mapping[Arm, Accuracies] | None = None, *jobs: JobFacts) -> dict[str, Any]:
    return shown(evidence_of(hits_of({**as_printed(), **(changed or {})})), *jobs)


def shown(evidence: ModeMeasurements, *jobs: JobFacts) -> dict[str, Any]:
    return MODE.findings(evidence, Circumstances("mode", "cpu", {"torch": "2"}, "tiny", BUDGET, jobs))


def test_the_best_row_of_table_1_is_named_beside_full_fine_tuning() -> None:
    assert describe_best(findings()).startswith(
        "Best on average over both targets and what is retained: MoDE with 2 train"
    )
    assert "Full fine-tuning has " in describe_best(findings())
    better = describe_best(findings({ROWS["full"]: (60.2, 60.2, 60.2)}))
    assert "retained: full fine-tuning, 60." in better
    assert "MoDE with 2 trained experts has " in better
    assert "is not known yet" in describe_best(shown(evidence_of({})))


def test_no_reason_stands_beside_every_claim() -> None:
    result = findings({ROWS["composed"]: (40, 40, 40)})
    why = {claim["sentence"]: own for claim, own in not_reproduced(result, reasons)}
    sentence = "MoDE with 2 trained experts is above full fine-tuning on average"
    assert why[sentence] == ["Reversed: the full interval lies on the other side."]
    shared = set.intersection(*(set(reasons(result, claim)) for claim in result["claims"]))
    assert shared == set()


def test_the_summary_has_the_numbers_of_the_first_verdict_and_its_interval() -> None:
    result = findings()
    summary = next(section for section in REPORT.sections(result) if section.title == "Summary")
    first = result["claims"][0]
    assert any(with_interval(first) in words and first["mark"] in words for words in summary.words)


def test_titles_of_charts_say_what_their_numbers_say() -> None:
    drawn = charts(findings())
    assert drawn["sequences"].title == "With 128 and all training sequences MoDE is above LoRA, with 16 below"
    mode = Arms(SIZE).by_sequences["mode"]
    worse = findings(dict.fromkeys(mode.values(), (30.0, 20.0, 30.0)))
    assert charts(worse)["sequences"].title == "MoDE is below LoRA with every number of training sequences"
    assert drawn["parameters"].title.startswith("The best on law is MoDE of 3 × 4 layers: 5")
    assert drawn["methods"].title.endswith("%.")
    assert "times the steps" not in drawn["methods"].title
    frozen = "MoDE with 2 frozen experts is above MoDE with 2 trained experts"
    assert drawn["mixture"].title == f"With 8 and 64 mixed sequences of each target {frozen}, with all below"


@pytest.mark.parametrize(
    ("mode", "lora", "title"),
    [
        ((40, 30), (20, 20), "MoDE is above LoRA with every number of sequences"),
        ((40, 20), (40, 30), "MoDE is not above LoRA with any number of sequences"),
        ((40, 40), (40, 30), "With 128 sequences MoDE is above LoRA, with 16 not above"),
        ((40, 40), (), "Accuracy by the number of sequences"),
        ((), (40, 40), "Accuracy by the number of sequences"),
    ],
)
def test_a_title_says_who_leads_where_both_were_measured_and_a_tie_is_no_lead(
    mode: tuple[float, ...], lora: tuple[float, ...], title: str
) -> None:
    measured = {"MoDE": mode, "LoRA": lora}
    result = {(name, str(n)): value for name, own in measured.items() for n, value in zip((16, 128), own, strict=False)}
    assert _who_leads(result, "MoDE", "LoRA", "sequences") == title


def test_amounts_of_text_grow_along_the_axis_whichever_method_comes_first() -> None:
    for name in ("sequences", "mixture"):
        drawn = charts(findings())[name].figure
        assert len(drawn.data[0].x) <= len(drawn.layout.xaxis.categoryarray)
        *amounts, last = drawn.layout.xaxis.categoryarray
        assert (amounts, last) == (sorted(amounts, key=int), "all")


def test_methods_have_a_legend_and_the_same_colours_in_both_charts() -> None:
    drawn = charts(findings())
    methods = {one.name: (one.marker.color, one.marker.symbol) for one in drawn["methods"].figure.data}
    assert len(set(methods.values())) == len(methods)
    assert all(one.text is None for one in drawn["methods"].figure.data)  # words beside points would overlap
    for one in drawn["mixture"].figure.data:
        assert (one.line.color, one.marker.symbol) == methods[one.name]


@pytest.mark.parametrize(("parameters", "explained"), [(13_500, True), (4_500, False)])
def test_that_the_largest_expert_forgets_is_explained_where_it_is_larger_than_the_papers(
    parameters: int, explained: bool
) -> None:
    result = findings()
    result["tables"]["3"][-1]["parameters added"] = parameters  # of a backbone of 9,000
    (claim,) = [one for one in result["claims"] if "retains as much" in one["sentence"]]
    assert claim["ours"].count(" against ") == 1
    sentence = "Guess: An expert of 6 × 2 layers adds 150 % of the backbone's parameters here, and 50 % of the paper's."
    assert (sentence in reasons(result, claim)) is explained


def test_a_best_rate_at_the_end_of_those_tried_is_a_reason() -> None:
    rates = Arms(SIZE).by_rate["one"]
    result = findings({rates[max(rates)]: (44.6, 44.6, 60.0)})
    claim = next(one for one in result["claims"] if one["where"] == "§4.1")
    shown = f"On all documents MoDE with 1 fresh expert is best at {max(rates):g}, the highest rate that was tried."
    assert shown in reasons(result, claim)


LORA = "no small change; the paper's 16 is of some two thousand."
EXPERT = "An expert of 6 × 2 layers adds 150 % of the backbone's parameters here"
RATE = "On all documents MoDE with 1 fresh expert is best at"


def with_every_reason() -> dict[str, Any]:
    """Findings whose numbers give every reason that a topic selects."""
    rates = Arms(SIZE).by_rate["one"]
    result = findings({rates[max(rates)]: (44.6, 44.6, 60.0)})
    result["tables"]["3"][-1]["parameters added"] = 13_500  # of a backbone of 9,000
    return result


def sentences_with(result: dict[str, Any], reason: str) -> list[str]:
    return [one["sentence"] for one in result["claims"] if any(reason in why for why in reasons(result, one))]


def test_a_reason_is_a_guess_or_names_what_was_varied() -> None:
    result = with_every_reason()
    given = {why for claim in result["claims"] for why in reasons(result, claim)}
    assert len(given) >= 3
    assert all(why.startswith("Guess: ") or "that was tried" in why for why in given)


def test_each_reason_stands_beside_the_one_claim_that_it_is_about() -> None:
    result = with_every_reason()
    assert sentences_with(result, LORA) == ["LoRA of rank 16 is above LoRA of rank 64 on law"]
    assert len(sentences_with(result, EXPERT)) == 1
    assert {one["where"] for one in result["claims"] if RATE in " ".join(reasons(result, one))} == {"§4.1"}


def test_reasons_follow_from_stored_fields_whatever_the_sentence_is() -> None:
    result = json.loads(json.dumps(with_every_reason()))
    numbers = {reason: len(sentences_with(result, reason)) for reason in (LORA, EXPERT, RATE)}
    assert all(numbers.values())
    for claim in result["claims"]:
        claim["sentence"] = "a claim"
    assert {reason: len(sentences_with(result, reason)) for reason in (LORA, EXPERT, RATE)} == numbers


def test_findings_of_before_these_fields_are_read_without_the_reasons_that_need_them() -> None:
    result = with_every_reason()
    for claim in result["claims"]:
        for name in ("topics", "model", "is_undecided"):
            del claim[name]
    assert not any(sentences_with(result, reason) for reason in (LORA, EXPERT, RATE))
    assert "Claims that were not reproduced" in markdown(result)
    assert "Claims that were not reproduced" in page(result)


def test_what_cannot_be_tested_says_why() -> None:
    for claim in shown(evidence_of({}))["claims"]:
        assert claim["mark"] == "not testable here"
        assert claim["why"]
