"""Command-line options made from job specs: each is defined once, in the spec, with its help.

`--help` must be fast: nothing here may import torch, SQLAlchemy or a web framework.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from engine.text.split_names import HeldOutSplit

if TYPE_CHECKING:
    from workbench.errors import Complaint
    from workbench.registry.resources import ResourceKind
    from workbench.specs.base import Sane, Spec


Completer = Callable[[str], list[str]]

# What the fields of job specs and the arguments of commands hold, by their names.
_KINDS: dict[str, tuple[ResourceKind, ...]] = {
    "mixture": ("mixture",),
    "branch_from": ("mixture",),
    "clustering": ("clustering",),
    "expert": ("expert",),
    "experts": ("expert",),
    "parent": ("expert",),
    "rival": ("expert",),
    "before": ("mixture", "expert", "alias"),
    "after": ("mixture", "expert", "alias"),
    "seed_model": ("seed",),
    "prior": ("prior",),
    "domain": ("domain",),
    "domains": ("domain",),
    "targets": ("domain",),
    "retain": ("domain",),
}


def names_of(*kinds: ResourceKind) -> Completer:
    """Completes names of these kinds; nothing where there is no registry."""

    def complete(incomplete: str) -> list[str]:
        from engine.errors import Problem
        from workbench.registry.database import reading
        from workbench.registry.resources import names_from

        before, comma, start = incomplete.rpartition(",")  # of `a,b`, which some options take
        try:
            with reading() as session:
                return [f"{before}{comma}{name}" for kind in kinds for name in names_from(session, kind, start)]
        except Problem:
            return []

    return complete


def naming_argument(help: str | None, *kinds: ResourceKind) -> Any:
    """An argument that names things of these kinds."""
    return typer.Argument(help=help, autocompletion=names_of(*kinds))


def naming_option(help: str | None, *kinds: ResourceKind, flag: str = "") -> Any:
    """An option that names things of these kinds."""
    return typer.Option(*filter(None, [flag]), help=help, autocompletion=names_of(*kinds))


Command = Callable[..., None]
Result = TypeVar("Result")
HeldOut = Annotated[HeldOutSplit, typer.Option("--split", help="Held-out split.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]

InProcess = Annotated[bool, typer.Option("--here", help="Run the job in this process, without the queue.")]
Forecast = Annotated[
    bool,
    typer.Option(
        "--forecast",
        help="Only measure what the job will take: time, memory, disk, FLOPs and its first batch. Exit code 1 if it "
        "does not fit.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job ends, with a progress bar.")]


def keyword(name: str, annotation: Any, default: Any = False) -> inspect.Parameter:
    """A parameter that is given by keyword."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def with_parameters(
    command: Callable[..., Result], function: Callable[..., Any], parameters: Iterable[inspect.Parameter]
) -> Callable[..., Result]:
    """The command under the name and the help of a function, with these parameters for Typer."""
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature([*parameters])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return command


@dataclass(frozen=True)
class RunOptions:
    """Where a job runs, whether to wait for it, and how to print its result."""

    in_process: bool
    wait: bool
    json: bool


RUN_OPTIONS = {"in_process": InProcess, "wait": Wait, "json": Json}


@dataclass(frozen=True)
class Knob:
    """One option: its name, type, help and default (`...` if it is required)."""

    name: str
    type: Any
    description: str
    default: Any
    bounds: Mapping[str, Any] = field(default_factory=dict)  # Typer's min and max

    def parameter(self, argument: bool, flag: str = "", *more_flags: str) -> inspect.Parameter:
        """The function parameter that Typer reads."""
        wanted = self.type if self.default is ... else self.type | None
        completion = names_of(*_KINDS[self.name]) if self.name in _KINDS else None
        if argument:
            info: Any = typer.Argument(help=self.description, metavar=self.name.upper(), autocompletion=completion)
        else:
            flag = flag or option_name(self.name)
            flags = f"{flag}/{flag.replace('--', '--no-', 1)}" if self.type is bool else flag
            info = typer.Option(flags, *more_flags, help=self.description, autocompletion=completion, **self.bounds)
        default = None if self.default in ("", [], {}, False) else self.default
        return keyword(self.name, Annotated[wanted, info], inspect.Parameter.empty if default is ... else default)


def option_name(field: str) -> str:
    """The flag of a field, without the `num_` of counts: `--steps`."""
    return "--" + field.removeprefix("num_").replace("_", "-")


