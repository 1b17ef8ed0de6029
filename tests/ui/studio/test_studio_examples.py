"""While a page is empty it shows an example, which nobody can take for a result; with the first result it is gone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.studio.visits import STUDIO, named, open_page, output
from ui.present.examples import CLAIMS, KEPT
from ui.present.next_steps import STEP_AFTER, suggestions
from ui.studio.app_pages.overview import holdings
from ui.widgets.example import INVENTED
from workbench.papers.catalog import PAPERS
from workbench.replications.report import mark_words

_SIGNED = re.compile(r"[+−]\d[\d.]*")
_NUMBER = re.compile(r"[+-]\d[\d.]*")
REPORTS = Path(__file__).parents[3] / "docs" / "replication"
WITH_AN_EXAMPLE = (
    "corpora",
    "clusters",
    "experts",
    "mixtures",
    "specialization",
    "posteriors",
    "reports",
    "replications",
    "selfcheck",
)


def headings(app: AppTest) -> list[str]:
    return [one.value.replace("\\", "") for one in app.header]


@pytest.mark.parametrize("page", WITH_AN_EXAMPLE)
@pytest.mark.usefixtures("home")
def test_an_empty_page_shows_what_it_will_hold(page: str) -> None:
    app = open_page(page)
    (heading,) = headings(app)
    assert heading.startswith("Example: ")
    assert "-badge[Example: " in output(app)
    assert len(app.table) == 1
    assert not app.get("download_button")


@pytest.mark.parametrize("page", ["corpora", "experts", "mixtures", "specialization"])
@pytest.mark.usefixtures("filled_home")
def test_the_first_result_takes_the_example_away(page: str) -> None:
    app = open_page(page)
    assert not [one for one in headings(app) if one.startswith("Example")]
    assert INVENTED not in output(app)


@pytest.mark.usefixtures("home")
def test_the_claims_of_an_example_are_those_of_the_paper_chosen_and_stand_in_its_kept_report() -> None:
    assert set(CLAIMS) == set(PAPERS)
    app = open_page("replications")
    for paper, claims in CLAIMS.items():
        app.selectbox(key="replication.paper").set_value(paper).run()
        assert list(app.table[0].value["claim"]) == [claim["claim"] for claim in claims]
        kept = json.loads((REPORTS / f"{KEPT[paper]}.json").read_text(encoding="utf-8"))
        stored = {(one["where"], one["sentence"]): one for one in kept["claims"]}
        for claim in claims:
            one = stored[claim["where"], claim["claim"]]
            assert claim["mark"].partition(" ")[2] == mark_words(one)
            assert (claim["paper"], claim["ours"]) == (one["paper"], one["ours"])
            numbers = [float(number.replace("−", "-")) for number in _SIGNED.findall(claim["difference [95 %]"])]
            assert numbers == [round(one[name], 2) for name in ("value", "low", "high")]


@pytest.mark.parametrize("paper", CLAIMS)
def test_the_mark_of_an_example_follows_from_its_interval(paper: str) -> None:
    marks = [claim["mark"].split(" ")[1] for claim in CLAIMS[paper]]
    assert marks == ["reproduced", "contradicted", "undecided"]
    for claim in CLAIMS[paper]:
        low, high = (
            float(one.replace("−", "-")) for one in re.findall(r"[+−]\d[\d.]*", claim["difference [95 %]"])[1:]
        )
        assert (low <= 0 <= high) is claim["mark"].startswith("○ undecided")


@pytest.mark.usefixtures("home")
def test_no_text_leads_to_the_form_that_imports_it() -> None:
    app = open_page("corpora")
    named(app.button, "Import text").click().run()
    assert app.get("file_uploader")


@pytest.mark.parametrize("page", ["overview", "corpora", "experts", "jobs_page"])
@pytest.mark.usefixtures("filled_home")
def test_a_page_has_its_next_step_beside_its_title(page: str) -> None:
    app = AppTest.from_file(STUDIO, default_timeout=120).run()
    app.switch_page(f"app_pages/{page}.py").run()
    links = [(link.proto.label, link.proto.help) for link in app.get("page_link")]
    steps = [(one.label, one.sentence) for one in (*STEP_AFTER.values(), *suggestions(holdings()))]
    assert len([link for link in links if link in steps]) == 1
