"""A form for a job: questions from its spec, the same job as a command, and the button that submits it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import streamlit as st

from jobs.queue.submit import submit
from ui.present.questions import Offers, assemble, changed, limited, questions_of
from ui.present.readable_folders import require_readable
from ui.widgets.fields import Answers, draw_preset, draw_questions, show_command
from ui.widgets.notices import explained
from workbench.errors import BadSpec
from workbench.kinds.catalog import kind_named
from workbench.spec_base import Spec
from workbench.specs import parse_spec


def show_job_form(
    kind: str,
    offers: Offers,
    label: str,
    *,
    command: Callable[[Answers], str] | None,
    skip: Iterable[str] = (),
    given: Answers | None = None,
    tucked: Collection[str] = (),
    complaints: Sequence[str] = (),
    beside: Answers | None = None,
    send: Callable[[Any], str] = submit,
    foretell: Callable[[Any], None] | None = None,
    limits: Mapping[tuple[str, ...], int] | None = None,
) -> None:
    """The form of a kind of job; `command` is its Screen's. The id of the submitted job is kept for `last_job`.

    `skip` are fields without a question, `given` those answered elsewhere. `complaints` say what is wrong with the
    answers given elsewhere; `beside` are options of the command that are not in the spec; `send` submits the spec, with
    jobs that belong to it, and returns the id of the job to show; `foretell` shows what a valid spec will take;
    `limits` are upper bounds of whole numbers.
    """
    questions = questions_of(kind_named(kind).spec, offers, skip=("kind", *skip))
    draw_preset(kind, questions)
    answers = draw_questions(kind, limited(questions, limits or {}), tucked) | (given or {})
    line = command(changed(questions, answers) | (given or {}) | (beside or {})) if command else ""
    show_command(line, json.dumps(_spec_json(kind, answers), indent=2, ensure_ascii=False))
    if foretell is not None:
        with suppress(BadSpec):
            foretell(parse_spec(_spec_json(kind, answers)))
    if st.button(label, type="primary", icon=":material/send:", key=f"{kind}.submit"):
        _submit(kind, answers, complaints, send)


def last_job(kind: str) -> str | None:
    """The id of the job that this form submitted last."""
    return st.session_state.get(f"{kind}.job")


def _submit(kind: str, answers: Answers, complaints: Sequence[str], send: Callable[[Any], str]) -> None:
    with explained():
        st.session_state[f"{kind}.job"] = send(_checked(kind, answers, complaints))


def _checked(kind: str, answers: Answers, complaints: Sequence[str]) -> Spec:
    """The spec of all answers. Raises BadSpec with all complaints at once."""
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
