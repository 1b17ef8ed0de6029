"""The overlap of domains: measured as a job, kept as a report, set beside the experts' ratios."""

from __future__ import annotations

from typing import Any

import pytest

from tests.journeys.conftest import Do
from ui.cli.app import main
from workbench.questions.affinity import AffinityRequest
from workbench.registry import reports
from workbench.registry.corpora import domain_row
from workbench.registry.database import reading, transaction
from workbench.store.storage import get_storage


def test_every_two_domains_are_compared_and_the_matrix_is_kept(trained: Do) -> None:
    card = trained({"kind": "measure-overlap"})
    assert card.state == "done", card.error
    with reading() as session:
        (report,) = reports.list_reports(session, kind="overlap")
        hashes = [domain_row(session, name).data_sha256 for name in ("court", "kitchen", "sea")]
    assert (card.result["report"], report.job_id) == (report.id, card.id)
    assert report.findings["domains"] == ["court", "kitchen", "sea"]
    assert report.findings["data_sha256"] == hashes
    matrix = report.findings["overlap"]
    assert [matrix[i][i] for i in range(3)] == [1, 1, 1]
    assert matrix[0][1] == matrix[1][0] < 0.2
    assert min(report.findings["num_bigrams"]) > 100


def test_a_single_domain_is_refused_before_anything_is_read(do: Do, corpora: dict[str, Any]) -> None:
    do({"kind": "import-corpus", "name": "sea", "path": str(corpora["sea"])})
    card = do({"kind": "measure-overlap"})
    assert (card.state, card.error) == ("failed", "Overlap needs at least two domains; there are 1.")


def test_the_ratios_stand_beside_the_overlap_until_the_text_changes(trained: Do) -> None:
    trained({"kind": "evaluate", "mixture": "small", "block_size": 64, "max_tokens": 500})
    trained({"kind": "measure-overlap", "domains": ["court", "kitchen"]})
    with reading() as session:
        outcome = AffinityRequest(mixture="small").answer(session, get_storage())
    away = [cell for cell in outcome.cells if cell.home != cell.domain]
    assert [(cell.expert, cell.domain) for cell in away] == [
        ("small/court", "kitchen"),
        ("small/kitchen", "court"),
    ]
    assert all(cell.ratio > 1 and cell.overlap < 0.2 for cell in away)
    assert outcome.without_homes is None  # two points always lie on a line
    assert outcome.with_homes.num_cells == 4
    with transaction() as session:
        domain_row(session, "kitchen").data_sha256 = "f" * 64
    with reading() as session:
        outcome = AffinityRequest(mixture="small").answer(session, get_storage())
    assert outcome.changed == ["kitchen"]
    assert [cell.overlap for cell in outcome.cells] == [1, None, None, None]


def test_the_command_line_shows_both(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    trained({"kind": "evaluate", "mixture": "small", "block_size": 64, "max_tokens": 500})
    assert main(["evaluate", "affinity", "small"]) == 0
    assert "workbench evaluate overlap" in capsys.readouterr().out
    assert main(["evaluate", "overlap", "--here"]) == 0
    assert main(["evaluate", "affinity", "small"]) == 0
    assert "A correlation needs at least 3 different cells; there are 2" in capsys.readouterr().out