def takes(
    spec: type[Spec], *arguments: str, also: tuple[str, str] = ("", ""), **fixed: Any
) -> Callable[[Command], Command]:
    """Makes a command of a function `(spec, run_options)`: each field becomes an option, or an argument if named.

    The fields of configs inside the spec (`training`, `shape`) become options as well; `fixed` fields get no option,
    and `also` is a field with another flag.
    Keyword-only parameters of the function are options that do not belong to the spec. A kind of job with a probe gets
    --forecast as well, which takes the place of the function.
    """
    more = dict([also])
    parameters = [
        knob.parameter(knob.name in arguments, "", *filter(None, [more.get(knob.name)]))
        for knob in knobs(spec)
        if knob.name not in fixed
    ]
    run_options = {**RUN_OPTIONS, **({"forecast": Forecast} if _has_probe(spec) else {})}
    parameters += [keyword(name, annotation) for name, annotation in run_options.items()]

    def decorate(function: Command) -> Command:
        given_to = inspect.signature(function, eval_str=True).parameters.values()
        own = [parameter for parameter in given_to if parameter.kind is parameter.KEYWORD_ONLY]

        def command(**given: Any) -> None:
            chosen = RunOptions(**{name: given.pop(name) for name in RUN_OPTIONS})
            is_forecast = "forecast" in run_options and given.pop("forecast")  # else the function's own, if it has one
            extra = {parameter.name: given.pop(parameter.name) for parameter in own}
            built = build(spec, {**given, **fixed}, arguments)
            if is_forecast:
                beside: dict[tuple[str, ...], Any] = {
                    (one.name,): extra[one.name] for one in own if extra[one.name] != one.default
                }
                _forecast(built, beside, chosen.json)
            else:
                function(built, chosen, **extra)

        return with_parameters(command, function, [*parameters, *own])

    return decorate


def _has_probe(spec: type[Spec]) -> bool:
    """Whether a spec is that of a kind of job with a probe; its descriptor stands in the module of the spec."""
    stated = getattr(sys.modules[spec.__module__], "KIND", ())
    kinds = stated if isinstance(stated, tuple) else (stated,)
    return any(kind.spec is spec and kind.probe is not None for kind in kinds)


def _forecast(spec: Spec, beside: dict[tuple[str, ...], Any], as_json: bool) -> None:
    from ui.cli.job_progress import print_forecast
    from ui.kinds.catalog import command_of
    from ui.present.forms.job_forecast import forecast_of
    from workbench.job_records.preconditions import kind_of

    stages = forecast_of(spec, command_of(kind_of(spec).name), beside=beside)
    print_forecast(stages, type(spec), as_json)


def build(
    spec: type[Sane], given: dict[str, Any], arguments: Sequence[str], flags: Mapping[str, str] | None = None
) -> Any:
    """A spec with the given values; the others keep their defaults.

    Complaints name the options and arguments; `flags` are those of fields whose option has another name.
    """
    from ui.present.forms.options import spec_of_options
    from workbench.errors import BadSpecError

    try:
        values = {name: value for name, value in given.items() if value is not None}
        lists = {name: split_commas(value) for name, value in values.items() if isinstance(value, list)}
        return spec_of_options(spec, values | lists)
    except BadSpecError as bad:
        raise BadSpecError([_as_typed(one, arguments, flags or {}) for one in bad.given], bad.next_step) from None


def _as_typed(complaint: str | Complaint, arguments: Sequence[str], flags: Mapping[str, str]) -> str | Complaint:
    """A complaint that names an option as it was typed: “--steps: must be at least 1, not 0.”"""
    if isinstance(complaint, str) or not complaint.field:
        return complaint
    [name] = complaint.field
    return replace(complaint, field=(name.upper() if name in arguments else flags.get(name) or option_name(name),))


def knobs(spec: type[Sane]) -> Iterator[Knob]:
    """The options of a spec, those of its configs last."""
    from ui.present.forms.options import groups_of, option_of

    groups = dict(groups_of(spec))
    for name, info in spec.model_fields.items():
        if name == "kind" or name in groups:
            continue
        default = ... if info.is_required() else info.get_default(call_default_factory=True)
        yield Knob(name, plain_type(info.annotation), info.description or "", default)
    for name, group in groups.items():
        for knob in group_knobs(group, spec.model_fields[name].get_default(call_default_factory=True)):
            yield replace(knob, name=option_of(spec, name, knob.name))


def group_knobs(group: type[Any], default: Any = None) -> Iterator[Knob]:
    """The options of a config."""
    hints = get_type_hints(group)
    for setting in fields(group):
        value = getattr(default, setting.name) if default is not None else setting.default
        shown = None if value is MISSING else value
        yield Knob(setting.name, plain_type(hints[setting.name]), setting.metadata["description"], shown)


def plain_type(annotation: Any) -> Any:
    """The type for Typer, without `None`, validators and other annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain_type(get_args(annotation)[0])
    if origin is list:
        return list[str]
    if origin is dict:
        return str  # of JSON
    if origin is Literal or origin is None:
        return annotation
    types = [part for part in get_args(annotation) if part is not NoneType]
    return plain_type(types[0]) if len(types) == 1 else Union[tuple(types)]  # noqa: UP007


def split_commas(values: Sequence[str]) -> list[str]:
    """The names in `a,b`, in repeated options, or in both."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]
