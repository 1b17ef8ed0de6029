"""A table says what its dashes stand for."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

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
