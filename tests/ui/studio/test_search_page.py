"""The search: one field for the registry, on its page, in a terminal and over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from tests.ui.studio.conftest import HOSTILE
from tests.ui.studio.visits import STUDIO, output
from ui.api.app import create_app
from ui.cli.app import main
from workbench.registry.database import transaction
from workbench.schema.tables import Mixture
from workbench.settings import Settings


def search_for(words: str) -> AppTest:
    """The page with what a search found."""
    app = AppTest.from_file(STUDIO, default_timeout=120).run()
    app.switch_page("app_pages/search.py").run()
    app.text_input(key="q").input(words).run()
    assert not app.exception
    return app


def links_of(app: AppTest) -> dict[str, tuple[str, str]]:
    """The page and the query of each link in the page's frames, by its label."""
    links = [one.proto for one in app.get("page_link")]
    return {link.label: (link.page, link.query_string) for link in links if link.query_string}


@pytest.mark.usefixtures("filled_home")
def test_a_hit_is_a_link_to_the_page_that_shows_it_and_its_name_is_no_markup() -> None:
    app = search_for("law")
    titles = [header.value for header in app.header]
    assert "Experts (2)" in titles
    links = links_of(app)
    [label] = [label for label in links if label.startswith("first/")]
    assert label.replace("\\", "").replace("\u2060", "") == f"first/{HOSTILE}"
    assert "<b>" not in label
    assert links[label][0] == "experts"
    assert links["laws again"] == ("experts", "experts.chosen=laws+again")
    assert "Nothing holds “nowhere”." in output(search_for("nowhere"))


@pytest.mark.usefixtures("filled_home")
def test_a_page_says_how_many_more_there_are() -> None:
    with transaction() as session:
        session.add_all(Mixture(name=f"many {number}", gate={}) for number in range(1234))
    assert "1,224 more. Add a word to see fewer." in output(search_for("many"))


@pytest.mark.usefixtures("filled_home")
def test_the_command_and_the_route_give_the_same(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert main(["search", "laws", "again", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    group = answer["groups"][0]
    assert (group["kind"], group["total"], group["hits"][0]["name"]) == ("expert", 1, "laws again")
    with TestClient(create_app(Settings(home=home), playground=False), base_url="http://127.0.0.1:8000") as api:
        assert api.get("/v1/workbench/search", params={"q": "laws again"}).json() == answer
        assert api.get("/v1/workbench/search", params={"q": ""}).status_code == 400
        assert api.get("/v1/workbench/search", params={"q": "x" * 201}).status_code == 400
    assert main(["search", "first"]) == 0
    assert "mixture" in capsys.readouterr().out
    assert main(["search", "nowhere"]) == 0
    assert "Nothing holds “nowhere”." in capsys.readouterr().out
