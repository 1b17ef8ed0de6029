"""The sentences on replications follow from the kept reports' numbers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.statistics.estimates import student_mean
from studies.tests.test_cbtm_report import findings as cbtm_findings
from studies.tests.test_forest import stored
from workbench_studies.core.report import format_marks, with_interval
from workbench_studies.core.verdicts import CONTRADICTED, IMPLIED, REPRODUCED, is_above, is_below
from workbench_studies.papers.kept import RESULTS, between, keep, read_kept, results, results_in_short, write_again
from workbench_studies.papers.report_pages import markdown
from workbench_studies.papers.todays_rule import with_todays_marks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "replication"


def rewritten(tmp_path: Path, readme: str, folder: Path = FOLDER) -> tuple[str, str]:
    """A README and the README of a folder of reports, after both are written again from a copy of that folder."""
    copied, page = tmp_path / "docs" / "replication", tmp_path / "README.md"
    shutil.copytree(folder, copied)
    page.write_text(readme, encoding="utf-8")
    write_again(copied, page)
    return page.read_text(encoding="utf-8"), (copied / "README.md").read_text(encoding="utf-8")


def test_the_pages_say_what_the_kept_reports_say(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert rewritten(tmp_path, readme) == (readme, (FOLDER / "README.md").read_text(encoding="utf-8"))


def test_no_number_of_a_kept_report_is_written_by_hand(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    by_hand = between(readme, RESULTS, "")
    section = by_hand.split("## Results", 1)[1].split("\n## ", 1)[0]
    assert not re.search(r"\d+ of \d+|\d %", section)


REMADE = (
    "Summary",
    "All claims in one picture",
    "Claims",
    "Claims that were not reproduced, and possible reasons",
    "How intervals are computed",
    "Run it again, and cite it",
)
OURS = {
    "Two readings of the posterior",
    "A third reading, ours: calibrated on dev text",
    "A reading of ours: a posterior calibrated on dev text",
}
_NOT_KEPT = {  # what a kept report leaves out, as none of it
    "jobs": [],
    "curves": [],
    "forgetting": [],
    "pictures": {"ratios": None, "posteriors": {}, "labels": None, "sizes": {}},
}


def sections_of(page: str) -> dict[str, str]:
    """The sections of a page by their titles."""
    parts = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return {title: text.strip() for title, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("kept", read_kept(FOLDER), ids=lambda one: str(one["name"]))
def test_a_kept_page_says_what_its_numbers_say(kept: dict[str, Any]) -> None:
    page = sections_of((FOLDER / f"{kept['name']}.md").read_text(encoding="utf-8"))
    again = sections_of(markdown({**kept, **_NOT_KEPT}))
    for title in (*REMADE, *(OURS & again.keys())):
        assert page[title] == again[title]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda one: one.stem)
def test_kept_numbers_have_the_marks_that_the_rule_of_today_gives_them(path: Path) -> None:
    stored_findings = json.loads(path.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(with_todays_marks(stored_findings))) == stored_findings


def test_no_interval_of_a_kept_report_is_narrower_than_that_of_its_seeds() -> None:
    for kept in read_kept(FOLDER):
        for row in (*kept["claims"], *kept.get("readings", ())):
            if row["value"] is not None and len(row["by_seed"]) > 1:
                narrowest = student_mean(row["by_seed"])
                reach = narrowest.high - narrowest.mean
                assert row["low"] <= row["value"] - reach + 1e-9 or row["low"] == 0
                assert row["high"] >= row["value"] + reach - 1e-9 or row["high"] == 1


def test_where_the_reading_decides_every_sentence_has_both_verdicts() -> None:
    (kept,) = (one for one in read_kept(FOLDER) if one["name"] == "world1-demix-tiny")
    readings = list(dict.fromkeys(row["reading"] for row in kept["readings"]))[:2]
    marks: dict[tuple[str, str], dict[str, str]] = {}
    for row in kept["readings"]:
        marks.setdefault((row["where"], row["sentence"]), {})[row["reading"]] = row["mark"]
    assert len(marks) == 24
    pages = [(ROOT / "README.md").read_text("utf-8"), (FOLDER / "README.md").read_text("utf-8")]
    for (where, sentence), by_reading in marks.items():
        both = {name.partition(",")[0]: by_reading[name] for name in readings}
        (claim,) = (one for one in kept["claims"] if (one["where"], one["sentence"]) == (where, sentence))
        assert claim["by_evidence"] == both
        shown = [line for page in pages for line in page.splitlines() if f"{sentence}: " in line]
        assert all("(prefix" in line and "last_token)" in line for line in shown)
    counted = [[both[name] for both in marks.values()].count(mark) for name in readings for mark in _DECIDED]
    words = "with prefix {} reproduced, {} implied, {} contradicted; with last_token {} reproduced, {} implied, {} "
    assert all(f"{words}contradicted.".format(*counted) in page for page in pages)


_DECIDED = (REPRODUCED, IMPLIED, CONTRADICTED)


def test_a_rate_that_is_not_the_papers_stands_beside_its_claims(report: dict[str, Any], tmp_path: Path) -> None:
    sentence = "DEMix-DAPT comes close to dense-DAPT on its target, or is better (at most 10 % more, on every target)"
    close = stored(is_below, -2.0, -3.0, -1.0) | {"where": "Figure 6", "sentence": sentence}
    own = report | {"claims": [close]}

    def adapted_at(rate: float) -> dict[str, Any]:
        rates = {"training": 0.006, "adapting": rate}
        changed = {name: {**own["budget"][name], "learning_rate": one} for name, one in rates.items()}
        return with_todays_marks(own | {"budget": {**own["budget"], **changed}})

    keep(adapted_at(0.003), tmp_path)
    words = "dapted at 0.5 of the training's learning rate (§6.1: 0.1)"
    assert f"reproduced, a{words} on books" in results(read_kept(tmp_path))
    assert f"A{words}." in sections_of((tmp_path / "demix-tiny.md").read_text(encoding="utf-8"))["Claims"]
    assert f"a{words}." in (tmp_path / "README.md").read_text(encoding="utf-8")
    keep(adapted_at(0.0006), tmp_path)
    assert words not in results(read_kept(tmp_path))


def turned() -> list[tuple[str, str, str, str]]:
    """Each claim that turned round: a kept report, the claim's place and sentence, and its mark with numbers."""
    section = sections_of((FOLDER / "README.md").read_text(encoding="utf-8"))["Claims that turned round"]
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if "|" in line]
    result, names = [], []
    for where, sentence, _, *marks in cells:
        if where == "where":
            names = [mark[1:].partition("]")[0] for mark in marks]
        elif not where.startswith("-"):
            result += [(name, where, sentence, mark) for name, mark in zip(names, marks, strict=True)]
    return result


