"""Requests to the API server in the background, so that a page is never blocked by them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from threading import Thread
from typing import Any

import streamlit as st

from ui.client import Client
from ui.errors import ServerDownError, ServerSlowError
from ui.present.text.formatting import duration, plain
from ui.widgets.notices import explain_problems
from workbench.access.actor import Actor, acting_as, current_actor
from workbench.analysis.perplexity_tables import newest_evaluation
from workbench.questions.question import AnswerType, Question
from workbench.registry.database import reading
from workbench.settings import Settings, get_settings

BACKGROUND_THREAD = "request of a page"  # the name of every thread of this module
_QUICK_SECONDS = 0.4  # seconds that a quick answer may take before the page goes on without it
_REFRESH_SECONDS = 0.5
_TRY_AGAIN_SECONDS = 10.0
_AGAIN = "{}.again"  # the key of the next attempt
_LOOK_AGAIN_SECONDS = 3.0  # while the API server does not answer
_HEIGHT = 272  # pixels, of a chart: what comes pushes nothing down


class BackgroundCall:
    """One running call. `request` tells whether the page still needs the same answer."""

    def __init__(self, request: Any, fetch: Callable[[], Any]) -> None:
        self.request = request
        self.fetch = fetch
        self.began = time.monotonic()
        self.answer: Any = None
        self.failure: Exception | None = None
        self._thread = Thread(target=self._run, name=BACKGROUND_THREAD, args=(current_actor(),), daemon=True)
        self._thread.start()

    def _run(self, actor: Actor) -> None:
        try:
            with acting_as(actor):
                self.answer = self.fetch()
        except Exception as failure:  # raised again in the page's thread
            self.failure = failure

    def is_done(self, wait_seconds: float = 0.0) -> bool:
        self._thread.join(wait_seconds)
        return not self._thread.is_alive()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def fetch_in_background(key: str, request: Any, fetch: Callable[[], Any], doing: str) -> Any | None:
    """The answer to `request`, fetched once; None while the call runs (the page redraws itself)
    and when it failed (the page shows the cause and a retry button)."""
    call = _call_for(key, request, fetch)
    if not call.is_done(_QUICK_SECONDS):
        _wait(key, doing)
        return None
    if call.failure is None:
        return call.answer
    _show_failure(key, call.failure)
    return None


def ask_scores(key: str, question: Question[AnswerType], doing: str, depends_on: object = None) -> AnswerType | None:
    """The same of a question to stored scores: it is fetched again once newer scores are stored.

    `depends_on` is what else may change the answer, such as the stored mixture.
    """
    with reading() as session:
        newest = newest_evaluation(session)
    return fetch_in_background(
        key, (question, depends_on, newest), lambda: kept_client(get_settings()).ask(question), doing
    )


@lru_cache(maxsize=4)
def kept_client(settings: Settings) -> Client:
    """The client of these settings, shared by all threads: a new connection takes longer than most answers."""
    return Client(settings)


def _call_for(key: str, request: Any, fetch: Callable[[], Any]) -> BackgroundCall:
    calls: dict[str, BackgroundCall] = st.session_state.setdefault("background_calls", {})
    if key not in calls or calls[key].request != request:
        calls[key] = BackgroundCall(request, fetch)
    return calls[key]


def poll(key: str, request: Any, fetch: Callable[[], Any]) -> BackgroundCall:
    """The call for `request`, for a live part of a page, which looks again anyway.

    What failed is tried again, and stands until the next attempt has ended.
    """
    call = _call_for(key, request, fetch)
    if call.is_done(_QUICK_SECONDS) and call.failure is not None and call.seconds > _TRY_AGAIN_SECONDS:
        again = _call_for(_AGAIN.format(key), request, fetch)
        if again.is_done(_QUICK_SECONDS):
            forget(key)
            st.session_state["background_calls"][key] = again
            return again
    return call


def forget(key: str) -> None:
    """Drops an answer, so that it is fetched again."""
    calls = st.session_state.get("background_calls", {})
    calls.pop(key, None)
    calls.pop(_AGAIN.format(key), None)


@st.fragment(run_every=_REFRESH_SECONDS)
def _wait(key: str, doing: str) -> None:
    call: BackgroundCall | None = st.session_state.get("background_calls", {}).get(key)
    if call is None or call.is_done():
        st.rerun()
        return
    with st.container(border=True):
        st.markdown(f":material/hourglass_top: {plain(doing)} … {duration(call.seconds)} so far")
    st.skeleton(height=_HEIGHT)


def _show_failure(key: str, failure: Exception) -> None:
    with explain_problems():
        raise failure
    if st.button("Retry", key=f"{key}_again", icon=":material/refresh:", on_click=forget, args=(key,)):
        st.rerun()
    if isinstance(failure, ServerDownError) and not isinstance(
        failure, ServerSlowError
    ):  # a slow answer is not asked for twice
        _look_again(key)


@st.fragment(run_every=_LOOK_AGAIN_SECONDS)
def _look_again(key: str) -> None:
    """Asks again as long as the API server does not answer; the page changes once it does."""
    calls: dict[str, BackgroundCall] = st.session_state.get("background_calls", {})
    if (call := calls.get(key)) is None or call.seconds < _LOOK_AGAIN_SECONDS:
        return
    again = BackgroundCall(call.request, call.fetch)
    if not (again.is_done(_QUICK_SECONDS) and isinstance(again.failure, ServerDownError)):
        calls[key] = again
        st.rerun()
