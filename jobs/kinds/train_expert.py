"""Add an expert: copy a parent, train only the copy on a domain, change nothing else (DEMix §6)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.adapt import Nearest, find_nearest
from engine.device import choose_device
from engine.errors import TrainingError
from engine.events import Evaluated, Event
from engine.models.demix import DemixModel
from engine.models.demix_files import load_demix
from engine.text.tokenizer import load_tokenizer
from engine.training.data import DomainText
from engine.training.loop import require_context, train
from jobs.kinds.expert_files import NewExpert, keep_expert, register_new_expert
from jobs.kinds.ids import made_by
from jobs.kinds.tokens import DomainFiles, domain_files, open_split, pack
from jobs.work import Register, Work
from workbench.errors import NotFound
from workbench.services.experts import expert_row
from workbench.services.mixtures import add_member, mixture_row
from workbench.services.names import ensure_free
from workbench.specs import TrainExpert
from workbench.tables import Expert


@dataclass(frozen=True)
class _Inputs:
    domain: DomainFiles
    base_id: str
    base: Path
    base_sha256: str
    seed_id: str | None
    parents: dict[str, Path]  # id -> folder
    names: dict[str, str]  # id -> name
    parent_id: str | None


def run(work: Work, spec: TrainExpert) -> Generator[Event, None, Register]:
    """Trains the new expert on its parent's base; every other file stays what it was (law L8)."""
    with work.transaction() as session:
        inputs = _read(session, work, spec)
    tokenizer = load_tokenizer(inputs.base)
    folder = yield from pack(work, inputs.domain, tokenizer)
    key = made_by(work.job_id, "expert")
    text = DomainText(inputs.domain.name, key, open_split(folder, "train"), open_split(folder, "dev"))
    model = load_demix(inputs.base, inputs.parents).to(choose_device(work.settings.device))
    require_context(model, spec.training.block_size)
    nearest = yield from _parent(model, inputs, text, spec.training.block_size)
    model.add_expert(key, copy_of=nearest.key)
    for other in inputs.parents:
        model.remove_expert(other)
    loss = None
    for event in train(model, [text], spec.training, work.folder, only_experts=[key]):
        if isinstance(event, Evaluated):
            loss = event.loss_by_domain[text.name]
        yield event
    expert = keep_expert(
        work, model, key, spec.name, inputs.domain,
        dev_loss=loss, base_sha256=inputs.base_sha256, tokenizer_sha256=tokenizer.sha256,
    )  # fmt: skip
    return _register(work, spec, inputs, nearest, expert, tokenizer.sha256)


def _read(session: Session, work: Work, spec: TrainExpert) -> _Inputs:
    ensure_free(session, Expert, "expert", spec.name)
    members = [member.expert for member in mixture_row(session, spec.mixture).members]
    parent = expert_row(session, spec.parent) if spec.parent else None
    if parent is not None and parent.id not in [member.id for member in members]:
        raise NotFound(f"expert in “{spec.mixture}”", parent.name, [member.name for member in members])
    candidates = [parent] if parent is not None else members
    first = candidates[0]
    work.storage.verify(first.base)
    return _Inputs(
        domain=domain_files(session, work.storage, spec.domain),
        base_id=first.base_id, base=work.storage.path(first.base_id), base_sha256=first.base.sha256,
        seed_id=first.seed_id, parents={e.id: work.storage.verify(e.artifact) for e in candidates},
        names={e.id: e.name for e in candidates}, parent_id=parent.id if parent else None,
    )  # fmt: skip


def _parent(model: DemixModel, inputs: _Inputs, text: DomainText, block_size: int) -> Generator[Event, None, Nearest]:
    """The parent that was asked for, or the nearest one with the posterior that says so."""
    if inputs.parent_id is not None:
        return Nearest(inputs.parent_id, {}, 0)
    if text.dev.num_blocks(block_size) < 1:
        raise TrainingError(
            f"The held-out text of “{text.name}” must hold at least one block of {block_size} tokens to find the "
            f"nearest parent, but holds {len(text.dev)} tokens instead.", "Import more text, or name the parent.",
        )  # fmt: skip
    for news in find_nearest(model, list(inputs.parents), text.dev, block_size):
        if isinstance(news, Nearest):
            return news
        yield news
    raise AssertionError("find_nearest ends with its answer")


def _register(
    work: Work, spec: TrainExpert, inputs: _Inputs, nearest: Nearest, expert: NewExpert, tokenizer_sha256: str
) -> Register:
    posterior = {inputs.names[key]: share for key, share in nearest.posterior.items()}

    def register(session: Session) -> dict[str, Any]:
        base = expert_row(session, inputs.names[nearest.key]).base
        register_new_expert(
            session, work, expert, base=base, seed_id=inputs.seed_id, parent_id=nearest.key,
            tokenizer_sha256=tokenizer_sha256, config=asdict(spec.training), metrics={"parent_posterior": posterior},
        )  # fmt: skip
        if spec.join:
            add_member(session, spec.mixture, spec.name)
        return {"expert": spec.name, "parent": inputs.names[nearest.key], "parent_posterior": posterior}

    return register
