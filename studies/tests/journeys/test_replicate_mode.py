"""MoDE from a folder of text to its report, at the size that only shows that everything runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.journeys.conftest import carry_out
from workbench.registry import experts, reports
from workbench.registry.database import reading
from workbench.store.storage import get_storage
from workbench_studies.core.verdicts import FLOOR
from workbench_studies.running.submission import new_spec, submit_replication

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.slow
def test_a_folder_of_text_becomes_a_report_with_every_claim_marked(novel_and_training: Path) -> None:
    shutil.copy(novel_and_training / "novel" / "sea.jsonl", novel_and_training / "train" / "ships.jsonl")
    job_spec = new_spec("mode", "rep", "smoke", 1, folder=novel_and_training)
    cards = carry_out(submit_replication(job_spec))
    assert [(card.title, card.error) for card in cards if card.state != "done"] == []
    with reading() as session:
        (report,) = reports.list_reports(session, kind="replication")
        composed = experts.get_expert(session, "rep-s0-composed/composed")
        single = experts.get_expert(session, "rep-s0-mode1-2x1-first/kitchen")
    result = report.findings
    assert (result["paper"], result["targets"], result["retention"]) == ("mode", ["kitchen", "ships"], "court")
    assert composed.base_id == single.base_id
    sentences = {f"“{one['quote']}”" for one in result["sentences"] if one["why"]}
    no_result = [claim for claim in result["claims"] if claim["mark"] == "not testable here"]
    untested = {claim["sentence"] for claim in no_result if not claim["why"].startswith(FLOOR)}
    assert untested == sentences
    untested_at = {claim["where"] for claim in result["claims"] if claim["sentence"] in untested}
    assert untested_at >= {"Figure 4a", "Figure 4b", "Figure 4c"}
    assert not untested_at & {"Table 1", "Table 2", "Table 3"}  # every row has an arm, embeddings, too
    assert all(claim["why"] for claim in result["claims"] if claim["mark"] != "reproduced")
    rows = {row["model"]: row for row in result["tables"]["1"]}
    backbone, two = rows["the backbone"], rows["MoDE with 2 trained experts"]
    assert two["parameters"] - backbone["parameters"] == 2 * single.num_parameters == composed.num_parameters
    assert rows["full fine-tuning"]["parameters"] == backbone["parameters"]
    assert all(0 <= row["average"] <= 100 and row["perplexity"] > 1 for row in rows.values())
    assert all(row["ours"] is not None for row in result["tables"]["2"] for row in [row | {"ours": row["on ships"]}])
    assert result["budget"]["shared_backbone"]
    pages = get_storage().path(str(report.artifact_id))
    text = (pages / "report.md").read_text(encoding="utf-8")
    assert "MoDE with 2 trained experts is above full fine-tuning" in text
    assert "not over backbones" in text
    page = (pages / "report.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot(") == 5  # four of the paper, and that of all claims
    assert 'src="http' not in page
    assert json.loads((pages / "findings.json").read_text(encoding="utf-8")) == result
