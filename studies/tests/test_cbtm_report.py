"""C-BTM's report says what was found, what was not, and nothing that a name could smuggle in."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engine.statistics.estimates import Loss
from studies.tests.cbtm_worlds import DOMAINS, MAIN, NOVEL, SIZE, as_printed, evidence_of, groupings, homes
from studies.tests.made_up_losses import losses_of
from workbench_studies.cbtm.names import System, balanced
from workbench_studies.cbtm.report import describe_best, reasons
from workbench_studies.core.averages import Place
from workbench_studies.core.measurements import Measurements
from workbench_studies.core.report import not_reproduced
from workbench_studies.papers.catalog import CBTM, Circumstances, JobFacts
from workbench_studies.papers.report_pages import charts, markdown

BUDGET = {**asdict(SIZE), "block_size": 256, "training_tokens": 2_400_000}


def findings(changed: dict[System, float] | None = None, *jobs: JobFacts) -> dict[str, Any]:
    nats = {**as_printed(), **(changed or {})}
    losses = losses_of(nats, DOMAINS) | losses_of(nats, NOVEL) | homes(2.5, 3.0)
    counts = [[80, 10, 5, 5], [30, 25, 25, 20]]
    return shown(evidence_of(losses, groupings(counts, [100] * 4, [10, 20, 70, 300])), *jobs)


def shown(evidence: Measurements, *jobs: JobFacts) -> dict[str, Any]:
    return CBTM.findings(evidence, Circumstances("cbtm", "cpu", {"torch": "2"}, "tiny", BUDGET, jobs))


def test_the_best_number_of_clusters_is_named_beside_dense() -> None:
    assert describe_best(findings()).startswith("4 clusters are best at equal tokens: perplexity ")
    worse = {System(balanced(number)): 3.2 for number in (2, 4, 8)}
    assert describe_best(findings(worse)).startswith("Dense is best at equal tokens")
    assert "is not known yet" in describe_best(shown(evidence_of({})))


def test_what_did_not_come_out_is_explained_by_its_own_numbers() -> None:
    result = findings({System(MAIN): 3.1})
    why = {claim["sentence"]: " ".join(reasons) for claim, reasons in not_reproduced(result, reasons)}
    own = why["4 clusters have less perplexity than one, at equal tokens"]
    assert "Tokens were varied: the lead of 4 clusters over one is -" in own
    assert own.count(" tokens") == 2


def test_lines_of_the_temperature_chart_are_the_columns_that_stand_beside_one_of_the_paper() -> None:
    result = findings()
    for row in result["tables"]["9"]:
        row["a column without the paper's"] = 1.0
    drawn = charts(result)["temperature"].figure
    assert [line.name for line in drawn.data] == ["top-1", "top-2", "all"]


def test_the_calibrated_reading_is_named_ours_and_judges_no_claim() -> None:
    def with_fit(own: dict[Place, Loss]) -> dict[str, Any]:
        nats = as_printed()
        return shown(evidence_of(losses_of(nats, DOMAINS) | losses_of(nats, NOVEL) | own))

    before, result = with_fit({}), with_fit(losses_of({System(MAIN, "calibrated"): 2.5}, [*DOMAINS, *NOVEL]))
    title = "## A reading of ours: a posterior calibrated on dev text"
    assert title in markdown(result)
    assert title not in markdown(before)
    assert [claim["mark"] for claim in result["claims"]] == [claim["mark"] for claim in before["claims"]]
    rows = {(row["text"], row["against"]): row for row in result["calibrated"]["against"]}
    assert rows["training domains", "nearness (Eq. 3)"]["side"] == "less"
    assert rows["novel domains", "Dense"]["change"]["high"] < 0
    by_rule = {(row["models"], row["weighed by"]) for row in result["tables"]["rules"]}
    assert (str(MAIN), "posterior, calibrated on dev text (ours)") in by_rule
    del result["calibrated"]  # as in a report of before
    assert title not in markdown(result)