def test_claims_that_turned_round_have_the_marks_and_numbers_of_the_kept_reports() -> None:
    kept = {str(one["name"]): one for one in read_kept(FOLDER)}
    assert len(turned()) > 20
    for name, where, sentence, mark in turned():
        (claim,) = (one for one in kept[name]["claims"] if (one["where"], one["sentence"]) == (where, sentence))
        numbers = f": {with_interval({**claim, 'unit': ''})}" if claim["value"] is not None else ""
        assert mark == f"{format_marks(claim)}{numbers}"


def test_a_note_on_a_kept_report_stands_in_its_summary(report: dict[str, Any], tmp_path: Path) -> None:
    keep(report | {"notes": ["Two marks were corrected."]}, tmp_path)
    page = sections_of((tmp_path / "demix-tiny.md").read_text(encoding="utf-8"))
    assert "\n\nTwo marks were corrected." in page["Summary"]


@pytest.fixture
def report() -> dict[str, Any]:
    from studies.tests.test_demix_report import findings

    kept = findings({}) | {"name": "demix-tiny", "corpus": "books", "date": "2026-01-31", "readings": []}
    return kept | {"claims": [stored(is_below, -2.0, -3.0, -1.0), stored(is_above, -2.0, -3.0, -1.0)]}


def test_a_kept_report_binds_the_sentence(report: dict[str, Any], tmp_path: Path) -> None:
    folder, page = tmp_path / "kept", tmp_path / "README.md"
    page.write_text("# Title\n", encoding="utf-8")
    keep(report, folder, readme=page)
    words = "[DEMix](kept/demix-tiny.md) on books (tiny, 2 seeds): of 2 claims 1 reproduced, 1 contradicted."
    text = page.read_text(encoding="utf-8")
    assert f"- {words} " in text
    assert " Models: " in text
    assert "Tried on: DEMix 1 corpus (books)." in text
    keep(report | {"claims": report["claims"][:1]}, folder, readme=page)
    assert "of 1 claims 1 reproduced." in page.read_text(encoding="utf-8")


