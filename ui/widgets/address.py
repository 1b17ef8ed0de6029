"""Choices that stand in the page's address: a reload, back, forward and a link find them again.

Streamlit's own `bind="query-params"` writes an entry without them into the browser's history whenever the page is
left, so that *back* would forget them. Here each choice is an entry, and *back* takes one choice back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.scriptrunner import get_script_run_ctx

from engine.text.split_names import HELD_OUT_SPLITS, HeldOutSplit
from ui.present.pages import TRAIN, Page
from ui.present.text.formatting import listed, plain
from ui.widgets.fields import DrawnNumber, draw_number

T = TypeVar("T")
_PAGE = "address.page"  # the page that was drawn last
_WRITTEN = "address.written"  # for each key, what stood in the address since the page was opened
_USUAL = "address.usual"  # for each key, what its widget holds where the address says nothing
_OPENED = "address.opened"  # what it held when the page was opened
_RESTORED = "address.restored"  # what the browser's history brought, of each key that no widget has read since
_FAULTS = "address.faults"  # for each key, what of the address could not be used, and what is shown instead


def open_page(name: str) -> None:
    """Called before a page is drawn: on another page than before, its address counts, whatever it holds."""
    if st.session_state.get(_PAGE) != name or _moved_in_history():
        st.session_state[_OPENED] = {key: st.query_params.get_all(key) for key in st.query_params}
    if st.session_state.get(_PAGE) != name:
        st.session_state[_PAGE], st.session_state[_WRITTEN], st.session_state[_FAULTS] = name, {}, {}
        st.session_state[_RESTORED] = {}
    if _moved_in_history():
        known = {*_history(), *st.query_params}
        st.session_state[_RESTORED] = {key: st.query_params.get_all(key) for key in known}


@contextmanager
def one_entry() -> Iterator[None]:
    """However many choices change within it, the browser's history gets one entry. Also a decorator.

    Streamlit sends the address at each change of a choice, and the browser makes an entry of each: a click that changes
    two would leave a pair in the history that nobody chose. Here only the last address is sent.
    """
    context = get_script_run_ctx()
    if context is None:
        yield
        return
    send, addresses = context.enqueue, list[ForwardMsg]()

    def hold(message: ForwardMsg) -> None:
        if message.WhichOneof("type") == "page_info_changed":
            addresses.append(message)
        else:
            send(message)

    context.enqueue = hold  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        context.enqueue = send  # type: ignore[method-assign]
        if addresses:
            send(addresses[-1])


def fragment(run_every: float | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`st.fragment` for a part of a page with choices: a run of it makes one entry, as that of a page does."""
    return lambda part: st.fragment(one_entry()(part), run_every=run_every)


def query_at_opening() -> Mapping[str, Sequence[str]]:
    """What the address held when the page was opened or found again in the browser's history, not what it holds now.

    For a page with a frame, whose changes stand in the page's address and must not load the frame again.
    """
    opened: Mapping[str, Sequence[str]] = st.session_state.get(_OPENED, {})
    return opened


def choose_one(
    widget: Callable[..., Any], label: str, options: Sequence[T], *, key: str, usual: T | None = None, **more: Any
) -> T:
    """A selectbox or segmented control. Its choice stands in the address unless it is the usual one.

    That is `usual`, else the widget's default, else the first option.
    """
    own = more.get("default", options[0])  # of the widget, when the session holds nothing
    usual = own if usual is None else usual
    _usual()[key] = usual
    recall(key, {str(option): option for option in options}, usual, label)
    if st.session_state.get(key, own if own == usual else None) not in options:
        st.session_state[key] = usual
    # Also as the widget's default: the session's value is sent once, and is lost where the page is drawn again before
    # the browser has drawn the field. The same below.
    if key in st.session_state:
        kind, held = getattr(widget, "__name__", ""), st.session_state[key]
        more |= {"selectbox": {"index": list(options).index(held)}, "segmented_control": {"default": held}}.get(
            kind, {}
        )
    choice: T = widget(label, options, key=key, **more)
    show_fault(key, choice, more.get("format_func", str)(choice))
    is_named = st.query_params.get_all(key) == [str(choice)]  # by a link, which may name the usual choice as well
    note(key, [str(choice)] if choice != usual or is_named else [])
    return choice


def choose_some(widget: Callable[..., Any], label: str, options: Sequence[T], *, key: str, **more: Any) -> list[T]:
    """Pills or a multiselect whose choices stand in the address."""
    _usual()[key] = []
    recall(key, {str(option): option for option in options}, [], label)
    if any(one not in options for one in st.session_state.get(key, ())):
        st.session_state[key] = [one for one in st.session_state[key] if one in options]
    chosen: list[T] = list(widget(label, options, key=key, default=st.session_state.get(key), **more))
    show_fault(key, chosen)
    note(key, [str(one) for one in chosen])
    return chosen


def write_text(widget: Callable[..., Any], label: str, *, key: str, **more: Any) -> str:
    """A text field whose text stands in the address."""
    _usual()[key] = ""
    if (values := fresh(key)) is not None:
        st.session_state[key] = values[-1] if values else ""
    text: str = widget(label, key=key, value=st.session_state.get(key, ""), **more)
    note(key, [text] if text else [])
    return text


