"""A new expert of a job: its losses on held-out text, its folder and its row."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from sqlalchemy.orm import Session

from engine.events import Evaluated, Event, TrainingFinished
from engine.methods.base import Method
from engine.methods.registry import get_method
from engine.models.expert_model import TrainableModel
from engine.statistics.perplexity import perplexity_of
from engine.text.chat.template import copy_template
from engine.text.tokenizer import Tokenizer
from jobs.attempt.work import Events, Work
from jobs.kinds.shared.resume_guard import mask_rule
from jobs.kinds.shared.tokens import DomainFiles, data_sha256_of
from workbench.analysis.changes.additions import AFTER, BEFORE
from workbench.analysis.changes.retrained_baselines import OF_BASE, OWN, sources_of
from workbench.registry.experts import register_expert
from workbench.schema.tables import Artifact, SeedModel
from workbench.store import artifact_kinds


@dataclass(frozen=True)
class HeldOut:
    """Mean losses on the held-out text of an expert's domains, in nats per token; None where none was measured."""

    after: float | None = None
    before: float | None = None  # before the training


@dataclass(frozen=True)
class HeldOutLosses:
    """Held-out losses by domain: of the last evaluation, or with patience of the best, and before the first update."""

    after: Mapping[str, float]
    before: Mapping[str, float]

    def of(self, domains: Sequence[DomainFiles]) -> HeldOut:
        """The means over these domains, equally weighted."""
        return HeldOut(_mean_loss(self.after, domains), _mean_loss(self.before, domains))


def last_losses(events: Iterator[Event]) -> Events[HeldOutLosses]:
    """Passes events on. Returns the losses of the weights that the training leaves, and those before it."""
    losses: dict[str, float] = {}
    before: Mapping[str, float] = {}
    with closing(cast(Generator[Event, None, None], events)):
        for event in events:
            if isinstance(event, Evaluated | TrainingFinished):
                losses |= event.loss_by_domain
            if isinstance(event, TrainingFinished):
                before = event.loss_at_start
            yield event
    return HeldOutLosses(losses, before)


def _mean_loss(losses: Mapping[str, float], domains: Sequence[DomainFiles]) -> float | None:
    known = [losses[domain.name] for domain in domains if domain.name in losses]
    return fmean(known) if known else None


def store_base(
    work: Work, method: Method, model: TrainableModel, tokenizer: Tokenizer, template: Path | None = None
) -> str:
    """Stores the base as an artifact of the job, with the chat template of a folder, and returns its id."""
    base_id = work.stable_id("base")
    with work.storage.new(base_id) as folder:
        method.save_base(model, folder)
        tokenizer.save(folder)
        if template is not None:
            copy_template(template, folder)
    return base_id


def base_artifact(session: Session, work: Work, base_id: str) -> Artifact:
    """The row of an expert's base, which is there already unless the job made it."""
    return session.get(Artifact, base_id) or work.register_artifact(session, base_id, artifact_kinds.BASE)


@dataclass(frozen=True)
class NewExpert:
    """An expert before it has a row. `id` also names its folder."""

    id: str
    name: str
    method: str
    domains: tuple[DomainFiles, ...]
    num_parameters: int
    held_out: HeldOut
    kind: str  # of its artifact
    base_id: str
    tokenizer_sha256: str


def keep_expert(
    work: Work,
    model: TrainableModel,
    id: str,
    name: str,
    domains: Sequence[DomainFiles],
    *,
    method: str,
    held_out: HeldOut,
    base_id: str,
    tokenizer_sha256: str,
    parent: Path | None = None,
) -> NewExpert:
    """Stores the parameters of the expert `id`, trained on these domains, as an artifact with the same id.

    A chat template of its own comes from the folder of its `parent`.
    """
    descriptor, base_sha256 = get_method(method), work.storage.describe(base_id)[0]
    with work.storage.new(id) as folder:
        descriptor.save_expert(model, id, folder, base_sha256=base_sha256, tokenizer_sha256=tokenizer_sha256)
        if parent is not None:
            copy_template(parent, folder)
    size = sum(parameter.numel() for parameter in model.expert_parameters(id).values())
    kind = descriptor.artifact_kind
    return NewExpert(id, name, method, tuple(domains), size, held_out, kind, base_id, tokenizer_sha256)


def seed_of(session: Session, seed_id: str | None) -> dict[str, str]:
    """The seed model's name, for the result of a job; nothing where it is not known."""
    row = session.get(SeedModel, seed_id) if seed_id else None
    return {"seed": row.name} if row else {}


def register_new_expert(
    session: Session,
    work: Work,
    expert: NewExpert,
    *,
    seed_id: str | None,
    parent_id: str | None,
    config: Mapping[str, Any],
    metrics: Mapping[str, Any] | None = None,
    trained_base: Sequence[DomainFiles] = (),
) -> None:
    """Writes the expert's row with its provenance, and that of its base if the job made it.

    If several domains trained it, its config lists their texts; it always lists those that trained the base in the same
    training. A domain's name may later belong to other text.
    """
    several = len(expert.domains) > 1
    texts: dict[str, Any] = {"domains": [domain.name for domain in expert.domains]} if several else {}
    if "num_steps" in config and any(domain.is_chat for domain in (*expert.domains, *trained_base)):
        texts["mask_rule"] = mask_rule(work)
    for key, domains in ((OWN, expert.domains if several else ()), (OF_BASE, trained_base)):
        if domains:
            texts[key] = [asdict(source) for source in sources_of(session, [domain.id for domain in domains])]
    losses = {AFTER: expert.held_out.after, BEFORE: expert.held_out.before}
    measured = {name: perplexity_of(loss) for name, loss in losses.items() if loss is not None}
    register_expert(
        session,
        id=expert.id,
        name=expert.name,
        method=expert.method,
        seed_id=seed_id,
        domain_id=None if several else expert.domains[0].id,
        parent_id=parent_id,
        base=base_artifact(session, work, expert.base_id),
        artifact=work.register_artifact(session, expert.id, expert.kind),
        tokenizer_sha256=expert.tokenizer_sha256,
        data_sha256=data_sha256_of(expert.domains),
        num_parameters=expert.num_parameters,
        config={**config, **texts},
        metrics={**measured, **(metrics or {})},
        code_version=version("expert-workbench"),
        job_id=work.job_id,
    )
