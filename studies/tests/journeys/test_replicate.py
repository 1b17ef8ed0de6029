"""A replication from a folder of text to its report, at the size that only shows that everything runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import carry_out
from workbench.registry import experts, mixtures, reports
from workbench.registry.database import reading
from workbench.store.storage import get_storage
from workbench_studies.core.report import compare
from workbench_studies.papers.kept import keep, read_kept
from workbench_studies.papers.report_pages import anchor
from workbench_studies.running.submission import new_spec, submit_replication

pytestmark = pytest.mark.usefixtures("home")


def test_a_folder_of_text_becomes_a_report_with_every_claim_marked(novel_and_training: Path, tmp_path: Path) -> None:
    cards = carry_out(submit_replication(new_spec("demix", "rep", "smoke", 1, folder=novel_and_training)))
    assert [card.error for card in cards if card.state != "done"] == []
    with reading() as session:
        (report,) = reports.list_reports(session, kind="replication")
    result = report.findings
    assert {job["state"] for job in result["jobs"] if job["kind"] != "replicate-demix"} == {"done"}
    assert all(row["test documents"] >= 1 and row["dev documents"] >= 1 for row in result["texts"])
    tested = [claim for claim in result["claims"] if claim["mark"] != "not testable here"]
    assert {claim["where"] for claim in tested} >= {"Table 3", "Table 5", "Table 6", "Table 7", "Figure 2", "Figure 4"}
    assert all(claim["low"] <= claim["value"] <= claim["high"] for claim in tested)
    assert all(claim["why"] for claim in result["claims"] if claim["mark"] != "reproduced")
    assert {row["system"] for row in result["curves"]} == {"demix", "dense", "dense-balanced", "domain-token"}
    assert {row["text"] for row in result["forgetting"]} == {"target", "training domains"}
    with reading() as session:
        members = [member.domain for member in mixtures.get_mixture(session, "rep-s0").members]
        added = experts.get_expert(session, "rep-s0-sea")
    assert members == ["court", "kitchen"]  # DEMix-DAPT copies one of these: none that was added may be among them
    assert added.parent in ("rep-s0/court", "rep-s0/kitchen")
    pages = get_storage().path(str(report.artifact_id))
    assert "DEMix (naive) has less perplexity than Dense" in (pages / "report.md").read_text(encoding="utf-8")
    page = (pages / "report.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot(") >= 5
    assert 'src="http' not in page
    assert json.loads((pages / "findings.json").read_text(encoding="utf-8")) == result
    assert {row["domain"] for row in result["tables"]["1"] if row["train"]} >= {*result["domains"], *result["novel"]}
    models = result["tables"]["2"]
    assert len(models) == 4
    assert all(row["tokens/s"] > 0 and row["GFLOPs an update"] > 0 and row["parameters"] > 0 for row in models)
    assert all(int(row["devices"]) >= 1 and row["GFLOP/s a device"] > 0 for row in models)
    ours = result["calibrated"]
    assert [row["dev domains"] for row in ours["fits"]] == [len(result["domains"])] * result["seeds"]
    assert {(row["text"], row["mode"]) for row in ours["against"]} >= {
        (text, mode) for text in ("training domains", "novel domains") for mode in ("uniform", "updating", "cached")
    }
    _is_as_researchers_want_it(result, pages, tmp_path)


def _is_as_researchers_want_it(result: dict[str, Any], pages: Path, folder: Path) -> None:
    """The picture of all claims comes first, text and command are named, claims lead to tables."""
    text = (pages / "report.md").read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings[:4] == ["## Summary", "## All claims in one picture", "## Contents", "## Claims"]
    anchors = {anchor(heading.removeprefix("## ")) for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors
    linked = [line for line in text.splitlines() if re.match(r"\| \d+ \| \[", line)]
    assert len(linked) > len(result["claims"]) / 2
    assert all(claim["side"] for claim in result["claims"] if claim["value"] is not None)
    assert {sample["domain"] for sample in result["samples"]} == {*result["domains"], *result["novel"]}
    assert all(len(sample["lines"]) == 3 and sample["bytes"] > 0 for sample in result["samples"])
    assert {row["domain"] for row in result["tables"]["5 by domain"]} == set(result["novel"])
    assert result["command"] in text
    keep(result, folder / "kept")
    (kept,) = read_kept(folder / "kept")
    assert (kept["claims"], kept["corpus"]) == (result["claims"], result["corpus"])
    assert (folder / "kept" / "rep.json").stat().st_size < 200_000
    assert compare(kept, result)["flipped"] == []
