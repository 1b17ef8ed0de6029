"""The sentences on replications follow from the kept reports' numbers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.workbench.replications.test_cbtm_report import findings as cbtm_findings
from tests.workbench.replications.test_forest import stored
from workbench.papers.kept import RESULTS, between, keep, read_kept, results, write_again
from workbench.papers.markdown import markdown
from workbench.replications.report import mark_words, with_interval
from workbench.replications.verdicts import is_above, is_below

ROOT = Path(__file__).parents[1]
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


REMADE = ("Summary", "All claims in one picture", "Claims", "Claims that were not reproduced, and possible reasons")
OURS = "A third reading, ours: calibrated on dev text"
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
    for title in (*REMADE, *({OURS} & again.keys())):
        assert page[title] == again[title]


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
        assert mark == f"{mark_words(claim)}{numbers}"


def test_a_note_on_a_kept_report_stands_in_its_summary(report: dict[str, Any], tmp_path: Path) -> None:
    keep(report | {"notes": ["Two marks were corrected."]}, tmp_path)
    page = sections_of((tmp_path / "demix-tiny.md").read_text(encoding="utf-8"))
    assert "\n\nTwo marks were corrected." in page["Summary"]


@pytest.fixture
def report() -> dict[str, Any]:
    from tests.workbench.replications.test_demix_report import findings

    kept = findings({}) | {"name": "demix-tiny", "corpus": "books", "date": "2026-01-31"}
    return kept | {"claims": [stored(is_below, -2.0, -3.0, -1.0), stored(is_above, -2.0, -3.0, -1.0)]}


def test_a_kept_report_binds_the_sentence(report: dict[str, Any], tmp_path: Path) -> None:
    folder, page = tmp_path / "kept", tmp_path / "README.md"
    page.write_text("# Title\n", encoding="utf-8")
    keep(report, folder, readme=page)
    words = "[DEMix](kept/demix-tiny.md) on books (tiny, 2 seeds): of 2 claims 1 reproduced, 1 contradicted."
    text = page.read_text(encoding="utf-8")
    assert f"- {words} Models: " in text
    assert "Tried on: DEMix 1 corpus (books)." in text
    keep(report | {"claims": report["claims"][:1]}, folder, readme=page)
    assert "of 1 claims 1 reproduced." in page.read_text(encoding="utf-8")


def test_reproduced_claims_with_the_numbers_of_another_are_counted_as_such(
    report: dict[str, Any], tmp_path: Path
) -> None:
    (below, above), page = report["claims"], tmp_path / "README.md"
    page.write_text("# Title\n", encoding="utf-8")
    again = {**below, "where": "Figure 10"}
    claims = [below, again, above, {**above, "where": "Figure 11"}, stored(is_below, -3.0, -4.0, -2.0)]
    keep(report | {"claims": claims}, tmp_path / "kept", readme=page)
    words = "1 of those reproduced rests on the same numbers as another."
    assert f"3 reproduced, 2 contradicted. {words} Models: " in page.read_text(encoding="utf-8")
    assert words in (tmp_path / "kept" / "demix-tiny.md").read_text(encoding="utf-8")


def known_for(report: dict[str, Any], mark: str) -> dict[str, Any]:
    """A report whose claim on novel text has this mark."""
    below = stored(is_below, -2.0, -3.0, -1.0) if mark == "reproduced" else stored(is_below, 2.0, 1.0, 3.0)
    novel = {"where": "Table 5", "sentence": "DEMix (cached) has less perplexity than Dense on the novel domains"}
    return report | {"claims": [below | novel, *report["claims"]]}


def test_a_claim_that_holds_on_one_corpus_only_names_it(report: dict[str, Any], tmp_path: Path) -> None:
    keep(known_for(report, "reproduced"), tmp_path)
    keep(known_for(report, "contradicted") | {"name": "news", "corpus": "news"}, tmp_path)
    keep(known_for(report, "reproduced") | {"name": "web", "corpus": "web", "size": "quick"}, tmp_path)
    sentence = "DEMix: DEMix (cached) has less perplexity than Dense on the novel domains"
    where = "reproduced on books (tiny, 2 seeds) and web (quick, 2 seeds); contradicted on news (tiny, 2 seeds)"
    assert f"- {sentence}: {where}." in results(read_kept(tmp_path), "kept")
    paragraphs = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert paragraphs.count("**DEMix on ") == 3
    assert paragraphs.count("on the novel domains: **contradicted** (") == 1


def test_reports_of_several_papers_are_written_beside_each_other(report: dict[str, Any], tmp_path: Path) -> None:
    keep(report, tmp_path)
    keep(
        cbtm_findings() | {"name": "corpora-cbtm-quick", "size": "quick", "corpus": "corpora", "date": "2026-02-01"},
        tmp_path,
    )
    words = results(read_kept(tmp_path), "kept")
    assert "[C-BTM](kept/corpora-cbtm-quick.md) on corpora (quick, 2 seeds)" in words
    assert "C-BTM: 4 clusters have less perplexity than one, at equal tokens: reproduced on corpora (quick" in words
    assert "Tried on: DEMix 1 corpus (books); C-BTM 1 corpus (corpora)." in words


def test_reports_without_numbers_are_named_until_they_are_gone(report: dict[str, Any], tmp_path: Path) -> None:
    page, old = tmp_path / "README.md", tmp_path / "kept" / "old.md"
    page.write_text("# Title\n", encoding="utf-8")
    keep(report, tmp_path / "kept")
    old.write_text("# DEMix replicated: old (tiny, 2 seeds)\n", encoding="utf-8")
    for is_there in (True, False):
        write_again(tmp_path / "kept", page)
        assert ("kept without their numbers: [old](kept/old.md)." in page.read_text(encoding="utf-8")) is is_there
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
    assert "Tried on: DEMix 2 corpora (books, news)." in results(read_kept(tmp_path), "kept")


def test_a_report_of_size_smoke_is_not_shown_to_readers(report: dict[str, Any], tmp_path: Path) -> None:
    keep(report | {"size": "smoke"}, tmp_path)
    assert results(read_kept(tmp_path), "kept") == "No report is kept yet."


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
