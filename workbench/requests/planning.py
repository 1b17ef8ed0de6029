"""Plans a request for a model.

A plan is read in one short transaction that is closed before the first token. Active experts, weights and gates belong
to the plan, not to the loaded model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session, joinedload, selectinload

from engine.errors import MixtureError
from engine.loading.plan import GenerationPlan, PlannedExpert
from engine.mixing.gate_type import GateConfig
from workbench.errors import NotFoundError
from workbench.formatting.shell_command import shell_command
from workbench.registry.aliases import model_row
from workbench.registry.clusters.cluster_routing import find_route
from workbench.registry.experts import part_names, with_another_tokenizer
from workbench.registry.priors import weights_under
from workbench.schema.names import unknown_name
from workbench.schema.tables import Expert, Mixture, MixtureMember
from workbench.specs.gates import changed_gate, default_gate, load_gate
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import Storage

_EXPERTS = selectinload(Mixture.members).joinedload(MixtureMember.expert)
_MEMBERS = _EXPERTS.options(joinedload(Expert.artifact), joinedload(Expert.base))  # not one query for each


@dataclass(frozen=True)
class _PlannedMember:
    expert: Expert
    weight: float
    on: bool


@dataclass(frozen=True)
class _StoredModel:
    """A stored mixture, or an expert as a mixture of one."""

    name: str
    members: Sequence[_PlannedMember]
    gate: GateConfig
    is_mixture: bool = True

    @property
    def names(self) -> list[str]:
        return [member.expert.name for member in self.members]


def plan(session: Session, storage: Storage, request: MixtureRequest | str) -> GenerationPlan:
    """The plan of a request. A name stands for a request that changes nothing.

    The model is read once. All parts of an expert are active unless `parts` names some; an empty list leaves only the
    backbone. Raises NotFoundError, or MixtureError if no expert is left or the experts cannot be mixed.
    """
    request = MixtureRequest(request) if isinstance(request, str) else request
    model = _find_model(session, request.model)
    for name in (*(request.active or ()), *(request.weights or ()), *request.parts):
        if name not in model.names:
            raise NotFoundError("expert", name, model.names, where=f"in “{model.name}”")
    for member in model.members:
        _require_parts(member.expert, request.parts.get(member.expert.name))
    chosen = _choose(model, request.active, _weights(session, model, request))
    experts = [member.expert for member in chosen]
    if others := with_another_tokenizer(experts[0], experts[1:]):
        names = f"“{others[0].name}” and “{experts[0].name}”"
        raise MixtureError(
            f"{names} have different tokenizers, so they cannot be mixed token by token.", "Switch one of them off."
        )
    gate = changed_gate(model.gate, request.gate) if request.gate else model.gate
    return GenerationPlan(
        model.name,
        tuple(_plan_expert(storage, member, request.parts) for member in chosen),
        tuple(member.expert.id for member in model.members),
        experts[0].tokenizer_sha256,
        gate,
        find_route(session, storage, gate, experts),
    )


def _find_model(session: Session, name: str) -> _StoredModel:
    row = model_row(session, name, _MEMBERS)
    if isinstance(row, Mixture):
        members = [_PlannedMember(m.expert, m.weight, m.active and m.expert.enabled) for m in row.members]
        return _StoredModel(row.name, members, load_gate(row.gate))
    return _StoredModel(row.name, [_PlannedMember(row, 1.0, row.enabled)], default_gate(), is_mixture=False)


def _weights(session: Session, model: _StoredModel, request: MixtureRequest) -> Mapping[str, float] | None:
    if request.prior is None:
        return request.weights
    if not model.is_mixture:
        raise unknown_name(session, Mixture, model.name)
    taking_part = [member.expert.name for member in model.members if member.on]
    return weights_under(session, request.prior, taking_part if request.active is None else request.active)


def _require_parts(expert: Expert, requested: Collection[str] | None) -> None:
    existing = part_names(expert)
    if requested is not None and not existing:
        raise MixtureError(
            f"“{expert.name}” has no parts: its method is “{expert.method}”.",
            "Leave its parts out, or switch the expert off.",
        )
    for name in requested or ():
        if name not in existing:
            raise NotFoundError("part", name, existing, where=f"of “{expert.name}”")


def _choose(
    model: _StoredModel, active: Sequence[str] | None, weights: Mapping[str, float] | None
) -> list[_PlannedMember]:
    chosen = []
    for member in model.members:
        name = member.expert.name
        on = member.on if active is None else name in active and member.expert.enabled
        weight = member.weight if weights is None else weights.get(name, 0.0)
        if on and weight > 0:
            chosen.append(_PlannedMember(member.expert, weight, True))
    if not chosen:
        disabled = [member.expert.name for member in model.members if not member.expert.enabled]
        if disabled == [model.name]:
            problem = f"The expert “{model.name}” is disabled in the registry."
            command = shell_command("expert", "enable", model.name)
            raise MixtureError(problem, f"Enable it on the page Experts, or with `{command}`.")
        of_these = f" Disabled in the registry: {', '.join(disabled)}." if disabled else ""
        problem = f"“{model.name}” has no active expert with a weight above 0.{of_these}"
        raise MixtureError(problem, "Switch an expert on.")
    return chosen


def _plan_expert(storage: Storage, member: _PlannedMember, requested: Mapping[str, Collection[str]]) -> PlannedExpert:
    expert, active = member.expert, requested.get(member.expert.name)
    # In the expert's order, so that the same parts give bit-identical output in any request order.
    parts = tuple(name for name in part_names(expert) if active is None or name in active)
    return PlannedExpert(
        expert.id,
        expert.name,
        expert.artifact.sha256,
        storage.path(expert.artifact_id),
        member.weight,
        storage.kept(expert.base),
        parts if part_names(expert) else None,
        storage.kept(expert.artifact).record,
        expert.method,
    )
