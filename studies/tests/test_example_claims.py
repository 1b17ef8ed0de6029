"""While there is no replication, its page shows claims of a kept report, which nobody can take for a result."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.ui.studio.visits import open_page, output
from workbench_studies.core.report import format_marks
from workbench_studies.front import screens
from workbench_studies.front.screens import PAGE
from workbench_studies.papers.catalog import PAPERS

_SIGNED = re.compile(r"[+−]\d[\d.]*")
EXAMPLES = tomllib.loads(Path(screens.__file__).with_name("example_claims.toml").read_text(encoding="utf-8"))
CLAIMS = {paper: example["claims"] for paper, example in EXAMPLES.items()}
REPORTS = Path(__file__).parents[2] / "docs" / "replication"


@pytest.mark.usefixtures("home")
def test_the_page_without_a_replication_shows_an_example() -> None:
    page = open_page(PAGE.script)
    (heading,) = page.header
    assert heading.value.replace("\\", "").startswith("Example: ")
    assert "-badge[Example: " in output(page)
    assert not page.get("download_button")


@pytest.mark.usefixtures("home")
def test_the_claims_of_an_example_are_those_of_the_paper_chosen_and_stand_in_its_kept_report() -> None:
    assert set(CLAIMS) == set(PAPERS)
    app = open_page(PAGE.script)
    for paper, claims in CLAIMS.items():
        app.selectbox(key="replication.paper").set_value(paper).run()
        assert list(app.table[0].value["claim"]) == [claim["claim"] for claim in claims]
        kept = json.loads((REPORTS / f"{EXAMPLES[paper]['report']}.json").read_text(encoding="utf-8"))
        stored = {(one["where"], one["sentence"]): one for one in kept["claims"]}
        for claim in claims:
            one = stored[claim["where"], claim["claim"]]
            assert claim["mark"].partition(" ")[2] == format_marks(one)
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
