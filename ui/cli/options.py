"""Command-line options made from specs: each is written once, in the spec, with its sentence.

`--help` must answer at once, so nothing here may wake torch, SQL or a web framework.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, dataclass, fields, replace
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

if TYPE_CHECKING:
    from workbench.spec_base import Spec
    from workbench.specs import MixtureSpec

Command = Callable[..., None]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]

Here = Annotated[bool, typer.Option("--here", help="Do the work in this process, without the queue.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end, with a progress bar.")]


@dataclass(frozen=True)
class How:
    """How a job is to be run and reported."""

    here: bool
    wait: bool
    json: bool


HOW = {"here": Here, "wait": Wait, "json": Json}


@dataclass(frozen=True)
class Knob:
    """One option: its name, type, sentence and default (`...` when it must be given)."""

    name: str
    type: Any
    description: str
    default: Any

    def parameter(self, argument: bool) -> inspect.Parameter:
        """The parameter of a command's function that Typer reads."""
        kind = inspect.Parameter.KEYWORD_ONLY
        annotation = self._annotation(argument)
        if self.default is ...:
            return inspect.Parameter(self.name, kind, annotation=annotation)
        shown = None if self.default in ("", [], {}, False) else self.default
        return inspect.Parameter(self.name, kind, annotation=annotation, default=shown)

    def _annotation(self, argument: bool) -> Any:
        wanted = self.type if self.default is ... else self.type | None
        if argument:
            return Annotated[wanted, typer.Argument(help=self.description, metavar=self.name.upper())]
        flag = option_name(self.name)
        flags = f"{flag}/{flag.replace('--', '--no-', 1)}" if self.type is bool else flag
        return Annotated[wanted, typer.Option(flags, help=self.description)]


def option_name(field: str) -> str:
    """The flag of a field: counts lose their `num_`, as in `--steps`."""
    return "--" + field.removeprefix("num_").replace("_", "-")


def takes(spec: type[Spec], *arguments: str, **fixed: Any) -> Callable[[Command], Command]:
    """Makes a command of a function `(spec, how)`: every field becomes an option, `arguments` go without a flag.

    Knobs inside the spec (`training`, `shape`) become options of their own; `fixed` fields are not asked for. What the
    function takes by keyword alone is an option of the command, and no part of the wish.
    """
    found = [knob for knob in knobs(spec) if knob.name not in fixed]
    parameters = [knob.parameter(knob.name in arguments) for knob in found]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=False)
        for name, annotation in HOW.items()
    ]

    def decorate(function: Command) -> Command:
        own = [
            one
            for one in inspect.signature(function, eval_str=True).parameters.values()
            if one.kind is one.KEYWORD_ONLY
        ]

        def command(**given: Any) -> None:
            how = How(**{name: given.pop(name) for name in HOW})
            asked = {one.name: given.pop(one.name) for one in own}
            function(build(spec, {**given, **fixed}), how, **asked)

        command.__name__, command.__doc__ = function.__name__, function.__doc__ or spec.__doc__
        command.__signature__ = inspect.Signature([*parameters, *own])  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorate


def build(spec: type[Spec], given: dict[str, Any]) -> Any:
    """The spec of what was given; what was not given keeps the spec's own default."""
    from ui.present.option_names import groups_of, option_of
    from workbench.specs import parse_as, parse_spec

    told = {name: _told(value) for name, value in given.items() if value is not None}
    wish = {name: told[name] for name in spec.model_fields if name in told}
    for name, group in groups_of(spec):
        # The default of the whole group, not of its class: a new expert learns at a tenth of the usual rate.
        whole = asdict(spec.model_fields[name].get_default(call_default_factory=True))
        options = {one.name: option_of(spec, name, one.name) for one in fields(group)}
        wish[name] = whole | {knob: told[option] for knob, option in options.items() if option in told}
    if "kind" not in spec.model_fields:  # a wish for several jobs
        return parse_as(spec, wish)
    return parse_spec({"kind": spec.model_fields["kind"].default, **wish})


def parse_mixture(**given: Any) -> MixtureSpec:
    """A mixture's spec, or BadSpec with all complaints at once."""
    from workbench.specs import MixtureSpec, parse_as

    return parse_as(MixtureSpec, given)


def knobs(spec: type[Spec]) -> Iterator[Knob]:
    """Every option of a spec, those of its groups last."""
    from ui.present.option_names import groups_of, option_of

    groups = dict(groups_of(spec))
    for name, field in spec.model_fields.items():
        if name == "kind" or name in groups:
            continue
        default = ... if field.is_required() else field.get_default(call_default_factory=True)
        yield Knob(name, plain_type(field.annotation), field.description or "", default)
    for name, group in groups.items():
        for knob in group_knobs(group, spec.model_fields[name].get_default(call_default_factory=True)):
            yield replace(knob, name=option_of(spec, name, knob.name))


def group_knobs(group: type[Any], default: Any = None) -> Iterator[Knob]:
    """Every option of one of the engine's configs."""
    hints = get_type_hints(group)
    for one in fields(group):
        value = getattr(default, one.name) if default is not None else one.default
        yield Knob(
            one.name,
            plain_type(hints[one.name]),
            one.metadata["description"],
            None if value is MISSING else value,
        )


def plain_type(annotation: Any) -> Any:
    """The type Typer should read: without `None`, validators and other notes."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain_type(get_args(annotation)[0])
    if origin is list:
        return list[str]
    if origin is dict:
        return str  # of JSON
    if origin is Literal or origin is None:
        return annotation
    kept = [one for one in get_args(annotation) if one is not NoneType]
    return plain_type(kept[0]) if len(kept) == 1 else Union[tuple(kept)]  # noqa: UP007


def split_commas(values: list[str]) -> list[str]:
    """Names given as `a,b`, as repeated options, or both."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _told(value: Any) -> Any:
    return split_commas(value) if isinstance(value, list) else value
