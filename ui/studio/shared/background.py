"""Questions to the API server asked in the background, so that a page never stands still for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import streamlit as st

from ui.present.text.formatting import duration, plain
from ui.studio.shared.notices import explained

_AT_ONCE = 0.4  # seconds that a quick answer may take before the page goes on without it
_LOOK_AGAIN = 0.5


class BackgroundCall:
    """One question under way. `wish` tells whether the page still asks the same."""

    def __init__(self, wish: Any, ask: Callable[[], Any]) -> None:
        self.wish = wish
        self.began = time.monotonic()
        self.answer: Any = None
        self.failure: Exception | None = None
        self._thread = Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], Any]) -> None:
        try:
            self.answer = ask()
        except Exception as failure:  # carried over to the page's thread and raised there
            self.failure = failure

    def is_done(self, wait_seconds: float = 0.0) -> bool:
        self._thread.join(wait_seconds)
        return not self._thread.is_alive()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def fetch_in_background(key: str, wish: Any, ask: Callable[[], Any], doing: str) -> Any | None:
    """The answer to `wish`, asked for once; None while it is on its way (the page says so and redraws itself)
    and when it failed (the page says why and offers to try again)."""
    errand = _errand(key, wish, ask)
    if not errand.is_done(_AT_ONCE):
        _wait(key, doing)
        return None
    if errand.failure is None:
        return errand.answer
    _tell_failure(key, errand.failure)
    return None


def _errand(key: str, wish: Any, ask: Callable[[], Any]) -> BackgroundCall:
    errands: dict[str, BackgroundCall] = st.session_state.setdefault("errands", {})
    if key not in errands or errands[key].wish != wish:
        errands[key] = BackgroundCall(wish, ask)
    return errands[key]


def forget(key: str) -> None:
    """Drops an answer, so that it is asked for anew."""
    st.session_state.get("errands", {}).pop(key, None)


@st.fragment(run_every=_LOOK_AGAIN)
def _wait(key: str, doing: str) -> None:
    errand: BackgroundCall | None = st.session_state.get("errands", {}).get(key)
    if errand is None or errand.is_done():
        st.rerun()
        return
    with st.container(border=True):
        st.markdown(f":material/hourglass_top: {plain(doing)} … {duration(errand.seconds)} so far")


def _tell_failure(key: str, failure: Exception) -> None:
    with explained():
        raise failure
    if st.button("Try again", key=f"{key}_again", icon=":material/refresh:", on_click=forget, args=(key,)):
        st.rerun()
