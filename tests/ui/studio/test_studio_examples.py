"""While a page is empty it shows an example, which nobody can take for a result; with the first result it is gone."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.studio.visits import STUDIO, named, open_page, output
from ui.present.next_steps import STEP_AFTER, suggestions
from ui.studio.app_pages.overview import holdings
from ui.widgets.notices import INVENTED

WITH_AN_EXAMPLE = (
    "corpora",
    "clusters",
    "experts",
    "mixtures",
    "specialization",
    "posteriors",
    "reports",
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
