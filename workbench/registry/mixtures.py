"""Mixtures: named compositions of experts that share a tokenizer, on one base or on several."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import func, inspect, select
from sqlalchemy.orm import Session, selectinload

from engine.config import absurdity
from engine.mixing.gate_type import GateConfig
from workbench.answers.cards import CalibratedGain, MemberCard, MixtureCard
from workbench.answers.posteriors import EvidenceCalibration
from workbench.errors import BadSpecError, ChangedMeanwhileError, NameTakenError, NotFoundError
from workbench.formatting.number_format import change
from workbench.formatting.shell_command import shell_command
from workbench.registry.aliases import aliases_of
from workbench.registry.clusters.cluster_routing import gate_complaints, route_complaints
from workbench.registry.experts import domains_of, expert_row, part_names, with_another_tokenizer
from workbench.registry.references import refuse_if_used, unfinished_jobs
from workbench.schema.names import by_name, clean_name, ensure_free, free_name
from workbench.schema.tables import Alias, Evaluation, Expert, Mixture, MixtureMember
from workbench.specs.base import SEED
from workbench.specs.gates import changed_gate, dump_gate, load_gate
from workbench.specs.requests import MixtureSpec

# With the members of every mixture in one statement.
MEMBERS = selectinload(Mixture.members).joinedload(MixtureMember.expert).joinedload(Expert.domain)


def list_mixtures(session: Session) -> list[MixtureCard]:
    """All mixtures by name."""
    return [_card(row) for row in session.scalars(select(Mixture).options(MEMBERS).order_by(Mixture.name))]


def get_mixture(session: Session, name: str) -> MixtureCard:
    """One mixture with its members in their order."""
    return _card(mixture_row(session, name))


def most_useful_first(session: Session) -> list[MixtureCard]:
    """All mixtures in the order of a choice: first those with an alias, then by how much of their experts is scored.

    Of as much scored the oldest comes first, so that neither a copy nor an expert without scores changes the default.
    """
    pairs = select(Evaluation.expert_id, func.count(Evaluation.domain_id.distinct())).group_by(Evaluation.expert_id)
    num_domains = dict(session.execute(pairs).tuples().all())
    served = set(session.scalars(select(Alias.mixture_id)))

    def worth(row: Mixture) -> tuple[bool, int, float]:
        num_scored = sum(num_domains.get(expert.id, 0) for expert in taking_part(row))
        return row.id in served, num_scored, -row.created_at

    return [_card(row) for row in sorted(session.scalars(select(Mixture).options(MEMBERS)), key=worth, reverse=True)]


def mixture_row(session: Session, name: str) -> Mixture:
    """The row of a mixture; raises NotFoundError with the existing names."""
    return by_name(session, Mixture, name, MEMBERS)


def _stored_row(session: Session, name: str) -> Mixture:
    """The row of a mixture that is to be changed. Raises BadSpecError for a seed model as it is."""
    row = mixture_row(session, name)
    if inspect(row).transient:
        command = shell_command("mixture", "create", "NAME", "--experts", name)
        raise BadSpecError(
            [f"“{name}” is a seed model as it is, not a mixture that is stored."], f"Make one: `{command}`."
        )
    return row


def taking_part(row: Mixture, always: Expert | None = None) -> tuple[Expert, ...]:
    """The active experts of a mixture with a weight above 0, and `always` in any case."""
    return tuple(member.expert for member in row.members if member.expert is always or member.takes_part)


def members_of(session: Session, name: str) -> tuple[list[Expert], GateConfig]:
    """All experts of a mixture in their order, and its gate."""
    row = mixture_row(session, name)
    return [member.expert for member in row.members], load_gate(row.gate)


def require_version(session: Session, name: str, versions: Collection[str]) -> None:
    """Raises ChangedMeanwhileError unless a mixture has one of these versions; a change's transaction begins here."""
    session.execute(select(Mixture.id).where(Mixture.name == name).with_for_update())  # PostgreSQL: one after another
    if get_mixture(session, name).version not in versions:
        raise ChangedMeanwhileError("mixture", name)


def create_mixture(session: Session, spec: MixtureSpec) -> MixtureCard:
    """Creates a mixture. Raises BadSpecError with every reason why these experts cannot be mixed."""
    ensure_free(session, Mixture, spec.name)
    row = Mixture(name=spec.name, gate=dump_gate(spec.gate))
    row.members = _members(session, spec)
    session.add(row)
    session.flush()
    return _card(row)


def compose_mixture(session: Session, spec: MixtureSpec, *, replace: bool = False) -> MixtureCard:
    """Creates a mixture; with `replace` an existing one gets these experts and this gate."""
    row = session.scalar(select(Mixture).where(Mixture.name == spec.name)) if replace else None
    if row is None:
        return create_mixture(session, spec)
    members = _members(session, spec)
    row.members.clear()
    session.flush()
    row.members, row.gate, row.notes, row.calibration = members, dump_gate(spec.gate), "", None
    session.flush()
    return _card(row)


