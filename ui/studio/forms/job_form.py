"""A form for a wish: questions from its spec, the same wish as a command, and the button that asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import streamlit as st

from jobs.queue.submit import submit
from ui.present.cli_command import command_for
from ui.present.questions import Offers, assemble, changed, limited, questions_of
from ui.present.readable_folders import require_readable
from ui.studio.forms.widgets import Answers, ask_all, ask_preset, show_command
from ui.studio.job_views.job_view import show_job
from ui.studio.shared.notices import explained
from workbench.errors import BadSpec
from workbench.specs import SPECS, Spec, parse_spec


def ask_for(
    kind: str,
    offers: Offers,
    label: str,
    *,
    skip: Iterable[str] = (),
    given: Answers | None = None,
    tucked: Collection[str] = (),
    complaints: Sequence[str] = (),
    beside: Answers | None = None,
    send: Callable[[Any], str] = submit,
    foretell: Callable[[Any], None] | None = None,
    limits: Mapping[tuple[str, ...], int] | None = None,
) -> None:
    """The whole form of a kind of job. `skip` are fields not asked for, `given` those answered elsewhere.

    `complaints` say what is wrong with the answers given elsewhere, `beside` holds what the command line has to say
    beyond the spec; `send` asks for the wish, and for what belongs to it, and gives the id of the job to show;
    `foretell` shows what a wish will take, once it is one; `limits` are the most that whole numbers may be here.
    """
    questions = questions_of(SPECS[kind], offers, skip=("kind", *skip))
    ask_preset(kind, questions)
    answers = ask_all(kind, limited(questions, limits or {}), tucked) | (given or {})
    told = changed(questions, answers) | (given or {})
    show_command(
        command_for(kind, told | (beside or {})), json.dumps(_spec_json(kind, answers), indent=2, ensure_ascii=False)
    )
    if foretell is not None:
        with suppress(BadSpec):
            foretell(parse_spec(_spec_json(kind, answers)))
    if st.button(label, type="primary", icon=":material/send:", key=f"{kind}.submit"):
        _submit(kind, answers, complaints, send)
    show_last(kind)


def show_last(kind: str) -> None:
    """The job that this form asked for last, live."""
    if job_id := st.session_state.get(f"{kind}.job"):
        show_job(job_id, key=f"{kind}_job")


def _submit(kind: str, answers: Answers, complaints: Sequence[str], send: Callable[[Any], str]) -> None:
    with explained():
        st.session_state[f"{kind}.job"] = send(_checked(kind, answers, complaints))


def _checked(kind: str, answers: Answers, complaints: Sequence[str]) -> Spec:
    """The spec of all answers; what is wrong with any of them is told at once."""
    try:
        spec: Spec = parse_spec(_spec_json(kind, answers))
    except BadSpec as bad:
        # `complaints` say better what a check of the spec as a unit says of answers given elsewhere.
        own = bad.field_complaints if complaints else bad.complaints
        raise BadSpec([*own, *complaints]) from None
    if complaints:
        raise BadSpec(complaints)
    require_readable(spec.local_paths())
    return spec


def _spec_json(kind: str, answers: Answers) -> dict[str, Any]:
    return {"kind": kind, **assemble(answers)}
