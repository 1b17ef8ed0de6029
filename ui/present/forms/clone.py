"""A job's spec as the answers of its form, under a free name: to submit it again with changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ui.present.forms.questions import Offers, Question, questions_of
from ui.present.forms.text_in_hand import free_name
from workbench.answers.cards import JobCard
from workbench.kinds.parse_spec import parse_spec

_NUMBER = re.compile(r"-\d+$")  # of a clone's name


@dataclass(frozen=True)
class Clone:
    """The answers by their place in the spec, and what they name that the registry no longer holds."""

    job_id: str
    kind: str
    title: str
    answers: Mapping[tuple[str, ...], Any]
    spec: Mapping[str, Any]  # as the job had it
    offers: Offers  # those of now, and for fields without an offer the job's own values
    gone: list[str]


def clone_of(job: JobCard, offers: Offers, taken: Collection[str]) -> Clone:
    """The clone of a job; `taken` are names that it may not have. Raises BadSpecError where the spec cannot be read."""
    spec = parse_spec(job.spec)
    content = spec.model_dump(mode="json")
    offers = {**_own_values(type(spec), content, offers), **offers}
    answers, gone = dict[tuple[str, ...], Any](), list[str]()
    for question in questions_of(type(spec), offers):
        value = _at(content, question.path)
        answers[question.path], missing = _still_offered(question, value)
        gone += missing
    if isinstance(name := answers.get(("name",)), str):
        answers["name",] = free_name(_NUMBER.sub("", name), taken)
    return Clone(job.id, job.kind, job.title, answers, content, offers, gone)


def _own_values(spec: Any, content: Mapping[str, Any], offers: Offers) -> dict[str, list[str]]:
    """Lists of names that no form offers, such as ids of documents: the job's own can be taken away."""
    questions = questions_of(spec, offers)
    lists = [one.path[0] for one in questions if one.answer_type == "names" and len(one.path) == 1 and not one.choices]
    return {name: [str(one) for one in content.get(name) or ()] for name in lists if name not in offers}


def _still_offered(question: Question, value: Any) -> tuple[Any, list[str]]:
    """The value as its widget takes it, and the names in it that are not offered."""
    match question.answer_type:
        case "names" if all(isinstance(one, str) for one in value or ()):  # numbers have a form of their own
            gone = [one for one in value or () if one not in question.choices]
            return [one for one in value or () if one in question.choices], gone
        case "name" if value is not None and value not in question.choices:
            return question.default if question.optional else next(iter(question.choices), None), [value]
        case "text":
            return "" if value is None else str(value), []
    return value, []


def _at(content: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        content = content[part]
    return content
