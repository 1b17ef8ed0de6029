"""Widgets for the questions of a spec; their values live in the session, so that presets can set them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.present.forms.questions import QuestionForm, fault_of, number_fault
from ui.present.text.formatting import plain
from ui.widgets.on_demand import content_of


class DrawnNumber(NamedTuple):
    """What was written, in its range or not, and what is wrong with it, if anything; a whole number is an int."""

    value: Any
    fault: str


def draw_number(
    label: str,
    *,
    key: str,
    default: float | None,
    lowest: float | None = None,
    highest: float | None = None,
    is_integer: bool = True,
    step: float = 1,
    help: str | None = None,
    container: DeltaGenerator | None = None,
    instead: float | None = None,
) -> DrawnNumber:
    """The field, with its fault beneath it. `instead` is what is used while there is one, where anything is."""
    value = None if default is None else float(default)
    with (container or st).container(gap="xsmall", key=f"number.{key}"):
        # Whole ones are floats for Streamlit: of an int it cuts off a fraction, and keeps the last one of 2**53.
        written = st.number_input(plain(label), value=value, step=float(step), format="%g", key=key, help=help)
        _mark_ends(written, step, lowest, highest)
        fault = number_fault(label, written, lowest, highest, is_integer)
        if fault:
            used = "" if instead is None else f" Used until then: {instead:g}."
            st.error(plain(fault + used), icon=":material/error:")
    if is_integer and written is not None and written == int(written):
        return DrawnNumber(int(written), fault)
    return DrawnNumber(written, fault)


def _mark_ends(value: float | None, step: float, lowest: float | None, highest: float | None) -> None:
    """Marks an end of the range that one more step would leave: the style sheet takes that button away."""
    is_lowest = value is not None and lowest is not None and value - step < lowest
    is_highest = value is not None and highest is not None and value + step > highest
    ends = ["at-lowest"] * is_lowest + ["at-highest"] * is_highest
    if ends:
        st.html(f'<i class="unseen {" ".join(ends)}"></i>')


Answers = dict[tuple[str, ...], Any]

# Only sizes a person would choose between; everything else keeps the paper's default.
PRESETS: dict[str, dict[str, Any]] = {
    "Standard": {},
    "Quick look (60 steps)": {
        "num_steps": 60,
        "block_size": 128,
        "checkpoint_every": 30,
        "evaluate_every": 20,
    },
    "Thorough (2000 steps)": {
        "num_steps": 2000,
        "block_size": 512,
        "checkpoint_every": 200,
        "evaluate_every": 200,
    },
}
_DETAILS = "details"
_DOUBLED = (1, 2, 4, 8, 16, 32)  # numbers of experts in C-BTM's tables
_DETAILS_TITLE = "More"
_FIRST = ("num_steps", "learning_rate", "block_size")  # of a group: what most trainings change


def draw_questions(form: str, questions: Iterable[QuestionForm], tucked: Collection[str] = ()) -> Answers:
    """Draws the spec's own questions and the first of its groups, then the rest in expanders; the answers by path.

    `tucked` are own fields that seldom need an answer: they go into an expander too.
    """
    groups: dict[str, list[QuestionForm]] = {}
    first: list[QuestionForm] = []
    for question in questions:
        is_first = question.group and question.path[-1] in _FIRST
        group = _DETAILS if question.path[0] in tucked else question.group
        (first if is_first else groups.setdefault(group, [])).append(question)
    answers = {question.path: draw_widget(form, question) for question in groups.pop("", [])}
    answers |= _draw_group(form, first)
    for group, inside in sorted(groups.items(), key=lambda pair: pair[0] == _DETAILS):
        title = _DETAILS_TITLE if group == _DETAILS else inside[0].group_title or group
        with st.expander(title, icon=":material/tune:"):
            answers |= _draw_group(form, inside)
    return answers


def _draw_group(form: str, questions: Sequence[QuestionForm]) -> Answers:
    columns = st.columns(3) if questions else ()
    answers: Answers = {}
    for number, question in enumerate(questions):
        with columns[number % 3]:
            answers[question.path] = draw_widget(form, question)
    return answers


def draw_widget(form: str, question: QuestionForm) -> Any:
    """One widget; its value as the spec wants it.

    The widget has its default of its own. Written only into the session it would be sent to the browser once, with a
    drawing that the next click may overtake; the browser then showed, and sent back, the least number there can be.
    """
    return _WIDGETS[question.answer_type](key_of(form, question), question)


def draw_valid(form: str, question: QuestionForm) -> Any:
    """One widget of a form whose values are used at once; while a number is at fault, the question's own default is.

    What the session holds is drawn, as it is of a form whose values stand in the address.
    """
    shown = with_held_value(form, question)
    if question.answer_type not in ("integer", "number"):
        return draw_widget(form, shown)
    value = _number(key_of(form, question), shown, question.default)
    if fault := fault_of(question, value):
        faults_of(form)[question.path] = fault
    return question.default if fault else value


def faults_of(form: str) -> dict[tuple[str, ...], str]:
    """What `draw_valid` found wrong with the numbers of a form; whoever draws the form again clears it before."""
    faults: dict[tuple[str, ...], str] = st.session_state.setdefault(f"{form}.faults", {})
    return faults


def key_of(form: str, question: QuestionForm) -> str:
    return ".".join((form, *question.path))


def with_held_value(form: str, question: QuestionForm) -> QuestionForm:
    """The question with what the session holds as its default: of a form whose values stand in the address."""
    key = key_of(form, question)
    return replace(question, default=st.session_state[key]) if key in st.session_state else question


def _text(key: str, q: QuestionForm) -> str | None:
    return st.text_input(q.label, q.default or "", key=key, help=q.help) or (None if q.optional else "")


def _number(key: str, q: QuestionForm, instead: float | None = None) -> Any:
    is_integer = q.answer_type == "integer"
    fraction = 0.01 if q.maximum == 1 else abs(q.default or 1e-3) / 10  # an empty one is a learning rate
    return draw_number(
        q.label,
        key=key,
        default=q.default if q.default is not None or q.optional else q.minimum or 0,
        lowest=q.minimum,
        highest=q.maximum,
        is_integer=is_integer,
        step=1 if is_integer else fraction,
        help=q.help,
        instead=instead,
    ).value


def _name(key: str, q: QuestionForm) -> str | None:
    options = (None, *q.choices) if q.optional else q.choices
    nothing = "choose for me" if q.path[-1] == "parent" else "none"
    return st.selectbox(
        q.label,
        options,
        _place_of(q.default, options),
        key=key,
        help=q.help,
        format_func=lambda one: q.choice_labels.get(one, one) if one else nothing,
    )


def _place_of(default: Any, choices: Sequence[Any]) -> int:
    return choices.index(default) if default in choices else 0


def _names(key: str, q: QuestionForm) -> list[str]:
    if not q.choices:  # Streamlit would draw a pale field that nobody can open
        st.caption(f"{q.label}: there are none to choose yet.")
        return []
    return list(st.multiselect(q.label, q.choices, q.default, key=key, help=q.help))


_WIDGETS: Mapping[str, Callable[[str, QuestionForm], Any]] = {
    "text": _text,
    "integer": _number,
    "number": _number,
    "toggle": lambda key, q: st.checkbox(q.label, bool(q.default), key=key, help=q.help),
    "choice": lambda key, q: st.selectbox(q.label, q.choices, _place_of(q.default, q.choices), key=key, help=q.help),
    "name": _name,
    "names": _names,
    "integers": lambda key, q: sorted(
        st.multiselect(q.label, sorted({*_DOUBLED, *q.default}), q.default, key=key, help=q.help)
    ),
}


def draw_preset(form: str, questions: Sequence[QuestionForm]) -> None:
    """A row of presets that fill in the training's questions; each can still be changed below."""
    training = [q for q in questions if q.group == "training"]
    if not training:
        return

    def fill_in() -> None:
        wanted = PRESETS[st.session_state[f"{form}.preset"]]
        for question in training:
            st.session_state[key_of(form, question)] = wanted.get(question.path[-1], question.default)

    st.selectbox(
        "Preset",
        list(PRESETS),
        key=f"{form}.preset",
        on_change=fill_in,
        help="Fills in the training details below.",
    )