def copy_mixture(session: Session, name: str, new_name: str = "") -> MixtureCard:
    """A new mixture that is as another one is now; without a name it gets the next free one, such as duo.2.

    Raises NameTakenError or BadSpecError for the name of the copy.
    """
    row = mixture_row(session, name)
    new_name = clean_name(
        "mixture", new_name or free_name(row.name.removeprefix(SEED), ".", session.scalars(select(Mixture.name)).all())
    )
    ensure_free(session, Mixture, new_name)
    copied = Mixture(name=new_name, gate=dict(row.gate), notes=row.notes, calibration=row.calibration)
    copied.members = [
        MixtureMember(expert=member.expert, position=member.position, weight=member.weight, active=member.active)
        for member in row.members
    ]
    session.add(copied)
    session.flush()
    return _card(copied)


def _members(session: Session, spec: MixtureSpec) -> list[MixtureMember]:
    experts = [expert_row(session, name) for name in spec.experts]
    weights = [1.0] * len(experts) if spec.weights is None else spec.weights
    _refuse([*_complaints(experts, weights), *gate_complaints(session, spec.gate, experts)])
    return [
        MixtureMember(expert=expert, position=position, weight=weight)
        for position, (expert, weight) in enumerate(zip(experts, weights, strict=True))
    ]


def delete_mixture(session: Session, name: str) -> None:
    """Deletes a mixture, not its experts. Raises InUseError if an alias or a job needs it."""
    row = _stored_row(session, name)
    jobs = unfinished_jobs(session, ["mixture", "retrained"], [row.name])
    refuse_if_used("mixture", name, {"alias": aliases_of(session, row), "job": jobs})
    session.delete(row)


def add_member(session: Session, mixture: str, expert: str, weight: float | None = None) -> MixtureCard:
    """Appends an expert to a mixture; its default weight is the mean of the others."""
    row, added = _stored_row(session, mixture), expert_row(session, expert)
    if any(member.expert_id == added.id for member in row.members):
        raise NameTakenError(f"member of “{mixture}”", expert)
    others = [member.weight for member in row.members]
    if weight is None:
        weight = average_weight(others)
    complaints = _complaints([*(member.expert for member in row.members), added], [*others, weight])
    _refuse([*complaints, *route_complaints(session, load_gate(row.gate), {added.name: added.domain_id})])
    position = max((member.position for member in row.members), default=-1) + 1
    row.members.append(MixtureMember(expert=added, position=position, weight=weight))
    session.flush()
    return _card(row)


def require_place(session: Session, mixture: str, expert: str, domain_id: str) -> None:
    """Raises BadSpecError if the mixture's gate cannot weigh an expert of this domain; called before its training."""
    _refuse(route_complaints(session, load_gate(mixture_row(session, mixture).gate), {expert: domain_id}))


def average_weight(others: Sequence[float]) -> float:
    """The default weight of a new expert: the mean of the others."""
    return sum(others) / len(others) if any(others) else 1.0


def remove_member(session: Session, mixture: str, expert: str) -> MixtureCard:
    """Removes an expert from a mixture; raises BadSpecError for the last one, or the last that takes part."""
    row = _stored_row(session, mixture)
    member = member_named(row, expert)
    if len(row.members) == 1:
        raise BadSpecError([f"“{expert}” is the last expert of “{mixture}”."], "Delete the mixture instead.")
    _require_others(row, member)
    row.members.remove(member)
    session.flush()
    return _card(row)


def set_active(session: Session, mixture: str, expert: str, active: bool) -> MixtureCard:
    """Switches an expert on or off in this mixture only. Raises BadSpecError for the last that takes part."""
    row = _stored_row(session, mixture)
    member = member_named(row, expert)
    if not active:
        _require_others(row, member)
    member.active = active
    return _card(row)


def arrange(session: Session, mixture: str, active: Collection[str], weights: Mapping[str, float]) -> MixtureCard:
    """Sets which experts are active, and weights. Raises BadSpecError and changes nothing if none would be active.

    A disabled expert keeps its switch.
    """
    row = _stored_row(session, mixture)
    _refuse(_weight_complaints(list(weights), list(weights.values())))
    _require_active(
        row,
        [
            one
            for one in row.members
            if one.expert.enabled and one.expert.name in active and weights.get(one.expert.name, one.weight) > 0
        ],
    )
    for member in row.members:
        name = member.expert.name
        member.active = name in active if member.expert.enabled else member.active
        member.weight = weights.get(name, member.weight)
    session.flush()
    return _card(row)


