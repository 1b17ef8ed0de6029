"""A page of another package: in the navigation, with its address and its command, and with no file changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from jobs.queue.submit import run_now
from tests.ui.studio.visits import STUDIO
from ui.cli.app import CommandTable, main
from ui.pages.catalog import all_pages, pages_of
from workbench.kinds.data import ImportCorpus

FOLDER = Path(__file__).parent


@pytest.fixture
def law(home: Path, tmp_path: Path) -> None:
    """The domain `law`: 40 documents of four words."""
    assert home
    path = tmp_path / "law.jsonl"
    path.write_text("".join(json.dumps({"text": f"the court adjourned {i}"}) + "\n" for i in range(40)))
    for _ in run_now(ImportCorpus(name="law", path=str(path)))[1]:
        pass


@pytest.mark.usefixtures("installed", "law")
def test_it_is_opened_from_the_pages_of_its_entry() -> None:
    assert [page.address for page in pages_of("Data")] == ["corpora", "clusters", "word_counts"]
    studio = AppTest.from_file(STUDIO, default_timeout=120).run()
    page = studio.switch_page(str(FOLDER / "toy_page" / "word_counts.py")).run()
    assert not page.exception
    assert page.title[0].value == "Data"
    assert page.dataframe[0].value.to_dict("records") == [{"domain": "law", "words": 160}]
    strip = [one.proto for one in page.get("page_link") if one.proto.label == "Word counts"]
    assert [one.page for one in strip] == ["word_counts"]


@pytest.mark.usefixtures("installed", "law")
def test_its_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    [page] = [page for page in all_pages() if page.address == "word_counts"]
    assert main([page.command]) in (0, None)
    assert capsys.readouterr().out == "law: 160\n"


def test_without_its_package_neither_exists() -> None:
    assert "word_counts" not in {page.address for page in all_pages()}
    assert "word-counts" not in CommandTable()