def test_claims_with_the_numbers_of_another_are_not_counted_as_reproduced(
    report: dict[str, Any], tmp_path: Path
) -> None:
    (below, above), page = report["claims"], tmp_path / "README.md"
    page.write_text("# Title\n", encoding="utf-8")
    again = {**below, "where": "Figure 10"}
    claims = [below, again, above, {**above, "where": "Figure 11"}, stored(is_below, -3.0, -4.0, -2.0)]
    keep(report | {"claims": claims}, tmp_path / "kept", readme=page)
    assert "of 5 claims 2 reproduced, 1 implied, 2 contradicted." in page.read_text(encoding="utf-8")
    (kept,) = read_kept(tmp_path / "kept")
    assert kept["claims"][1]["why"].startswith("Its numbers are those of “Table 3: ")


def known_for(report: dict[str, Any], mark: str) -> dict[str, Any]:
    """A report whose claim on novel text has this mark."""
    below = stored(is_below, -2.0, -3.0, -1.0) if mark == "reproduced" else stored(is_below, 2.0, 1.0, 3.0)
    novel = {"where": "Table 5", "sentence": "DEMix (cached) has less perplexity than Dense on the novel domains"}
    return report | {"claims": [below | novel, *report["claims"]]}


def test_a_claim_that_holds_on_one_corpus_only_names_it(report: dict[str, Any], tmp_path: Path) -> None:
    keep(known_for(report, "reproduced"), tmp_path)
    keep(known_for(report, "contradicted") | {"name": "news", "corpus": "news"}, tmp_path)
    keep(known_for(report, "reproduced") | {"name": "web", "corpus": "web", "size": "small"}, tmp_path)
    keep(known_for(report, "reproduced") | {"name": "short", "corpus": "web", "size": "quick"}, tmp_path)
    sentence = "DEMix: DEMix (cached) has less perplexity than Dense on the novel domains"
    where = "reproduced on books (tiny, 2 seeds) and web (small, 2 seeds); contradicted on news (tiny, 2 seeds)"
    words = results(read_kept(tmp_path))
    assert f"- {sentence}: {where}." in words
    assert "too short to tell DEMix from Dense: [DEMix on web (quick, 2 seeds)](short.md)." in words
    paragraphs = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert paragraphs.count("**DEMix on ") == 4
    assert paragraphs.count("on the novel domains: **contradicted** (") == 1


def test_reports_of_several_papers_are_written_beside_each_other(report: dict[str, Any], tmp_path: Path) -> None:
    keep(report, tmp_path)
    keep(
        cbtm_findings() | {"name": "corpora-cbtm-small", "size": "small", "corpus": "corpora", "date": "2026-02-01"},
        tmp_path,
    )
    words = results_in_short(read_kept(tmp_path), "kept")
    assert "[C-BTM](kept/corpora-cbtm-small.md) on corpora (small, 2 seeds)" in words
    assert "Tried on: DEMix 1 corpus (books); C-BTM 1 corpus (corpora)." in words
    where = "C-BTM: 4 clusters have less perplexity than one, at equal tokens: reproduced on corpora (small"
    assert where in results(read_kept(tmp_path))


