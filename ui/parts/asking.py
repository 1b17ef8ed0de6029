"""A form for a wish: questions from its spec, the same wish as a command, and the button that asks for it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import streamlit as st

from jobs.submit import submit
from ui.parts.commands import command_for
from ui.parts.forms import Answers, ask_all, ask_preset, show_command
from ui.parts.job_view import show_job
from ui.parts.notices import explained
from ui.parts.questions import Offers, assemble, changed, questions_of
from workbench.specs import SPECS, parse_spec


def ask_for(
    kind: str,
    offers: Offers,
    label: str,
    *,
    skip: Iterable[str] = (),
    given: Answers | None = None,
    tucked: Collection[str] = (),
) -> None:
    """The whole form of a kind of job. `skip` are fields not asked for, `given` those answered elsewhere."""
    questions = questions_of(SPECS[kind], offers, skip=("kind", *skip))
    ask_preset(kind, questions)
    answers = ask_all(kind, questions, tucked) | (given or {})
    told = changed(questions, answers) | (given or {})
    show_command(command_for(kind, told), json.dumps(_spec_json(kind, answers), indent=2, ensure_ascii=False))
    if st.button(label, type="primary", icon=":material/send:", key=f"{kind}.submit"):
        _submit(kind, answers)
    show_last(kind)


def show_last(kind: str) -> None:
    """The job that this form asked for last, live."""
    if job_id := st.session_state.get(f"{kind}.job"):
        show_job(job_id, key=f"{kind}_job")


def _submit(kind: str, answers: Answers) -> None:
    with explained():
        spec = parse_spec(_spec_json(kind, answers))
        st.session_state[f"{kind}.job"] = submit(spec)


def _spec_json(kind: str, answers: Answers) -> dict[str, Any]:
    return {"kind": kind, **assemble(answers)}
