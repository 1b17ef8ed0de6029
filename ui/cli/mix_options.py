"""Options shared by the commands that mix: which experts take part, with which weights, by which gate."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_type_hints

import typer

from engine.config import Evidence, SamplingConfig, absurdity
from engine.mixing.evidence import AnyEvidence, EvidenceRule
from engine.mixing.gate_type import GateType, gate_types
from ui.cli.options import Knob, Result, group_knobs, option_name, plain_type, with_parameters
from ui.errors import BadUsageError
from ui.generation.model_host import find_member, with_clustering_id
from workbench.specs.requests import MixtureRequest


def option(config: type[Any], field: str, flag: str = "") -> Any:
    """The option of one knob, with its sentence."""
    sentence = next(one.metadata["description"] for one in fields(config) if one.name == field)
    return typer.Option(flag or option_name(field), help=sentence, show_default=True)


Experts = Annotated[
    str, typer.Option("--experts", help="Experts that take part, with weights if you like: a=0.5,b=0.5.")
]
Off = Annotated[list[str], typer.Option("--off", help="An expert to leave out; may be repeated.")]
GateOptions = Mapping[str, Any]  # the kind and the settings that were given
_EVIDENCE = "evidence"  # the setting whose decay and power are options of their own
NO_CHANGES: GateOptions = MappingProxyType({})
Prior = Annotated[str | None, typer.Option("--prior", help="A stored prior that weighs the experts taking part.")]
Parts = Annotated[
    list[str],
    typer.Option(
        "--parts",
        help="Active parts of an expert, EXPERT:PART,PART (EXPERT: is its backbone); may be repeated.",
    ),
]
MaxTokens = Annotated[int, option(SamplingConfig, "max_tokens")]
Temperature = Annotated[float, option(SamplingConfig, "temperature")]
TopP = Annotated[float, option(SamplingConfig, "top_p")]
Seed = Annotated[int | None, option(SamplingConfig, "seed")]
Speculate = Annotated[bool, option(SamplingConfig, "speculate", "--speculate/--no-speculate")]
DrawExpert = Annotated[bool, option(SamplingConfig, "draw_expert", "--draw-expert/--no-draw-expert")]


def takes_gate(command: Callable[..., Result]) -> Callable[..., Result]:
    """Gives a command `--gate` and an option for each setting of any gate; its parameter `gate` gets those given.

    An option that the command has already, such as the temperature of sampling, goes to the gate as `--gate-NAME`.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    taken = {one.name for one in own}
    names = {_name(one.name, taken): one for one in gate_options()}

    def with_gate(**given: Any) -> Result:
        settings = {one.name: given.pop(name) for name, one in names.items()}
        return command(**given, gate=with_rule({name: value for name, value in settings.items() if value is not None}))

    parameters: list[inspect.Parameter] = []
    for parameter in own:
        if parameter.name == "gate":
            parameters += [replace(option, name=name).parameter(False) for name, option in names.items()]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return with_parameters(with_gate, command, parameters)


