"""Commands made from questions to stored scores: each field is an option or an argument, with its sentence as help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, get_origin

from engine.config import Evidence
from engine.mixing.evidence import AnyEvidence, EvidenceRule, name_of_reading
from ui.cli.mix_options import with_rule
from ui.cli.options import Knob, build, group_knobs, knobs, split_commas, with_parameters
from ui.cli.output import print_fields, print_rows, say
from ui.cli.verbs import CommandGroup, Outcome, read
from ui.errors import BadUsageError
from workbench.answers.base import Answer
from workbench.answers.cards import MixtureCard
from workbench.questions.question import Question, ask, known_questions
from workbench.store.storage import get_storage

_BOUNDS = (("ge", "min"), ("le", "max"))  # of a field, and of an option
AnswerType = TypeVar("AnswerType", bound=Answer)


def prints_answer(
    app: CommandGroup, question: type[Question[AnswerType]], *arguments: str, name: str = "", **flags: str
) -> Callable[[Callable[[Any, AnswerType], None]], Callable[[Any, AnswerType], None]]:
    """Adds a verb of a function `(question, answer)` that prints an answer; with --json it is printed as JSON.

    Each field becomes an option, or an argument if named; `flags` are those of options with another name.
    """

    def decorate(function: Callable[[Any, AnswerType], None]) -> Callable[[Any, AnswerType], None]:
        def answered(fields: Question[AnswerType]) -> Outcome:
            return Outcome(ask(fields.answer), partial(function, fields))

        answered.__name__, answered.__doc__ = function.__name__, function.__doc__ or question.__doc__
        app.verb(name)(takes_question(question, *arguments, **flags)(answered))
        return function

    return decorate


def takes_question(
    question: type[Question[Any]], *arguments: str, **flags: str
) -> Callable[[Callable[[Any], Outcome]], Callable[..., Outcome]]:
    """Makes a function of a question one of its fields as options."""
    options = [*_options(question)]

    def decorate(function: Callable[[Any], Outcome]) -> Callable[..., Outcome]:
        def command(**given: Any) -> Outcome:
            return function(build(question, _values(question, given), arguments, flags))

        parameters = [one.parameter(one.name in arguments, flags.get(one.name, "")) for one in options]
        return with_parameters(command, function, parameters)

    return decorate


def add_questions(app: CommandGroup) -> None:
    """Adds a command for every question from another package, with its table or else its fields."""
    for path, question in known_questions().items():
        if not question.__module__.startswith("workbench."):
            required = [name for name, field in question.model_fields.items() if field.is_required()]
            prints_answer(app, question, *required, name=path)(_print)


def _print(question: Question[Any], answer: Answer) -> None:
    if question.rows:
        print_rows([row.model_dump() for row in getattr(answer, question.rows)], empty="There are no scores yet.")
    else:
        print_fields(answer.model_dump())


def _options(question: type[Question[Any]]) -> Iterator[Knob]:
    """The options of a question; of evidence its name, or the decay and the power of a rule."""
    for knob in knobs(question):
        field = question.model_fields[knob.name]
        if field.annotation == AnyEvidence:
            yield Knob(knob.name, Evidence, knob.description, None)
            for part in group_knobs(EvidenceRule):
                yield Knob(f"{knob.name}_{part.name}", part.type, part.description, None)
        else:
            marks = [(bound, getattr(mark, name, None)) for mark in field.metadata for name, bound in _BOUNDS]
            knob = replace(knob, bounds={bound: value for bound, value in marks if value is not None})
            if get_origin(field.annotation) is dict:
                knob = replace(
                    knob, type=list[str], description=f"{knob.description} As in law=seven; may be repeated."
                )
            yield knob


def _values(question: type[Question[Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields; those of an object were given as NAME=VALUE."""
    values = with_rule({name: value for name, value in given.items() if value is not None})
    for name, field in question.model_fields.items():
        if name in values and field.annotation == AnyEvidence:
            values[name] = name_of_reading(values[name])
        elif name in values and get_origin(field.annotation) is dict:
            values[name] = dict(map(_pair, split_commas(values[name])))
    return values


def _pair(text: str) -> tuple[str, str]:
    """The name and the value in `law=seven`."""
    name, _, value = text.rpartition("=")
    if not name.strip() or not value.strip():
        raise BadUsageError(f"“{text}” is not NAME=VALUE.", "Write it as in law=seven.")
    return name.strip(), value.strip()


def say_temperature(mixture: MixtureCard) -> None:
    """Prints the temperature that dev text proposes for a gate of clusters, and how to set it."""
    if "temperature" not in mixture.gate:
        return
    from ui.present.charts.setting_grids import describe_temperature
    from workbench.questions.cluster_grid import propose_temperature

    say(describe_temperature(read(propose_temperature, get_storage(), mixture.name)))
