"""The report says what was found, what was not, and nothing that a name could smuggle in."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from engine.statistics.estimates import Estimate, Loss
from studies.tests.demix_worlds import DOMAINS, NOVEL, belief_of, calibration, evidence_of
from studies.tests.made_up_losses import losses_of
from workbench_studies.core.averages import Place
from workbench_studies.core.measurements import Fit, side_of
from workbench_studies.core.report import not_reproduced
from workbench_studies.core.verdicts import summary
from workbench_studies.demix.measurements import Curve
from workbench_studies.demix.names import CALIBRATED, CODE, GRID, PAPER, READINGS, SIZES, System, system
from workbench_studies.demix.report import REPORT, few_tokens, reasons, tokens_of_a_target
from workbench_studies.papers.catalog import DEMIX, Circumstances, JobFacts
from workbench_studies.papers.report_pages import charts, markdown, page
from workbench_studies.papers.todays_rule import with_todays_marks

TOKENS = {"training_tokens": 8_000_000, "adapting_tokens": 1000}
BUDGET = {**asdict(SIZES["tiny"]), **TOKENS, "block_size": 128, "prior_blocks": 100}
NAIVE, DENSE = System("naive"), System("dense")


def findings(losses: dict[Place, Loss], *curves: Curve, jobs: tuple[JobFacts, ...] = ()) -> dict[str, Any]:
    output = Circumstances("demix", "cpu", {"torch": "2"}, "tiny", BUDGET, jobs)
    return DEMIX.findings(evidence_of(losses), output, curves=curves)


def training(system: str, seed: int, *values: float) -> Curve:
    points = [(100 * place, value) for place, value in enumerate(values, 1)]
    return Curve(system, seed, dict.fromkeys(DOMAINS, points), 1000)


def test_marks_are_counted_and_jobs_that_are_not_done_named_with_their_state() -> None:
    jobs = (
        JobFacts("Train", "train-joint", "failed", 1.0),
        JobFacts("Score", "evaluate", "queued", None),
        JobFacts("Report", "a kind of its own", "running", None, writes_report=True),
        JobFacts("Import", "import-corpus", "done", 1.0),
    )
    result = findings(losses_of({NAIVE: 3.0, DENSE: 3.2}, DOMAINS), jobs=jobs)
    assert result["marks"]["reproduced"] == 2  # on average, and on most domains
    assert sum(result["marks"].values()) == len(result["claims"])
    assert summary(result).startswith("2 of ")
    assert summary(result).endswith(" 2 jobs are not done: 1 failed, 1 queued.")
    assert "claims that need it are marked not testable here: Train (failed), Score (queued)." in markdown(result)


def test_the_reports_own_job_is_known_in_findings_of_before_jobs_recorded_that_they_write_it() -> None:
    jobs = (JobFacts("Train", "train-joint", "failed", 1.0), JobFacts("Report", "replicate-demix", "running", None))
    result = findings({}, jobs=jobs)
    assert summary(result).endswith(" 2 jobs are not done: 1 failed, 1 running.")  # both say that they do not write it
    for job in result["jobs"]:
        del job["writes_report"]
    assert summary(result).endswith(" 1 job is not done: 1 failed.")


def test_weaker_claims_are_counted_by_themselves() -> None:
    result = findings({})
    result["marks"] = {
        "reproduced": 3,
        "weaker claim reproduced": 2,
        "contradicted": 1,
        "undecided": 0,
        "not testable here": 4,
    }
    counts = "3 of 10 claims reproduced, 2 weaker claim reproduced, 1 contradicted, 0 undecided, 4 not testable here."
    assert summary(result) == counts
    result["claims"][0]["is_one_seed"] = True
    assert summary(result) == f"{counts} 1 rests on one seed."


def test_findings_of_before_are_read_in_todays_marks() -> None:
    """They had one mark for what is contradicted and what is undecided; the first ones not even a field for it."""
    result = findings({}) | {"readings": []}
    claim = {"why": "", "where": "Table 3", "sentence": "a sentence", "is_one_seed": False}
    result["claims"] = [
        {**claim, "mark": "reproduced"},
        {**claim, "mark": "reproduced only in a weaker form"},
        {**claim, "mark": "not reproduced", "is_undecided": True},
        {**claim, "mark": "not reproduced", "is_undecided": False},
        {**claim, "mark": "not reproduced", "why": "Undecided: the interval includes 0."},
        {**claim, "mark": "not testable here"},
    ]
    read = with_todays_marks(result)
    expected = ["reproduced", "weaker claim reproduced", "undecided", "contradicted", "undecided", "not testable here"]
    assert [one["mark"] for one in read["claims"]] == expected
    assert summary(read) == (
        "1 of 6 claims reproduced, 1 weaker claim reproduced, 1 contradicted, 2 undecided, 1 not testable here."
    )
    assert with_todays_marks(read) == read


def test_a_report_of_the_smallest_size_begins_with_that_its_numbers_say_nothing() -> None:
    result = findings({})
    output = "The numbers of this report mean nothing."
    for shown in (markdown, page):
        assert output not in shown(result)
        text = shown(result | {"size": "smoke"})
        assert text.index(output) < text.index("claims reproduced")


def test_a_crossing_and_its_absence_are_reported_in_words() -> None:
    early = [training("demix", 0, 3.5, 3.0, 2.5), training("dense", 0, 3.4, 3.1, 2.9)]
    assert "is below Dense from 200,000 tokens on" in markdown(findings({}, *early))
    never = [training("demix", 0, 3.5, 3.0, 3.0), training("dense", 0, 3.4, 3.1, 2.9)]
    assert "does not overtake Dense within this training" in markdown(findings({}, *never))
    assert "is not known yet" in markdown(findings({}))


def test_what_did_not_come_out_is_explained_by_its_own_numbers() -> None:
    nats = {DENSE: 3.0, NAIVE: 3.2} | {system("uniform", reading): 4.2 for reading in READINGS}
    losses = losses_of(nats, DOMAINS)
    losses |= losses_of({DENSE: 4.0, system("uniform", PAPER): 4.2, system("uniform", CODE): 3.8}, NOVEL)
    output = {claim["sentence"]: " ".join(reasons) for claim, reasons in not_reproduced(findings(losses), reasons)}
    assert (
        f"under another reading of the posterior: {CODE}"
        in output["DEMix (uniform) has less perplexity than Dense on the novel domains"]
    )


def test_what_an_expert_sees_is_one_guess_that_names_the_claims_against_models_that_see_all_text() -> None:
    nats = {DENSE: 3.0, System("domain-token"): 3.1, NAIVE: 3.2} | {
        system("cached", reading): 3.3 for reading in READINGS
    }
    result = findings(losses_of(nats, DOMAINS))
    (guess,) = few_tokens(result)
    assert guess.startswith("Guess: few tokens, for claims 1, 2 and 5. ")
    assert "2.00 M of 8.00 M tokens; the feed-forward networks of Dense and +Domain-token see all of it." in guess
    assert "overtakes +Domain-token" in guess
    assert markdown(result).count("share of the text") == 1
    assert not any("share of the text" in " ".join(why) for _, why in not_reproduced(result, reasons))
    nats |= {NAIVE: 2.8} | {system("cached", reading): 2.8 for reading in READINGS}
    assert list(few_tokens(findings(losses_of(nats, DOMAINS)))) == []


def adapted(nats: float) -> dict[Place, Loss]:
    """Dense-DAPT with this loss on its target and on the training domains; Dense itself has 3 nats on all text."""
    losses = losses_of({DENSE: 3.0}, [*DOMAINS, *NOVEL])
    for novel in NOVEL:
        losses |= losses_of({System("dense-dapt", domain=novel): nats}, [*DOMAINS, novel])
    return losses


def reasons_by_sentence(result: dict[str, Any]) -> dict[str, str]:
    return {claim["sentence"]: " ".join(why) for claim, why in not_reproduced(result, reasons)}


def test_claims_on_adapting_are_explained_by_how_much_text_that_sees() -> None:
    output = reasons_by_sentence(findings(adapted(3.1)))
    tokens = "Adapting sees at most 1,000 tokens of its target."
    assert tokens in output["dense-DAPT lowers the perplexity on its target"]
    output = reasons_by_sentence(findings(adapted(2.9)))
    assert tokens in output["dense-DAPT raises the perplexity on the training domains"]


def test_too_little_text_is_no_cause_where_dense_dapt_wins_from_as_much() -> None:
    def both(dense: float, demix: float) -> dict[Place, Loss]:
        own = (losses_of({system("demix-dapt", PAPER, novel): demix}, [novel]) for novel in NOVEL)
        return adapted(dense) | {place: loss for one in own for place, loss in one.items()}

    words = tokens_of_a_target(findings(both(2.0, 2.5)))
    every = f"on {len(NOVEL)} of {len(NOVEL)} targets"
    assert f"dense-DAPT has less perplexity than DEMix-DAPT {every}, so the amount of text alone" in words
    assert "no arm tells these apart" in words
    for result in (findings(both(2.5, 2.0)), findings(adapted(2.0))):
        assert tokens_of_a_target(result).endswith("tokens of its target. No arm varies how many.")


def test_novel_domains_of_which_fewer_than_sixty_documents_were_read_are_named() -> None:
    result = findings(losses_of({DENSE: 3.0}, [*DOMAINS, *NOVEL]))
    for row, number in zip(result["texts"], [9, 9, 9, 9, 60, 59], strict=False):
        row["test documents"] = number
    few = [row["text"] for row in result["texts"] if row["text"] in NOVEL and row["test documents"] < 60]
    assert few
    assert f"Novel domains of which fewer than 60 test documents were read: {few[0]} (" in markdown(result)
    for row in result["texts"]:
        row["test documents"] = 60
    assert "fewer than 60" not in markdown(result)


def test_every_lambda_of_the_papers_grid_is_a_row() -> None:
    grid = {system("updating", one): 3.0 + place / 10 for place, one in enumerate(GRID.values())}
    result = findings(losses_of(grid, [*DOMAINS, *NOVEL]))
    rows = result["tables"]["5 by λ"]
    assert [(row["λ"], row["share of the newest block"]) for row in rows] == [
        (0.1, 0.9),
        (0.3, 0.7),
        (0.5, 0.5),
        (1, 0),
    ]
    assert rows[0]["novel"] < rows[3]["novel"]
    assert rows[0]["novel, low"] <= rows[0]["novel"] <= rows[0]["novel, high"]
    assert "DEMix (updating) by λ of Eq. 9" in markdown(result)
    del result["tables"]["5 by λ"]  # as in a report of before
    assert "by λ of Eq. 9" not in markdown(result)


def test_reasons_follow_from_stored_fields_whatever_the_sentence_is() -> None:
    result = json.loads(json.dumps(findings(adapted(3.1) | losses_of({DENSE: 3.0, NAIVE: 3.2}, DOMAINS))))
    for place, claim in enumerate(result["claims"]):
        claim["sentence"] = f"claim {place}"
    output = " ".join(reasons_by_sentence(result).values())
    assert "Adapting sees at most" in output
    assert "networks of Dense see all of it" in " ".join(few_tokens(result))


def test_findings_of_before_these_fields_are_read_without_the_reasons_that_need_them() -> None:
    result = findings(adapted(3.1) | losses_of({DENSE: 3.0, NAIVE: 3.2}, DOMAINS))
    for claim in (*result["claims"], *result["readings"]):
        for name in ("topics", "model", "is_undecided"):
            del claim[name]
    output = reasons_by_sentence(result)
    assert output["dense-DAPT lowers the perplexity on its target"].startswith("Reversed: ")
    assert "Adapting sees at most" not in markdown(result)
    assert "see all of it" not in page(result)


@pytest.mark.parametrize(("seeds", "is_undecided", "explained"), [(2, True, True), (3, True, False), (2, False, False)])
def test_few_seeds_are_a_reason_where_a_claim_is_undecided(seeds: int, is_undecided: bool, explained: bool) -> None:
    result = findings(losses_of({NAIVE: 3.2, DENSE: 3.0}, DOMAINS)) | {"seeds": seeds}
    for claim in result["claims"]:
        claim["mark"] = "undecided" if is_undecided else "contradicted"
    output = reasons_by_sentence(result)["DEMix (naive) has less perplexity than Dense on the training domains"]
    assert (f"{seeds} seeds and this much test text cannot resolve" in output) is explained


def test_the_paper_has_its_row_where_its_domains_are_not_ours() -> None:
    tables = findings({})["tables"]
    assert tables["13"][-1] == {
        "target": "paper, average",
        "method": "dense-DAPT",
        "target, %": -55.1,
        "training domains, %": 70.1,
    }
    assert tables["4"][-1] == {
        "domain": "paper, average (1.3B)",
        "Dense": 13.8,
        "DEMix (naive)": 13.8,
        "DEMix (cached)": 13.4,
    }


def test_a_text_with_few_documents_or_blocks_is_named() -> None:
    losses = losses_of({NAIVE: 3.0}, ["law"], num_documents=2) | losses_of({NAIVE: 3.0}, ["sea"])
    evidence = evidence_of(losses, beliefs={(0, "sea"): belief_of(np.full((4, 40), 0.25))})
    evidence.prior_blocks["sea"] = 40
    result = DEMIX.findings(evidence, Circumstances("demix", "cpu", {}, "tiny", BUDGET, ()))
    rows = {row["text"]: row for row in result["texts"]}
    assert (rows["law"]["test documents"], rows["sea"]["test documents"]) == (2, 60)
    assert (rows["sea"]["blocks behind a cached prior"], rows["law"]["dev documents"]) == (40, None)
    text = markdown(result)
    assert "fewer than 5 documents are too narrow: law." in text
    assert "Cached priors of fewer than 100 blocks, because the text is too short: sea." in text


def test_what_the_time_leaves_out_is_reported() -> None:
    jobs = (
        JobFacts("Train", "train-joint", "done", 90.0),
        JobFacts("Import", "import-corpus", "done", 600.0, is_own=False),
    )
    text = markdown(findings({}, jobs=jobs))
    assert "its 1 ended jobs took 1.5 min" in text
    assert "1 more belong to another replication" in text


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a | b"])
def test_a_name_cannot_become_a_tag_or_end_a_cell(name: str) -> None:
    result = findings({}, jobs=(JobFacts(name, "evaluate", "done", 1.0),))
    assert "<script>alert(1)" not in page(result) + markdown(result)
    row = next(line for line in markdown(result).splitlines() if "| done |" in line)
    assert row.replace("\\|", "").count("|") == 5


def test_the_page_makes_no_requests() -> None:
    html = page(findings({}, training("demix", 0, 3.0)))
    assert 'src="http' not in html
    assert "<link" not in html
    assert "chart-curves" in html


def calibrated(nats: float, novel: float = 4.0, **options: Any) -> dict[str, Any]:
    """Findings of a cached prior with these losses where it is calibrated; Dense has 3.5 and 4.5, `prefix` 3.3."""
    cached = {reading: system("cached", reading) for reading in (*READINGS, CALIBRATED)}
    nats_of = {DENSE: 3.5} | dict.fromkeys(cached.values(), 3.3)
    losses = losses_of(nats_of | {cached[CALIBRATED]: nats}, DOMAINS)
    losses |= losses_of({DENSE: 4.5} | dict.fromkeys(cached.values(), 4.7) | {cached[CALIBRATED]: novel}, NOVEL)
    fits = {seed: Fit(calibration(keeps=seed == 1), DOMAINS) for seed in range(2)}
    output = Circumstances("demix", "cpu", {}, "tiny", BUDGET, ())
    return DEMIX.findings(evidence_of(losses, fits=fits, **options), output)


def test_the_calibrated_reading_changes_no_mark_and_is_no_reading_of_the_paper() -> None:
    best, worst = calibrated(1.0, 1.0), calibrated(8.0, 8.0)
    for name in ("claims", "marks", "sentences", "readings"):
        assert best[name] == worst[name]
    assert {row["reading"] for row in best["readings"]} == set(map(str, READINGS))
    text, worse = markdown(best), markdown(worst)
    start, end = "## Claims that were not reproduced", "## How intervals are computed"
    assert text[text.index(start) : text.index(end)] == worse[worse.index(start) : worse.index(end)]


def test_the_calibrated_reading_has_rows_beside_the_papers_in_tables_3_and_5() -> None:
    result = calibrated(3.1)
    for table, modes in (("3", ["cached"]), ("5", ["uniform", "updating", "cached"])):
        rows = result["tables"][table]
        own = [row for row in rows if row["reading"] == "calibrated on dev text (ours)"]
        assert [row["system"] for row in own] == [f"DEMix ({mode})" for mode in modes]
        assert {row["125M"] for row in own} == {None}  # the paper has no such numbers
        assert [row["system"] for row in rows if row["125M"] and row["reading"]] == [row["system"] for row in own]
    assert result["tables"]["3"][-1]["ours"] == pytest.approx(np.exp(3.1), rel=0.05)
    assert len(result["tables"]["5 by reading"]) == 5 * (len(READINGS) + 1)


def test_the_fit_of_each_seed_and_the_differences_are_shown_with_where_they_hold() -> None:
    result = json.loads(json.dumps(calibrated(3.3, 4.0)))
    ours = result["calibrated"]
    assert [(row["decay"], row["power"], row["is kept"]) for row in ours["fits"]] == [(0.9, 0.3, False), (1, 1, True)]
    rows = {(row["text"], row["against"]): row for row in ours["against"]}
    novel = rows["novel domains", "Dense"]
    assert novel["change"]["value"] == pytest.approx(100 * np.expm1(-0.5), rel=0.02)
    assert novel["difference"]["value"] == pytest.approx(novel["calibrated"] - novel["other"])
    assert novel["difference"]["low"] < novel["difference"]["value"] < novel["difference"]["high"] < 0
    assert len(novel["difference"]["by_seed"]) == 2
    sentence = (
        "On the training domains it has less perplexity than Dense (cached); no sure difference from "
        f"{PAPER} (cached); no sure difference from {CODE} (cached). On the novel domains it has less perplexity than "
        f"Dense (cached); less perplexity than {PAPER} (cached); less perplexity than {CODE} (cached)."
    )
    for shown in (markdown(result), page(result)):
        assert sentence in shown
        assert "A third reading, ours: calibrated on dev text" in shown
        assert "the paper&#39;s, kept" in shown or "the paper's, kept" in shown
    for row in ours["against"]:
        row["mode"] = "uniform"
    changes = "-18.1 % on the training domains, -39.4 % on the novel domains"
    assert charts(result)["calibrated"].title == f"Calibrated on dev text (ours), perplexity against Dense: {changes}"
    worse = calibrated(3.3, 4.9)
    row = next(row for row in worse["calibrated"]["against"] if row["side"] == "more")
    caution = f"({row['calibrated']:.2f} against {row['other']:.2f})"
    assert "more perplexity than Dense (cached)" in markdown(worse)
    assert f"it loses on the novel domains, cached against Dense {caution}" in markdown(worse)
    assert "it loses" not in markdown(result)


def test_a_side_is_sure_only_where_perplexity_and_its_change_agree() -> None:
    below, unsure = Estimate(-2.0, -3.0, -1.0, (-2.0, -2.0)), Estimate(-2.0, -5.0, 1.0, (-2.0, -2.0))
    one_seed_differs = Estimate(-2.0, -3.0, -1.0, (-4.1, 0.1))
    assert side_of(below, below) == "less"
    assert {side_of(below, other) for other in (unsure, one_seed_differs)} == {"undecided"}
    above = Estimate(2.0, 1.0, 3.0, (2.0, 2.0))
    assert [side_of(above, above), side_of(above, below)] == ["more", "undecided"]


def test_reports_from_before_the_calibrated_reading_have_no_word_of_it() -> None:
    result = calibrated(3.1)
    del result["calibrated"]
    for table in ("3", "5", "5 by reading"):
        rows = [row for row in result["tables"][table] if row["reading"] != str(CALIBRATED)]
        result["tables"][table] = [{name: row[name] for name in row if name != "reading"} for row in rows]
    result["tables"]["5 by reading"] = []
    assert "alibrated" not in markdown(result) + "".join(f"{section}" for section in REPORT.sections(result))
    assert "calibrated" not in charts(result)
