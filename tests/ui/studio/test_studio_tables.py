"""A table says what its dashes stand for."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.studio.visits import named, open_page
from ui.widgets.data_table import NO_VALUE


def tables() -> None:
    from ui.widgets.data_table import show_table

    show_table([{"domain": "law", "perplexity": None}], "unscored", "Scores")
    show_table([{"domain": "law", "perplexity": 3.0}], "scored", "Scores")
    show_table([{"domain": "law", "cause": ""}], "no_cause", "Jobs")


def test_a_table_explains_its_dashes_and_only_one_that_has_some() -> None:
    app = AppTest.from_function(tables, default_timeout=120).run()
    assert not app.exception
    assert [one.value for one in app.caption] == [NO_VALUE]
    assert len(app.dataframe) == 3


@pytest.mark.usefixtures("filled_home")
def test_what_a_job_waits_for_is_not_cut_off_at_the_end_of_the_table() -> None:
    columns = list(open_page("jobs_page").dataframe[0].value.columns)
    assert columns[:3] == ["Job", "Status", "Waits for"]


@pytest.mark.usefixtures("filled_home")
def test_documents_are_counted_from_one() -> None:
    app = open_page("corpora")
    first = named(app.number_input, "First document")
    assert first.value == 1
    first.set_value(0).run()
    assert any("First document must be a whole number from 1 to " in error.value for error in app.error)
