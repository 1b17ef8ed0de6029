"""The sentences on replications follow from the kept reports' numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workbench.replications.test_forest import stored
from workbench.papers.kept import INDEX, RESULTS, between, index, keep, read_kept, results
from workbench.replications.verdicts import is_above, is_below

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "replication"
KEPT_BY_HAND = "So about half of the claims reproduce at this size."  # of reports that were kept without their numbers


def follows(readme: str, folder: Path, name: str) -> bool:
    """Whether what a README says of replications is what the kept numbers say; without numbers, the words by hand."""
    if reports := read_kept(folder):
        return between(readme, RESULTS, results(reports, name)) == readme and KEPT_BY_HAND not in readme
    return KEPT_BY_HAND in readme


def test_the_readme_says_what_the_kept_reports_say() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert follows(readme, FOLDER, "docs/replication"), results(read_kept(FOLDER), "docs/replication")


def test_the_index_has_every_kept_report() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    reports = read_kept(FOLDER)
    assert between(text, INDEX, index(reports)) == text if reports else not list(FOLDER.glob("*.json"))


@pytest.fixture
def report() -> dict[str, Any]:
    from tests.workbench.replications.test_demix_report import findings

    kept = findings({}) | {"name": "demix-tiny", "corpus": "books", "date": "2026-01-31"}
    return kept | {"claims": [stored(is_below, -2.0, -3.0, -1.0), stored(is_above, -2.0, -3.0, -1.0)]}


def test_a_kept_report_binds_the_sentence(report: dict[str, Any], tmp_path: Path) -> None:
    assert follows(KEPT_BY_HAND, tmp_path, "kept")
    keep(report, tmp_path)
    assert not follows(KEPT_BY_HAND, tmp_path, "kept")
    readme = between("# Title\n", RESULTS, results(read_kept(tmp_path), "kept"))
    words = "[DEMix](kept/demix-tiny.md) on books (tiny, 2 seeds): of 2 claims 1 reproduced, 1 contradicted."
    assert f"- {words}\n\nTried on 1 corpus: books." in readme
    assert follows(readme, tmp_path, "kept")
    keep(report | {"claims": report["claims"][:1]}, tmp_path)
    assert not follows(readme, tmp_path, "kept")


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
    assert "Tried on 2 corpora: books, news." in results(read_kept(tmp_path), "kept")


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