def _require_others(row: Mixture, member: MixtureMember) -> None:
    """Raises BadSpecError if an expert is the last one that takes part."""
    if member.takes_part:
        _require_active(row, [other for other in row.members if other is not member and other.takes_part])


def _require_active(row: Mixture, left: Sequence[MixtureMember]) -> None:
    if not left:
        raise BadSpecError(
            [f"“{row.name}” would have no active expert with a weight above 0."], "Leave one switched on."
        )


def set_weight(session: Session, mixture: str, expert: str, weight: float) -> MixtureCard:
    """Sets an expert's prior or fixed weight; only proportions matter. Raises BadSpecError for the last above 0."""
    row = _stored_row(session, mixture)
    _refuse(_weight_complaints([expert], [weight]))
    member = member_named(row, expert)
    if not weight:
        _require_others(row, member)
    member.weight = weight
    return _card(row)


def set_gate(session: Session, mixture: str, gate: GateConfig) -> MixtureCard:
    """Sets the gate of a mixture. Raises BadSpecError if the gate cannot weigh its experts."""
    row = _stored_row(session, mixture)
    _refuse(gate_complaints(session, gate, [member.expert for member in row.members]))
    row.gate = dump_gate(gate)
    return _card(row)


def save_calibration(session: Session, fitted: EvidenceCalibration) -> MixtureCard:
    """Gives a mixture the evidence that was fitted and stores the gain, unless its own is kept; its notes say which."""
    row = _stored_row(session, fitted.mixture)
    if not fitted.keeps:
        row.gate = dump_gate(changed_gate(load_gate(row.gate), {"evidence": asdict(fitted.best)}))
        row.calibration = CalibratedGain(**fitted.gain.model_dump(), at=time.time()).model_dump()
    row.notes = f"Evidence calibrated on dev text of {', '.join(fitted.domains)}: {_outcome(fitted)}."
    session.flush()
    return _card(row)


def _outcome(fitted: EvidenceCalibration) -> str:
    now, best = fitted.now.words, fitted.best.words
    gain = f"{change(fitted.gain.value, fitted.gain.low, fitted.gain.high)} of perplexity on these domains' text"
    if fitted.too_short:
        return f"kept {now}, since the text is too short to tell a gain from chance"
    if not fitted.keeps:
        return f"{best}, which changed {now} by {gain}"
    if fitted.best == fitted.now:
        return f"kept {now}, since no other setting is clearly better"
    return f"kept {now}; {best} would change {gain}"


def member_named(row: Mixture, expert: str) -> MixtureMember:
    """The member of a mixture with this expert. Raises NotFoundError with the existing ones."""
    for member in row.members:
        if member.expert.name == expert:
            return member
    raise NotFoundError("expert", expert, [member.expert.name for member in row.members], where=f"in “{row.name}”")


def _complaints(experts: Sequence[Expert], weights: Sequence[float]) -> list[str]:
    names = [expert.name for expert in experts]
    twice = sorted({name for name in names if names.count(name) > 1})
    complaints = [f"“{name}” is named twice." for name in twice]
    if len(weights) != len(experts):
        complaints.append(f"There are {len(weights)} weights for {len(experts)} experts: give one for each.")
    complaints += _weight_complaints(names, weights)
    others = with_another_tokenizer(experts[0], experts[1:])
    return complaints + [f"“{one.name}” has another tokenizer than “{names[0]}”." for one in others]


def _weight_complaints(names: Sequence[str], weights: Sequence[float]) -> list[str]:
    return [
        f"The weight of “{name}” must be a number of 0 or more, not {weight}."
        for name, weight in zip(names, weights, strict=False)
        if absurdity(weight) or weight < 0
    ]


def _refuse(complaints: list[str]) -> None:
    if complaints:
        raise BadSpecError(complaints)


def _card(row: Mixture) -> MixtureCard:
    card = MixtureCard.from_fields(
        row,
        base_ids=list(dict.fromkeys(member.expert.base_id for member in row.members)),
        members=[_member_card(member) for member in row.members],
        calibration=CalibratedGain(**row.calibration) if row.calibration else None,
    )
    content = json.dumps(card.model_dump(mode="json"), sort_keys=True)  # all of it, so that no change goes unseen
    return card.model_copy(update={"version": hashlib.sha256(content.encode()).hexdigest()[:16]})


def _member_card(member: MixtureMember) -> MemberCard:
    expert = member.expert
    return MemberCard.from_fields(
        member,
        expert=expert.name,
        domain=expert.domain.name if expert.domain else "",
        domains=domains_of(expert),
        parts=part_names(expert),
        enabled=expert.enabled,
        colour_number=expert.colour_number,
        mark=expert.mark,
    )