def choose_number(label: str, *, key: str, usual: int, lowest: int, highest: int, **more: Any) -> DrawnNumber:
    """A field for a whole number. It stands in the address unless it is the usual one, or out of its range."""
    _usual()[key] = usual
    if (values := fresh(key)) is not None:
        text = values[-1] if values else str(usual)
        is_known = text.isascii() and text.isdecimal() and lowest <= float(text) <= highest
        st.session_state[key] = float(text) if is_known else float(usual)
        fault = f"{label} in the address: “{text}” is not a whole number from {lowest:,} to {highest:,}."
        note_fault(key, "" if is_known else fault, usual)
    default = st.session_state.get(key, usual)  # also as the widget's: see `choose_one`
    number = draw_number(label, key=key, default=default, lowest=lowest, highest=highest, **more)
    show_fault(key, number.value, str(number.value))
    if not number.fault:
        is_named = st.query_params.get_all(key) == [str(number.value)]
        note(key, [str(number.value)] if number.value != usual or is_named else [])
    return number


def open_tabs(labels: Sequence[str], *, key: str) -> Sequence[Any]:
    """Tabs; the open one stands in the address unless it is the first."""
    first = labels[0]
    _usual()[key] = first
    recall(key, {label: label for label in labels}, first, "Tab")
    if st.session_state.get(key, first) not in labels:
        st.session_state[key] = first
    show_fault(key, st.session_state.get(key, first), st.session_state.get(key, first))
    tabs = st.tabs(labels, key=key, on_change="rerun")
    chosen = next((label for label, tab in zip(labels, tabs, strict=True) if tab.open), first)
    note(key, [chosen] if chosen != first else [])
    return tabs


def recall(key: str, options: dict[str, Any], usual: Any, label: str) -> None:
    """Puts what the address newly holds of KEY into the session: one option, or a list where `usual` is one.

    What is not an option is said by `show_fault`; `label` is the widget's.
    """
    values = fresh(key)
    if values is None:
        return
    known = [options[value] for value in values if value in options]
    if isinstance(usual, list):
        st.session_state[key] = known
    else:
        st.session_state[key] = known[-1] if known else usual
    unknown = listed([f"“{value}”" for value in values if value not in options])
    note_fault(key, f"{label} in the address: there is no {unknown} here." if unknown else "", st.session_state[key])


def note_fault(key: str, words: str = "", shown: Any = None) -> None:
    """Notes what of KEY in the address could not be used, if anything; `shown` is what its widget holds instead."""
    faults = st.session_state.setdefault(_FAULTS, {})
    faults.pop(key, None)
    if words:
        faults[key] = words, shown


def show_fault(key: str, now: Any = None, instead: str = "") -> None:
    """Says what of KEY in the address could not be used, and what is shown `instead`, until something is chosen.

    `now` is what its widget holds; None: what the address holds by now.
    """
    now = st.query_params.get_all(key) if now is None else now
    words, shown = st.session_state.get(_FAULTS, {}).get(key, ("", None))
    if not words:
        return
    if shown != now:
        st.session_state[_FAULTS].pop(key)
        return
    st.warning(plain(f"{words} Shown instead: {instead}." if instead else words))


def fresh(key: str) -> list[str] | None:
    """The new values of KEY in the address; None where the session knows better.

    The address is new when a page is opened with it, by *back* and *forward*, and by a link. It is old when a click
    overtook the answer to the click before: then it holds what was written since the page was opened. What *back* and
    *forward* brought stays new until it is read: a part of the page that asks for another run may cut the first short.
    """
    values = st.query_params.get_all(key)
    is_restored = st.session_state.get(_RESTORED, {}).pop(key, None) == values
    written = _history().setdefault(key, [])
    is_first, is_known = not written, values in written
    if values not in written:
        written.append(values)
    if is_first:
        return values or None
    return None if is_known and not (is_restored or _moved_in_history()) else values


def note(key: str, values: list[str]) -> None:
    """Writes what was chosen into the address, or takes KEY out of it."""
    if st.query_params.get_all(key) == values:
        return
    written = _history().setdefault(key, [])
    if values not in written:
        written.append(values)
    if values:
        st.query_params[key] = values
    else:
        del st.query_params[key]


def reopen(query: Mapping[str, Sequence[str]]) -> None:
    """Opens the page that is shown with another address: a callback, called before its widgets are drawn."""
    for key in _history():
        if key in _usual():
            usual = _usual()[key]
            st.session_state[key] = list(usual) if isinstance(usual, list) else usual
    st.session_state[_WRITTEN], st.session_state[_FAULTS] = {}, {}
    st.query_params.from_dict(dict(query))


def _usual() -> dict[str, Any]:
    usual: dict[str, Any] = st.session_state.setdefault(_USUAL, {})
    return usual


def _history() -> dict[str, list[list[str]]]:
    written: dict[str, list[list[str]]] = st.session_state.setdefault(_WRITTEN, {})
    return written


def _moved_in_history() -> bool:
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def open_link(page: Page, label: str, state: Mapping[str, Any], key: str) -> None:
    """A link to a page with its choices. Fields of forms are in no address: these, and this page, take a button."""
    if page is TRAIN or st.session_state.get(_PAGE) == page.address:
        # A callback, because on the page itself its widgets cannot be set once they are drawn.
        if st.button(label, icon=page.icon, key=key, on_click=st.session_state.update, args=(state,)):
            go_to(page)
    else:
        st.page_link(page.script, label=label, icon=page.icon, query_params=state)


def go_to(page: Page, state: Mapping[str, str] = MappingProxyType({})) -> None:
    """Opens a page from a button, with its choices."""
    st.switch_page(page.script, query_params=dict(state))


def choose_split(
    container: DeltaGenerator, key: str, *, default: HeldOutSplit = "test", help: str | None = None
) -> HeldOutSplit:
    """The split that the user chose; the default comes first."""
    options = sorted(HELD_OUT_SPLITS, key=lambda split: split != default)
    return choose_one(
        container.segmented_control, "Held-out text", options, default=default, key=key, required=True, help=help
    )
