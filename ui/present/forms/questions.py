"""The questions of a form, derived from the fields of a spec, and what is wrong with numbers that answer them.

The title of a field is the label, its description the help.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

AnswerType = Literal["text", "integer", "number", "toggle", "choice", "name", "names", "integers"]
Offers = Mapping[str, Sequence[str]]  # field -> names of the registry that it may take
Answers = Mapping[tuple[str, ...], Any]  # by the place of the field in the spec


@dataclass(frozen=True)
class QuestionForm:
    """One field of a spec in a form; `path` is its place in the spec's JSON.

    `title` is its label, if its name does not say enough; `group_title` is the label of its group. `choice_labels` are
    those of choices, where they differ from the values.
    """

    path: tuple[str, ...]
    answer_type: AnswerType
    help: str
    default: Any
    choices: tuple[str, ...] = ()
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choice_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    title: str = ""
    group_title: str = ""

    @property
    def label(self) -> str:
        """The field's title, or its name as a label: `Steps` for `num_steps`."""
        if self.title:
            return self.title
        words = self.path[-1].removeprefix("num_").replace("_", " ").strip()
        return words[:1].upper() + words[1:]

    @property
    def group(self) -> str:
        """The config within the spec that holds the field, such as `training`; empty for the spec itself."""
        return self.path[0] if len(self.path) > 1 else ""


MAX_SAFE_INTEGER = 2**53 - 1  # of JavaScript
DERIVED_FIELDS = ("kind", "budget")  # they follow from the other answers


def questions_of(spec: type[BaseModel], offers: Offers, skip: Iterable[str] = DERIVED_FIELDS) -> list[QuestionForm]:
    """Every field of a spec as a question, those of its configs included."""
    questions: list[QuestionForm] = []
    for name, field in spec.model_fields.items():
        if name in skip:
            continue
        default = field.get_default(call_default_factory=True)
        default = None if default is PydanticUndefined else default
        if dataclasses.is_dataclass(default):
            questions += config_questions(name, default, field.title or "")
        else:
            marks: dict[str, Any] = {"title": field.title, "description": field.description or ""}
            marks |= {name: bound for mark in field.metadata for name, bound in _bounds(mark)}
            questions.append(_question((name,), field.annotation, default, marks, offers))
    return questions


def config_questions(group: str, config: Any, group_title: str = "") -> list[QuestionForm]:
    """Every field of a config that has a description as a question, with the config's values as defaults."""
    hints = get_type_hints(type(config))
    return [
        replace(
            _question((group, f.name), hints[f.name], getattr(config, f.name), f.metadata, {}), group_title=group_title
        )
        for f in dataclasses.fields(config)
        if "description" in f.metadata
    ]


def _bounds(mark: object) -> Iterable[tuple[str, float]]:
    for name in ("ge", "gt", "le", "lt"):
        if (value := getattr(mark, name, None)) is not None:
            yield name, value


def _question(
    path: tuple[str, ...], annotation: Any, default: Any, marks: Mapping[str, Any], offers: Offers
) -> QuestionForm:
    """The question of a field; `marks` are its title, description and bounds, under pydantic's names."""
    annotation, optional = _without_none(annotation)
    answer_type, choices = _answer_type(path[-1], annotation, offers)
    step = 1 if answer_type == "integer" else 0
    minimum = marks["gt"] + step if "gt" in marks else marks.get("ge")
    maximum = marks["lt"] - step if "lt" in marks else marks.get("le")
    if answer_type == "integer" and maximum is not None:
        maximum = min(maximum, MAX_SAFE_INTEGER)
    title = marks.get("title") or ""
    return QuestionForm(
        path, answer_type, marks["description"], default, choices, optional, minimum, maximum, title=title
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        return parts[0], len(parts) < len(get_args(annotation))
    return annotation, False


def _answer_type(name: str, annotation: Any, offers: Offers) -> tuple[AnswerType, tuple[str, ...]]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is list:
        return _type_of_list(name, get_args(annotation)[0], offers)
    if get_origin(annotation) is Literal:
        return "choice", tuple(get_args(annotation))
    if name in offers:
        return "name", tuple(offers[name])
    by_type: dict[Any, AnswerType] = {bool: "toggle", int: "integer", float: "number"}
    return by_type.get(annotation, "text"), ()


def _type_of_list(name: str, annotation: Any, offers: Offers) -> tuple[AnswerType, tuple[str, ...]]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation is int:
        return "integers", ()
    return "names", get_args(annotation) if get_origin(annotation) is Literal else tuple(offers.get(name, ()))


def limit_questions(questions: Iterable[QuestionForm], limits: Mapping[tuple[str, ...], int]) -> list[QuestionForm]:
    """The questions with these upper bounds of their answers; a larger default becomes the bound."""
    return [
        replace(question, maximum=limits[question.path], default=min(question.default, limits[question.path]))
        if question.path in limits
        else question
        for question in questions
    ]


def assemble(answers: Answers) -> dict[str, Any]:
    """The spec's JSON from the answers by path."""
    spec: dict[str, Any] = {}
    for path, value in answers.items():
        inner = spec
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return spec


def changed_answers(questions: Iterable[QuestionForm], answers: Answers) -> dict[tuple[str, ...], Any]:
    """The answers that differ from the field's default: what a command line must hold."""
    return {q.path: answers[q.path] for q in questions if q.path in answers and answers[q.path] != q.default}


def number_fault(label: str, value: float | None, lowest: float | None, highest: float | None, is_integer: bool) -> str:
    """What is wrong with a number, and what it must be; empty where nothing is."""
    if value is None:
        return ""
    is_in_range = (lowest is None or lowest <= value) and (highest is None or value <= highest)
    if is_in_range and (not is_integer or value == int(value)):
        return ""
    kind = "a whole number" if is_integer else "a number"
    return f"{label} must be {kind}{_range_text(lowest, highest)}, not {_digits(value)}."


def number_faults(questions: Iterable[QuestionForm], answers: Answers) -> list[str]:
    """What is wrong with the numbers among the answers."""
    numbers = [question for question in questions if question.answer_type in ("integer", "number")]
    faults = [fault_of(number, answers.get(number.path)) for number in numbers]
    return [fault for fault in faults if fault]


def fault_of(question: QuestionForm, value: float | None) -> str:
    """What is wrong with a number as the answer to a question."""
    return number_fault(
        question.label, value, question.minimum, question.maximum, is_integer=question.answer_type == "integer"
    )


def _range_text(lowest: float | None, highest: float | None) -> str:
    if lowest is not None and highest is not None:
        return f" from {_digits(lowest)} to {_digits(highest)}"
    if lowest is not None:
        return f" of at least {_digits(lowest)}"
    return f" of at most {_digits(highest)}" if highest is not None else ""


def _digits(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
