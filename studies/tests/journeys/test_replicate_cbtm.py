"""C-BTM from a folder of text to its report, at the size that only shows that everything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.conftest import carry_out
from workbench.registry import mixtures, reports
from workbench.registry.clusters import clusterings
from workbench.registry.database import reading
from workbench.store.storage import get_storage
from workbench_studies.core.verdicts import FLOOR
from workbench_studies.running.submission import new_spec, submit_replication, with_fields

TASKS = Path(__file__).parents[3] / "docs" / "how_to" / "tasks"
pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.slow
def test_a_folder_of_text_becomes_a_report_with_every_claim_marked(novel_and_training: Path) -> None:
    job_spec = with_fields(new_spec("cbtm", "rep", "smoke", 1, folder=novel_and_training), tasks=str(TASKS))
    cards = carry_out(submit_replication(job_spec))
    assert [(card.title, card.error) for card in cards if card.state != "done"] == []
    with reading() as session:
        (report,) = reports.list_reports(session, kind="replication")
        mixture = mixtures.get_mixture(session, "rep-s0-k2")
        clustering = clusterings.get_clustering(session, "rep-s0-k2")
    result = report.findings
    assert result["paper"] == "cbtm"
    tested = {
        claim["where"]
        for claim in result["claims"]
        if claim["mark"] != "not testable here" or claim["why"].startswith(FLOOR)  # so small a model guesses
    }
    assert tested >= {
        "Figure 5",
        "Figure 6",
        "Figure 7",
        "Figure 8",
        "Figure 9",
        "Figure 10",
        "Figure 11",
        "Figure 12",
        "Figure 13",
        "Figure 15",
        "Figure 16",
        "Figure 18",
    }
    assert tested >= {"Table 1", "Table 8", "Table 9", "Table 11", "§2.2", "§2.4", "§7.2"}
    assert all(claim["why"] for claim in result["claims"] if claim["mark"] != "reproduced")
    assert mixture.gate["clustering"] == clustering.id
    assert [member.domain for member in mixture.members] == ["rep-s0-k2/0", "rep-s0-k2/1"]
    by_clusters = result["tables"]["clusters"]
    assert all(row["ours"] > 1 for row in by_clusters)
    full = {row["clusters"]: row["ours"] for row in by_clusters if row["budget"] == "whole"}
    assert full == {
        row["clusters"]: row["ours"] for row in result["tables"]["active"] if row["clusters"] == row["models asked"]
    }
    assert [row["ours"] > 1 for row in result["tables"]["upcycled"]] == [True] * 6
    assert result["tables"]["rules"][3]["training domains"] > 1  # the average
    pages = get_storage().path(str(report.artifact_id))
    assert "2 clusters have less perplexity than one" in (pages / "report.md").read_text(encoding="utf-8")
    page = (pages / "report.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot(") == 11  # ten of the paper, and that of all claims
    assert 'src="http' not in page
    assert json.loads((pages / "findings.json").read_text(encoding="utf-8")) == result
