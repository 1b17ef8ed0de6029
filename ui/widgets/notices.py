"""Messages (cause and next step, never a traceback), and buttons that change the registry and say so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import streamlit as st

from engine.errors import Problem
from ui.addresses import help_path_for
from ui.present.next_step_text import next_step_text
from ui.present.text.formatting import plain, plain_with_code
from workbench.access.actor import Role, may
from workbench.errors import BadSpecError
from workbench.registry.database import transaction

log = logging.getLogger("workbench.studio")


@contextmanager
def explain_problems() -> Iterator[None]:
    """Turns a Problem of the block into its sentence and its next step. Also a decorator."""
    try:
        yield
    except Problem as problem:
        show_failure(problem)


@contextmanager
def nothing_hidden() -> Iterator[None]:
    """The studio's outermost error handler: unexpected errors are shown too, with their traceback in the log only."""
    try:
        with explain_problems():
            yield
    except Exception as mistake:
        log.exception("A page failed")
        st.error(
            f"This page raised an unexpected error: {plain(type(mistake).__name__)}: "
            f"{plain(mistake)}\n\n**Next step:** Reload the page, or see the studio's log. "
            f"[Help]({help_path_for('')})",
            icon=":material/bug_report:",
        )


def show_failure(problem: Problem) -> None:
    """Shows a Problem in a box: every complaint on its own line, then what to do next."""
    complaints = problem.complaints if isinstance(problem, BadSpecError) else [problem.cause or type(problem).__name__]
    body = (
        "\n".join(f"- {plain_with_code(complaint)}" for complaint in complaints)
        if len(complaints) > 1
        else plain_with_code(complaints[0])
    )
    show_problem(body, problem.next_step)


def show_problem(body: str, next_step: str) -> None:
    """A box with a cause (as Markdown) and the next step (as text)."""
    advice = f"**Next step:** {plain_with_code(next_step_text(next_step))} " if next_step else ""
    st.error(f"{body}\n\n{advice}[Help]({help_path_for(next_step)})", icon=":material/error:")


def empty(
    why: str,
    next_step: str,
    page: str = "",
    label: str = "",
    chosen: Mapping[str, Any] | None = None,
    *,
    section: str = "",
) -> None:
    """An empty state: why there is nothing here, what to do next, and a link to that page.

    `chosen` is what stands in the widgets of that page when it opens; `section` tells empty states of one page apart
    that may say the same.
    """
    with st.container(border=True):
        st.markdown(f"**{plain_with_code(why)}**  \n{plain_with_code(next_step)}")
        icon = ":material/arrow_forward:"
        if page and chosen is None:
            with st.container(width="content", key=f"next_step.{section}.{why}"):
                st.page_link(page, label=label, icon=icon)
        elif page and st.button(
            label,
            icon=icon,
            key=f"way.{section}.{label}.{why}",
            type="primary",
            on_click=st.session_state.update,
            args=(chosen,),
        ):
            st.switch_page(page, query_params={})


def keep(message: str) -> None:
    """A message that survives the rerun it causes; shown by the next `show_kept`."""
    st.session_state["kept_message"] = message


def announce(message: str) -> None:
    """Shows and reads aloud what ended while the page was open, in the rerun that it causes.

    A box, not `st.toast`: a box is a status to screen readers, Streamlit's toast a dialog without a name.
    """
    st.session_state["announced"] = message


def show_kept() -> None:
    """The messages that were kept before the rerun, once; studio.css lays them over the lower edge of the window."""
    with st.container(key="notices"):  # also without one: a container more moves a map, which forgets its drawing
        if ended := st.session_state.pop("announced", ""):
            st.info(plain(ended), icon=":material/notifications:")
        if message := st.session_state.pop("kept_message", ""):
            st.success(plain(message), icon=":material/check:")


@contextmanager
def example(title: str, about: str, badge: str) -> Iterator[None]:
    """A dashed frame (studio.css) with a badge. Nothing inside may be downloaded or clicked: it is nobody's result."""
    with st.container(border=True, key="example"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.header(plain(f"Example: {title}"), anchor=False, width="content")
            st.space("stretch")
            st.badge(badge, color="orange")
        st.caption(plain(about))
        yield


Changed = TypeVar("Changed")


def cannot_change() -> bool:
    """Whether every change of this user would be refused, as it is for a viewer."""
    return not may(Role.EDITOR)


def apply(
    change: Callable[[Any], Changed],
    message: str | Callable[[Changed], str],
    then: Callable[[], object] = lambda: None,
) -> None:
    """Changes the registry and draws the page again with the message; a Problem is shown instead.

    `change` takes the session of a transaction, and `then` is called once that is committed.
    """
    with explain_problems():
        with transaction() as session:
            changed = change(session)
        then()
        keep(message if isinstance(message, str) else message(changed))
        st.rerun()


def offer_deletion(what: str, key: str, delete: Callable[[Any], object], message: str, label: str = "Delete …") -> None:
    """A popover that says what is deleted (Markdown), and deletes it on a second click."""
    with st.popover(label, icon=":material/delete:"):
        st.markdown(what)
        if st.button("Delete for good", key=key, type="primary", disabled=cannot_change()):
            apply(delete, message)