def show_command(key: str, command: str, request: Callable[[], str], spec_json: dict[str, Any]) -> None:
    """The same job for the terminal, as an HTTP call and as JSON; what is empty is left out.

    The request is asked for once somebody opens the box.
    """
    key, label = f"{key}.elsewhere", "Exactly this, elsewhere: command line, HTTP, JSON"
    content = content_of(st.expander(label, icon=":material/terminal:", key=key, on_change="rerun"), key)
    if content is None:
        return
    with content:
        if command:
            st.caption(plain("Run this in a terminal:"))
            st.code(command, language="bash", wrap_lines=True)
        if curl := request():
            st.caption(plain("Or send it to a running server:"))
            st.code(curl, language="bash", wrap_lines=True)
        st.caption(plain("The spec that is stored with the job:"))
        st.code(json.dumps(spec_json, indent=2, ensure_ascii=False), language="json", wrap_lines=True)


def drop_unknown(key: str, names: Collection[str | None]) -> None:
    """Removes choices that are no longer offered; writing the same value again would undo a pending click."""
    chosen = st.session_state.get(key)
    if isinstance(chosen, list):
        if not set(chosen) <= set(names):
            st.session_state[key] = [name for name in chosen if name in names]
    elif chosen not in names:
        st.session_state.pop(key, None)
