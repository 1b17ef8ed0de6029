"""What front ends need of a kind of job: its command, its form, and how its result is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.methods.base import Method
from ui.present.forms.questions import Offers
from ui.present.pages import Page
from workbench.kinds.kind import Result, ResultLink

Answers = Mapping[tuple[str, ...], Any]  # of a form, by the place of the field in the spec


@dataclass(frozen=True)
class Need:
    """What must be in the registry before a form makes sense."""

    field: str  # of the offers
    problem: str
    next_step: str
    kind: str  # of the jobs that make it
    page: Page | None = None  # where they are submitted, if elsewhere than on the page Train
    option: str = ""  # the outcome on the page Train that makes it, where the form has several


@dataclass(frozen=True)
class Outcome:
    """What a person can get from some text: a row of the page Train."""

    title: str
    about: str
    method: str
    others: str  # what becomes of other experts
    answers: Callable[[Offers], Answers] = field(default=lambda _: {})  # beside text, name and what is required
    position: int = 100  # among the rows, smallest first
    freezes_seed: bool = False  # worth little on a seed model that has not been trained


@dataclass(frozen=True, kw_only=True)
class TrainForm:
    """A form on the page Train."""

    title: str  # in the choice of what to make
    about: str
    draw: Callable[[Offers], None]
    needs: tuple[Need, ...] = ()
    outcomes: tuple[Outcome, ...] = ()  # of a kind that trains on text; none: it has one row, under its title
    methods: Callable[[], Mapping[str, Method]] = field(default=dict)  # that it offers, the usual one first
    position: int = 100  # among the forms, smallest first
    widgets_of: Callable[[Mapping[str, Any]], dict[str, Any]] = field(
        default=lambda _: {}
    )  # of a spec's JSON: the state of widgets that are not named by a field's place in the spec


@dataclass(frozen=True, kw_only=True)
class Screen:
    """What front ends need of a kind of job. Nothing has a default: a kind without a part says None."""

    command: Callable[[Answers], str] | None  # the command line that submits what the form would
    sentence: Callable[[Result], str]
    link: ResultLink | None
    form: TrainForm | None  # None: its form is on another page, or there is none
