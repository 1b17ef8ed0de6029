"""A mixture's settings as values of an address: `law:off`, `law:0.35` for its experts, `top_k:2` for its gate.

An address holds what differs from what is saved. It may be old or written by hand: what cannot be used is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.errors import Problem
from engine.mixing.evidence import change_evidence, name_of_reading
from ui.present.text.formatting import listed
from workbench.errors import BadSpecError
from workbench.kinds.kind import complaints_of
from workbench.specs.gates import AnyGate, changed_gate, dump_gate, load_gate, require_settings

ON, OFF = "on", "off"
_GATE: TypeAdapter[Any] = TypeAdapter(AnyGate)
_EVIDENCE = "evidence"


@dataclass(frozen=True)
class MemberSetting:
    """Whether an expert is on, with which weight; `heaviest` is the largest that a control of it can be set to."""

    is_on: bool
    weight: float
    heaviest: float = math.inf


def member_values(saved: Mapping[str, MemberSetting], now: Mapping[str, MemberSetting]) -> list[str]:
    """What differs from the saved experts: `law:off`, `law:on`, or a weight, `law:0.35`, of an expert that is on."""
    values = []
    for name, member in now.items():
        if member.is_on and member.weight != saved[name].weight:
            values.append(f"{name}:{member.weight:.12g}")
        elif member.is_on != saved[name].is_on:
            values.append(f"{name}:{ON if member.is_on else OFF}")
    return values


def read_members(
    values: Iterable[str], saved: Mapping[str, MemberSetting]
) -> tuple[dict[str, MemberSetting], list[str]]:
    """The settings that these values stand for, of all experts, and a sentence for each value that cannot be used."""
    members, faults, seen = dict(saved), list[str](), set[str]()
    for value in values:
        name, _, to = value.rpartition(":")
        if name in seen:
            faults.append(f"“{value}” is a second value for the same expert.")
            continue
        seen.add(name)
        if name not in saved:
            faults.append(f"“{value}” names no expert that can take part here.")
            continue
        member = _member(to, saved[name])
        if member is None:
            faults.append(f"“{value}” is neither on, off nor a weight from 0 to {saved[name].heaviest:g}.")
        else:
            members[name] = member
    return members, faults


def _member(to: str, saved: MemberSetting) -> MemberSetting | None:
    if to in (ON, OFF):
        return MemberSetting(to == ON, saved.weight, saved.heaviest)
    try:
        weight = float(to)
    except ValueError:
        return None
    return MemberSetting(True, weight, saved.heaviest) if 0 <= weight <= saved.heaviest else None


def gate_values(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs from the saved gate: `kind:cluster`, `top_k:2`, `evidence.power:0.3`; `top_k:` is an empty one."""
    kind = now["kind"]
    usual = dump_gate(changed_gate(load_gate(saved), {"kind": kind}))
    values = [] if kind == saved["kind"] else [f"kind:{kind}"]
    for name, value in dump_gate(load_gate(now)).items():
        if name != "kind" and value != usual[name]:
            parts = {f"{name}.{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
            values += [f"{part}:{'' if one is None else one}" for part, one in parts.items()]
    return values


def read_gate(
    values: Sequence[str], saved: Mapping[str, Any], clusterings: Iterable[str] = (), only: Sequence[str] = ()
) -> dict[str, Any]:
    """The gate that these values make of the saved one, as it is stored. `clusterings` are the ids that there are.

    `only` are the settings that can be changed, if not all. Raises Problem for a gate or a setting that there is not,
    and for a value out of its bounds.
    """
    if others := [value for value in values if only and value.partition(":")[0].partition(".")[0] not in only]:
        raise BadSpecError([f"“{others[0]}” cannot be set here, where {listed(only)} can."])
    given, rule = _parse_settings(values)
    kind = str(given.get("kind", saved["kind"]) or "")
    usual = dump_gate(changed_gate(load_gate(saved), {"kind": kind}))
    require_settings(kind, {**given, **({_EVIDENCE: rule} if rule else {})})
    if rule:
        given[_EVIDENCE] = name_of_reading(change_evidence(name_of_reading(usual[_EVIDENCE]), rule))
    elif _EVIDENCE in given:
        evidence: Any = given[_EVIDENCE] or ""
        given[_EVIDENCE] = name_of_reading(evidence)
    try:
        gate = dump_gate(_GATE.validate_python(usual | given))
    except ValidationError as error:
        raise BadSpecError([str(one).removeprefix(f"{kind}.") for one in complaints_of(error)]) from None
    if gate.get("clustering") not in {None, saved.get("clustering"), *clusterings}:
        raise BadSpecError([f"There is no clustering “{gate['clustering']}”."])
    return gate


def _parse_settings(values: Iterable[str]) -> tuple[dict[str, Any], dict[str, float]]:
    """The settings that are named, as text; and the numbers of evidence that is given by numbers."""
    given, rule = dict[str, Any](), dict[str, float]()
    for value in values:
        name, _, text = value.partition(":")
        part = name.removeprefix(f"{_EVIDENCE}.")
        if name in given or part in rule or (given.get(_EVIDENCE) and part != name) or (rule and name == _EVIDENCE):
            raise BadSpecError([f"“{value}” is a second value for the same setting."])
        if part == name:
            given[name] = text or None
        else:
            rule[part] = _number(value, text)
    return given, rule


def _number(value: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadSpecError([f"“{value}” is not a number."]) from None


def part_values(parts: Mapping[str, Sequence[str]], on: Mapping[str, Sequence[str]]) -> list[str]:
    """The parts of experts that are off, as `apps/composed: law`."""
    return [f"{expert}: {part}" for expert, names in parts.items() for part in names if part not in on[expert]]


def read_parts(values: Sequence[str], parts: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """The parts that are on, by expert, and a sentence for each value that names no part."""
    known = {f"{expert}: {part}" for expert, names in parts.items() for part in names}
    on = {expert: [part for part in names if f"{expert}: {part}" not in values] for expert, names in parts.items()}
    return on, [f"“{value}” names no part of an expert here." for value in values if value not in known]


def not_used(faults: Sequence[str]) -> str:
    """A sentence on what of an address could not be used; empty without faults."""
    return f"A part of the address cannot be used here. {' '.join(faults)}" if faults else ""


def gate_fault(problem: Problem) -> str:
    """Why the gate of an address is not used."""
    complaints = problem.complaints if isinstance(problem, BadSpecError) else [problem.problem]
    return f"The gate settings of the address cannot be used, so those that are saved are shown. {' '.join(complaints)}"