def with_rule(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a gate, where a decay and a power of evidence have an option each."""
    parts = {part.name: settings.get(f"{_EVIDENCE}_{part.name}") for part in fields(EvidenceRule)}
    rule = {name: value for name, value in parts.items() if value is not None}
    if rule and _EVIDENCE in settings:
        raise BadUsageError("Give --evidence or a decay and a power of it, not both.", "Leave one of them out.")
    left = {name: value for name, value in settings.items() if not name.startswith(f"{_EVIDENCE}_")}
    return {**left, **({_EVIDENCE: rule} if rule else {})}


def _name(setting: str, taken: Collection[str]) -> str:
    if setting == "kind":
        return "gate"
    return f"gate_{setting}" if setting in taken else setting


def gate_options() -> Iterator[Knob]:
    """The kind of gate, then each setting of any gate, with its sentence and the gates that have it."""
    gates = gate_types()
    kinds = "; ".join(f"{name}: {gate.sentence}" for name, gate in gates.items())
    yield Knob("kind", Literal[tuple(gates)], f"How weights come about. {kinds}.", None)
    for setting in dict.fromkeys(setting for gate in gates.values() for setting in gate.settings):
        having = [gate for gate in gates.values() if setting in gate.settings]
        hint = get_type_hints(having[0].config)[setting]
        yield Knob(setting, Evidence if hint == AnyEvidence else plain_type(hint), _sentence(setting, having), None)
        for part in group_knobs(EvidenceRule) if hint == AnyEvidence else ():
            yield Knob(f"{setting}_{part.name}", part.type, _of_gates(part.description, having), None)


def _sentence(setting: str, having: Sequence[GateType]) -> str:
    """The sentence of a setting; before it the gates that have it, unless all do, and behind it its default."""
    field = next(one for one in fields(having[0].config) if one.name == setting)
    default = "" if field.default is None else f" Default: {field.default}."
    if setting == "clustering":
        default = " Given by its name."
    return _of_gates(f"{field.metadata['description']}{default}", having)


def _of_gates(sentence: str, having: Sequence[GateType]) -> str:
    gates = "" if len(having) == len(gate_types()) else f"Gate {', '.join(one.name for one in having)}: "
    return f"{gates}{sentence}"


@dataclass(frozen=True)
class Members:
    """The enabled experts of a model with their domains, and which of them take part by default."""

    domains: Mapping[str, str]
    active: Sequence[str]


def mix_request(
    model: str,
    members: Members,
    experts: str,
    off: Iterable[str],
    gate: GateOptions,
    prior: str | None = None,
    parts: Iterable[str] = (),
) -> MixtureRequest:
    """The request for a model; an expert is given by its name or its domain's."""
    active, weights = parse_experts(members.domains, experts)
    left_out = {find_member(members.domains, name) for name in off}
    if left_out:
        active = [name for name in (members.active if active is None else active) if name not in left_out]
    if prior and weights:
        raise BadUsageError("Give weights or --prior, not both.", "Name the experts without weights.")
    changes = with_clustering_id(gate)
    return MixtureRequest(model, active, weights, changes, prior, active_parts(members.domains, parts))


def parse_experts(members: Mapping[str, str], experts: str) -> tuple[list[str] | None, dict[str, float] | None]:
    """The experts named in `a=0.5,b=0.5` or `a,b`; their weights if any is given, 1 for the others."""
    parts = [part.strip() for part in experts.split(",") if part.strip()]
    if not parts:
        return None, None
    pairs = [part.rpartition("=") if "=" in part else (part, "", "") for part in parts]
    weights = {find_member(members, name.strip()): number(value) for name, _, value in pairs}
    if all(value is None for value in weights.values()):
        return list(weights), None
    return list(weights), {name: 1.0 if value is None else value for name, value in weights.items()}


def active_parts(members: Mapping[str, str], given: Iterable[str]) -> dict[str, list[str]]:
    """The parts named in `a:x,y`, by expert; no part after the colon means the backbone only."""
    active = {}
    for text in given:
        expert, colon, parts = text.rpartition(":")
        if not colon:
            raise BadUsageError(
                f"“{text}” does not name parts as EXPERT:PART,PART.",
                "Write them as in apps/composed:code,math.",
            )
        active[find_member(members, expert.strip())] = [part.strip() for part in parts.split(",") if part.strip()]
    return active


def parse_weight(pair: str) -> tuple[str, float]:
    """The expert and its weight in `a=0.5`."""
    name, _, value = pair.rpartition("=")
    weight = number(value) if name else None
    if weight is None:
        raise BadUsageError(f"“{pair}” is not of the form EXPERT=WEIGHT.", "Write it as in python=2.")
    return name.strip(), weight


def number(value: str) -> float | None:
    """A weight from its text; None if the text is empty."""
    if not value:
        return None
    try:
        weight = float(value)
    except ValueError:
        raise BadUsageError(f"The weight “{value}” is not a number.", "Write it as in a=0.5,b=0.5.") from None
    if wanted := absurdity(weight):
        raise BadUsageError(f"The weight “{value}” is not {wanted}.", "Choose another.")
    return weight


def members_of(model: str) -> Members:
    """The experts that can take part in a mixture; a lone expert is its own only one."""
    from workbench.registry.aliases import model_row
    from workbench.registry.database import reading
    from workbench.registry.experts import get_expert
    from workbench.registry.mixtures import get_mixture
    from workbench.schema.tables import Expert

    with reading() as session:
        row = model_row(session, model)
        if isinstance(row, Expert):
            return Members({row.name: get_expert(session, row.name).domain}, [row.name])
        mixture = get_mixture(session, row.name)
    enabled = [member for member in mixture.members if member.enabled]
    return Members({one.expert: one.domain for one in enabled}, [one.expert for one in enabled if one.active])
