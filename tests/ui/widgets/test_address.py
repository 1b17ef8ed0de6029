"""Which of the address and the session counts, where a run of a page was cut short."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ui.widgets import address


class Query(dict[str, list[str]]):
    """What Streamlit's `query_params` does here."""

    def get_all(self, key: str) -> list[str]:
        return self.get(key, [])


@pytest.fixture
def streamlit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    fake = SimpleNamespace(session_state={}, query_params=Query(), is_history=False)
    monkeypatch.setattr(address, "st", fake)
    monkeypatch.setattr(address, "_moved_in_history", lambda: fake.is_history)
    return fake


def open_with(streamlit: Any, query: dict[str, list[str]], *, is_history: bool = False) -> None:
    streamlit.query_params, streamlit.is_history = Query(query), is_history
    address.open_page("experts")


def test_what_back_and_forward_brought_counts_until_it_is_read(streamlit: Any) -> None:
    open_with(streamlit, {"search": ["code"]})
    assert address.fresh("search") == ["code"]
    address.note("search", [])  # chosen on the page
    open_with(streamlit, {"search": ["code"]}, is_history=True)  # cut short before it reads the address
    open_with(streamlit, {"search": ["code"]})
    assert address.fresh("search") == ["code"]
    open_with(streamlit, {"search": ["code"]})
    assert address.fresh("search") is None  # read once: a later choice counts more


def test_back_to_an_address_without_a_choice_takes_it_back_in_the_second_run_too(streamlit: Any) -> None:
    open_with(streamlit, {})
    assert address.fresh("search") is None
    address.note("search", ["code"])
    open_with(streamlit, {}, is_history=True)
    open_with(streamlit, {})
    assert address.fresh("search") == []


def test_a_click_that_overtakes_the_answer_to_the_click_before_counts_more_than_its_address(streamlit: Any) -> None:
    open_with(streamlit, {})
    assert address.fresh("search") is None
    address.note("search", ["code"])
    open_with(streamlit, {})  # the browser does not know the new address yet
    assert address.fresh("search") is None