def test_reports_without_numbers_are_named_until_they_are_gone(report: dict[str, Any], tmp_path: Path) -> None:
    page, old = tmp_path / "kept" / "README.md", tmp_path / "kept" / "old.md"
    keep(report, tmp_path / "kept")
    old.write_text("# DEMix replicated: old (tiny, 2 seeds)\n", encoding="utf-8")
    for is_there in (True, False):
        write_again(tmp_path / "kept")
        assert ("kept without their numbers: [old](old.md)." in page.read_text(encoding="utf-8")) is is_there
        old.unlink(missing_ok=True)


def test_numbers_are_kept_without_what_each_step_and_block_has(report: dict[str, Any], tmp_path: Path) -> None:
    keep(report | {"forgetting": [{"method": "x"}]}, tmp_path)
    stored_findings = json.loads((tmp_path / "demix-tiny.json").read_text(encoding="utf-8"))
    assert stored_findings["claims"] == json.loads(json.dumps(report["claims"]))
    assert not {"curves", "forgetting", "pictures", "jobs"} & stored_findings.keys()
    assert (tmp_path / "demix-tiny.md").read_text(encoding="utf-8").startswith("# DEMix replicated: demix-tiny")


def test_the_index_has_a_row_for_each_paper_corpus_and_size(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Ours\n\nWords that stay.\n", encoding="utf-8")
    keep(report, tmp_path)
    keep(report | {"name": "news-demix-tiny", "corpus": "news"}, tmp_path)
    keep(report | {"name": "again", "date": "2026-02-01"}, tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| DEMix")]
    assert [(row.split(" | ")[1], "again.md" in row) for row in rows] == [("books", True), ("news", False)]
    assert "Words that stay." in text
    assert "Tried on: DEMix 2 corpora (books, news)." in results_in_short(read_kept(tmp_path), "kept")


def test_a_report_of_size_smoke_is_not_shown_to_readers(report: dict[str, Any], tmp_path: Path) -> None:
    keep(report | {"size": "smoke"}, tmp_path)
    assert results(read_kept(tmp_path)) == "No report is kept yet."


def test_other_json_files_are_left_aside_and_old_marks_are_read_in_todays_words(
    report: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_text("[1, 2]", encoding="utf-8")
    claims = [
        claim | {"mark": "not reproduced", "is_undecided": undecided}
        for claim in report["claims"][:1]
        for undecided in (True, False)
    ]
    keep(report | {"claims": claims}, tmp_path)
    (kept,) = read_kept(tmp_path)
    assert kept["marks"] == kept["marks"] | {"undecided": 1, "contradicted": 1, "reproduced": 0}


def test_decision_27_has_the_numbers_against_a_dense_model_that_the_kept_report_has() -> None:
    (kept,) = (one for one in read_kept(FOLDER) if one["name"] == "corpora-demix-quick")
    rows = {row["text"]: row for row in kept["calibrated"]["against"] if (row["mode"], row["against"]) == _FITTED}
    cells = [cell for text in ("novel domains", "training domains") for cell in _against_dense(rows[text])]
    page = (ROOT / "docs" / "decisions" / "0027-a-calibrated-posterior.md").read_text(encoding="utf-8")
    assert f"| calibrated | {' | '.join(cells)} |" in page


_FITTED = ("uniform", "Dense")


def _against_dense(row: dict[str, Any]) -> tuple[str, str]:
    numbers = [f"{row['change'][name]:+.1f}".replace("-", "−") for name in ("value", "low", "high")]
    return f"{row['calibrated']:.1f}", "{} % [{}, {}]".format(*numbers)
