"""The report says what was found, what was not, and nothing that a name could smuggle in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workbench.replications.worlds import DOMAINS, NOVEL, evidence_of, losses_of
from workbench.replications.bootstrap import Loss, Place
from workbench.replications.charts import charts
from workbench.replications.curves import Curve
from workbench.replications.demix import CODE, PAPER, READINGS, system
from workbench.replications.findings import Circumstances, JobFacts, findings_of, summary
from workbench.replications.page import page
from workbench.replications.reasons import not_reproduced
from workbench.replications.report import markdown, sections

BUDGET = {
    "shape": {"family": "llama"}, "vocab_size": 512, "training_tokens": 8_000_000, "adapting_tokens": 1000,
    "training": {}, "adapting": {}, "test_tokens": 1, "block_size": 128, "prior_blocks": 100,
}  # fmt: skip
KNOBS = ("num_steps", "sequences_per_domain", "accumulate", "learning_rate", "clip", "precision")


def findings(losses: dict[Place, Loss], *curves: Curve, jobs: tuple[JobFacts, ...] = ()) -> dict[str, Any]:
    budget = {**BUDGET, "training": dict.fromkeys(KNOBS, 1), "adapting": dict.fromkeys(KNOBS, 1)}
    told = Circumstances("cpu", {"torch": "2"}, "tiny", budget, jobs)
    return findings_of(evidence_of(losses), curves, told)


def training(system: str, seed: int, *values: float) -> Curve:
    points = [(100 * place, value) for place, value in enumerate(values, 1)]
    return Curve(system, seed, dict.fromkeys(DOMAINS, points), 1000)


def test_marks_are_counted_and_unfinished_jobs_named() -> None:
    jobs = (JobFacts("Train", "train-demix", "failed", None), JobFacts("Report", "replicate", "running", None))
    found = findings(losses_of({"naive": 3.0, "dense": 3.2}, DOMAINS), jobs=jobs)
    assert found["marks"]["reproduced"] == 1
    assert sum(found["marks"].values()) == len(found["claims"])
    assert summary(found).startswith("1 of ")
    assert found["unfinished"] == ["Train"]
    assert "Not finished yet, so marked not testable here: Train." in markdown(found)


def test_a_crossing_and_its_absence_are_said_in_words() -> None:
    early = [training("demix", 0, 3.5, 3.0, 2.5), training("dense", 0, 3.4, 3.1, 2.9)]
    assert "is below Dense from 200,000 tokens on" in markdown(findings({}, *early))
    never = [training("demix", 0, 3.5, 3.0, 3.0), training("dense", 0, 3.4, 3.1, 2.9)]
    assert "does not overtake Dense within what was trained" in markdown(findings({}, *never))
    assert "cannot be seen yet" in markdown(findings({}))


def test_what_did_not_come_out_is_explained_by_its_own_numbers() -> None:
    nats = {"dense": 3.0, "naive": 3.2} | {system("uniform", one): 4.2 for one in READINGS}
    losses = losses_of(nats, DOMAINS)
    losses |= losses_of({"dense": 4.0, system("uniform", PAPER): 4.2, system("uniform", CODE): 3.8}, NOVEL)
    told = {claim["sentence"]: " ".join(reasons) for claim, reasons in not_reproduced(findings(losses))}
    assert "2.00 M of 8.00 M tokens" in told["DEMix (naive) has less perplexity than Dense on the training domains"]
    assert f"under another reading of the posterior: {CODE}" in told[
        "DEMix (uniform) has less perplexity than Dense on the novel domains"
    ]  # fmt: skip


def test_every_section_stands_in_markdown_and_on_the_page() -> None:
    found = findings(losses_of({"naive": 3.0, "dense": 3.2}, DOMAINS), training("demix", 0, 3.0))
    text, html = markdown(found), page(found)
    for section in sections(found):
        assert f"## {section.title}" in text
        assert f"<h2>{section.title}</h2>" in html
    assert set(charts(found)) == {"curves"}


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a | b"])
def test_a_name_cannot_become_a_tag_or_end_a_cell(name: str) -> None:
    found = findings({}, jobs=(JobFacts(name, "evaluate", "done", 1.0),))
    assert "<script>alert(1)" not in page(found) + markdown(found)
    row = next(line for line in markdown(found).splitlines() if "| done |" in line)
    assert row.replace("\\|", "").count("|") == 5


def test_the_page_asks_nobody_for_anything() -> None:
    html = page(findings({}, training("demix", 0, 3.0)))
    assert 'src="http' not in html
    assert "<link" not in html
    assert "chart-curves" in html
