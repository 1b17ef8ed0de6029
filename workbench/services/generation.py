"""From a model's name and a request to a plan, and from a plan to tokens and posteriors.

A plan is read in one short transaction that is closed before the first token. Toggles, weights and gates belong to the
plan; the loaded model knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.config import GateConfig, SamplingConfig
from engine.errors import MixtureError
from engine.events import Done, Token
from engine.files import Kept
from workbench.errors import NotFound
from workbench.storage import Storage
from workbench.tables import Expert, Mixture

if TYPE_CHECKING:
    from engine.models.demix import DemixModel
    from engine.text.tokenizer import Tokenizer

_GATE: TypeAdapter[GateConfig] = TypeAdapter(GateConfig)


@dataclass(frozen=True)
class PlannedExpert:
    """An expert that takes part: its weights on disk and its share of the prior."""

    id: str
    name: str
    sha256: str
    folder: Path
    weight: float

    @property
    def kept(self) -> Kept:
        """Where its weights lie, and what they must hash to."""
        return Kept(self.folder, self.sha256)


@dataclass(frozen=True)
class Plan:
    """Everything one answer needs; only experts that weigh something are in it."""

    model: str
    experts: tuple[PlannedExpert, ...]
    member_ids: tuple[str, ...]  # all experts of the model, those too that take no part
    base_folder: Path
    base_sha256: str
    tokenizer_sha256: str
    gate: GateConfig

    @property
    def base(self) -> Kept:
        """Where what all its experts share lies, and what it must hash to."""
        return Kept(self.base_folder, self.base_sha256)

    def manifest(self) -> dict[str, Any]:
        """Which files, experts and weights make the answer."""
        return {
            "model": self.model,
            "experts": [{"id": e.id, "name": e.name, "sha256": e.sha256, "weight": e.weight} for e in self.experts],
            "base_sha256": self.base_sha256,
            "tokenizer_sha256": self.tokenizer_sha256,
            "gate": asdict(self.gate),
        }


@dataclass(frozen=True)
class _Member:
    expert: Expert
    weight: float
    on: bool


def plan(
    session: Session,
    storage: Storage,
    model: str,
    *,
    active: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    gate: GateConfig | None = None,
) -> Plan:
    """The plan of a request to a mixture or an expert, by name.

    `active` names the experts that take part (None: those that are on in the mixture); `weights` replaces their
    weights, and leaves those it does not name at 0. Raises NotFound, or MixtureError when no expert is left.
    """
    members, stored_gate = _members(session, model)
    chosen = _choose(model, members, active, weights)
    first = chosen[0].expert
    return Plan(
        model, tuple(_planned(storage, member) for member in chosen), tuple(member.expert.id for member in members),
        storage.path(first.base_id), first.base.sha256, first.tokenizer_sha256, gate or stored_gate,
    )  # fmt: skip


def _members(session: Session, model: str) -> tuple[list[_Member], GateConfig]:
    mixture = session.scalar(select(Mixture).where(Mixture.name == model))
    if mixture is not None:
        members = [_Member(m.expert, m.weight, m.active and m.expert.enabled) for m in mixture.members]
        return members, _GATE.validate_python(mixture.gate)
    expert = session.scalar(select(Expert).where(Expert.name == model))
    if expert is None:
        known = [*session.scalars(select(Mixture.name)), *session.scalars(select(Expert.name))]
        raise NotFound("mixture or expert", model, known)
    return [_Member(expert, 1.0, expert.enabled)], GateConfig()


def _choose(
    model: str, members: Sequence[_Member], active: Sequence[str] | None, weights: Mapping[str, float] | None
) -> list[_Member]:
    names = [member.expert.name for member in members]
    for asked in [*(active or ()), *(weights or ())]:
        if asked not in names:
            raise NotFound(f"expert in “{model}”", asked, names)
    chosen = []
    for member in members:
        name = member.expert.name
        on = member.on if active is None else name in active and member.expert.enabled
        weight = member.weight if weights is None else weights.get(name, 0.0)
        if on and weight > 0:
            chosen.append(_Member(member.expert, weight, True))
    if not chosen:
        raise _nobody(model, [name for name, member in zip(names, members, strict=True) if not member.expert.enabled])
    return chosen


def _nobody(model: str, disabled: Sequence[str]) -> MixtureError:
    if disabled == [model]:
        told = f"The expert “{model}” must be enabled to answer, but is disabled in the registry."
        return MixtureError(told, f"Enable it on the page Experts, or with `workbench expert enable {model}`.")
    of_these = f" Disabled in the registry: {', '.join(disabled)}." if disabled else ""
    return MixtureError(
        f"“{model}” must have at least one active expert with a weight above 0, but has none.{of_these}",
        "Switch an expert on.",
    )


def _planned(storage: Storage, member: _Member) -> PlannedExpert:
    expert = member.expert
    return PlannedExpert(
        expert.id, expert.name, expert.artifact.sha256, storage.path(expert.artifact_id), member.weight
    )


class Host:
    """The one holder of weights in a process: loads what plans ask for, bounded in bytes."""

    def __init__(self, cache_bytes: int = 4 << 30, device: str = "auto") -> None:
        from engine.cache import ModelCache
        from engine.device import choose_device

        self._cache = ModelCache(cache_bytes, choose_device(device))
        self._tokenizers: dict[str, Tokenizer] = {}

    def stream(
        self, plan: Plan, prompt: str, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Iterator[Token | Done]:
        """Tokens of one answer as they come; the weights behind each are keyed by expert name."""
        from engine.generate import generate
        from engine.mixing.gates import make_gate

        model, tokenizer = self._model(plan), self._tokenizer(plan)
        gate = make_gate(plan.gate, [expert.weight for expert in plan.experts])
        names = {expert.id: expert.name for expert in plan.experts}
        for event in generate(model, list(names), gate, tokenizer, prompt, sampling, stop):
            if isinstance(event, Token):
                weights = {names[key]: weight for key, weight in event.weights.items()}
                event = Token(event.id, event.text, event.logprob, weights)
            yield event

    def posterior(self, plan: Plan, text: str) -> dict[str, Any]:
        """The text token by token: the weights before each, and the log-probability the mixture gave it (nats)."""
        from engine.generate import read_text
        from engine.mixing.gates import make_gate

        model, tokenizer = self._model(plan), self._tokenizer(plan)
        gate = make_gate(plan.gate, [expert.weight for expert in plan.experts])
        reading = read_text(model, [expert.id for expert in plan.experts], gate, tokenizer, text)
        return {"experts": [expert.name for expert in plan.experts], **reading}

    def loaded(self) -> list[dict[str, Any]]:
        """Bases in memory, with the ids of the experts loaded on each."""
        return [{"base_sha256": base, "experts": experts} for base, experts in self._cache.loaded().items()]

    def _model(self, plan: Plan) -> DemixModel:
        experts = {expert.id: expert.kept for expert in plan.experts}
        return self._cache.get(plan.base, experts)

    def _tokenizer(self, plan: Plan) -> Tokenizer:
        from engine.text.tokenizer import load_tokenizer

        if plan.base_sha256 not in self._tokenizers:
            self._tokenizers[plan.base_sha256] = load_tokenizer(plan.base_folder)
        return self._tokenizers[plan.base_sha256]
