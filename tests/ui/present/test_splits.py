"""The shares of a domain's splits are shown with the rule that gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui.studio.conftest import fill
from tests.ui.studio.visits import open_page, output
from ui.cli.app import main
from ui.present.splits import SPLIT_RULE, describe_splits, split_rows
from workbench.answers.cards import DomainCard
from workbench.registry.corpora import get_domain
from workbench.registry.database import reading
from workbench.settings import get_settings


@pytest.fixture
def domain(home: Path) -> DomainCard:
    assert home
    fill(get_settings())
    with reading() as session:
        return get_domain(session, "code")


def test_the_rule_names_the_shares_that_the_code_has() -> None:
    assert "90 % train, 5 % dev and 5 % test on average" in SPLIT_RULE


def test_each_split_has_its_share_of_documents_and_bytes(domain: DomainCard) -> None:
    rows = list(split_rows(domain))
    assert [row["split"] for row in rows] == ["train", "dev", "test"]
    assert sum(row["documents (%)"] for row in rows) == pytest.approx(100, abs=0.2)
    assert rows[0]["documents (%)"] == pytest.approx(100 * rows[0]["documents"] / 60, abs=0.05)
    assert describe_splits(domain).startswith(f"Of the documents: train {rows[0]['documents (%)']:.1f} %, dev ")


@pytest.mark.usefixtures("domain")
def test_page_and_command_explain_the_shares(capsys: pytest.CaptureFixture[str]) -> None:
    assert "A hash of each document decides its split" in output(open_page("corpora"))
    assert main(["corpus", "show", "code", "--documents", "0"]) == 0
    assert SPLIT_RULE in capsys.readouterr().out
