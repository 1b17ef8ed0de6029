"""Add an expert: copy a parent, train only the copy on a domain, change nothing else (DEMix §6)."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.adapt import Nearest, find_nearest
from engine.device import choose_device
from engine.errors import TrainingError
from engine.events import Evaluated, Event
from engine.files import Kept
from engine.models.demix_files import load_demix
from engine.text.blocks import Tokens
from engine.text.tokenizer import load_tokenizer
from engine.training.data import DomainText
from engine.training.loop import require_context, train
from engine.training.methods import METHOD_OF_ONE
from jobs.kinds.expert_files import NewExpert, keep_expert, register_new_expert
from jobs.kinds.ids import made_by
from jobs.kinds.tokens import DomainFiles, domain_files, pack
from jobs.work import Register, Work
from workbench.errors import NotFound
from workbench.services.mixtures import add_member, mixture_row
from workbench.services.names import ensure_free
from workbench.specs import TrainExpert
from workbench.tables import Artifact, Expert, Mixture


@dataclass(frozen=True)
class _Parent:
    """A possible parent, as it was when the job first looked."""

    id: str
    name: str
    seed_id: str | None
    kept: Kept


@dataclass(frozen=True)
class _Inputs:
    domain: DomainFiles
    mixture_id: str
    base_id: str
    base: Kept
    parents: tuple[_Parent, ...]


def run(work: Work, spec: TrainExpert) -> Generator[Event, None, Register]:
    """Trains the new expert on its parent's base; every other file stays what it was (law L8)."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    inputs.base.check()
    tokenizer = load_tokenizer(inputs.base.folder)
    folder = yield from pack(work, inputs.domain, tokenizer)
    key = made_by(work.job_id, "expert")
    text = DomainText(inputs.domain.name, key, Tokens.open(folder, "train"), Tokens.open(folder, "dev"))
    nearest = yield from _parent(work, inputs, text, spec.training.block_size)
    model = load_demix(inputs.base, {nearest.key: _kept(inputs, nearest.key)}).to(choose_device(work.settings.device))
    require_context(model, spec.training.block_size)
    model.add_expert(key, copy_of=nearest.key)
    model.remove_expert(nearest.key)
    loss = None
    for event in train(model, [text], spec.training, work.folder, only_experts=[key]):
        if isinstance(event, Evaluated):
            loss = event.loss_by_domain[text.name]
        yield event
    expert = keep_expert(
        work, model, key, spec.name, [inputs.domain], method=METHOD_OF_ONE[model.experts_in],
        dev_loss=loss, base_sha256=str(inputs.base.sha256), tokenizer_sha256=tokenizer.sha256,
    )  # fmt: skip
    return _register(work, spec, inputs, nearest, expert, tokenizer.sha256)


def _read(session: Session, work: Work, spec: TrainExpert) -> _Inputs:
    ensure_free(session, Expert, "expert", spec.name)
    mixture = mixture_row(session, spec.mixture)
    members = [member.expert for member in mixture.members]
    candidates = members
    if spec.parent is not None:
        candidates = [member for member in members if member.name == spec.parent]
        if not candidates:
            raise NotFound(f"expert in “{spec.mixture}”", spec.parent, [member.name for member in members])
    base = members[0].base
    return _Inputs(
        domain=domain_files(session, work.storage, spec.domain), mixture_id=mixture.id,
        base_id=base.id, base=work.storage.kept(base),
        parents=tuple(_Parent(e.id, e.name, e.seed_id, work.storage.kept(e.artifact)) for e in candidates),
    )  # fmt: skip


def _kept(inputs: _Inputs, id: str) -> Kept:
    found = next((parent.kept for parent in inputs.parents if parent.id == id), None)
    if found is None:
        raise TrainingError(
            "The parent that this training began from must still be in the mixture, but is gone.",
            "Put it back, or start a new job.",
        )
    return found


def _parent(work: Work, inputs: _Inputs, text: DomainText, block_size: int) -> Generator[Event, None, Nearest]:
    """The parent that was asked for, or the nearest one; a resumed job keeps the one it began from."""
    choice = work.folder / "parent.json"
    if choice.exists():
        return Nearest(**json.loads(choice.read_text(encoding="utf-8")))
    nearest = Nearest(inputs.parents[0].id, {}, 0)
    if len(inputs.parents) > 1:
        nearest = yield from _nearest(work, inputs, text, block_size)
    aside = choice.with_suffix(".new")
    aside.write_text(json.dumps(asdict(nearest)), encoding="utf-8")
    aside.rename(choice)
    return nearest


def _nearest(work: Work, inputs: _Inputs, text: DomainText, block_size: int) -> Generator[Event, None, Nearest]:
    parents = {parent.id: parent.kept for parent in inputs.parents}
    model = load_demix(inputs.base, parents).to(choose_device(work.settings.device))
    require_context(model, block_size)
    if text.dev.num_blocks(block_size) < 1:
        raise TrainingError(
            f"The held-out text of “{text.name}” must hold at least one block of {block_size} tokens to find the "
            f"nearest parent, but holds {len(text.dev)} tokens instead.", "Import more text, or name the parent.",
        )  # fmt: skip
    for news in find_nearest(model, list(parents), text.dev, block_size):
        if isinstance(news, Nearest):
            return news
        yield news
    raise AssertionError("find_nearest ends with its answer")


def _register(
    work: Work, spec: TrainExpert, inputs: _Inputs, nearest: Nearest, expert: NewExpert, tokenizer_sha256: str
) -> Register:
    parents = {parent.id: parent for parent in inputs.parents}
    posterior = {parents[id].name: share for id, share in nearest.posterior.items() if id in parents}

    def register(session: Session) -> dict[str, Any]:
        register_new_expert(
            session, work, expert, base=session.get_one(Artifact, inputs.base_id), seed_id=parents[nearest.key].seed_id,
            parent_id=nearest.key, tokenizer_sha256=tokenizer_sha256, config=asdict(spec.training),
            metrics={"parent_posterior": posterior},
        )  # fmt: skip
        mixture = session.get(Mixture, inputs.mixture_id)  # by id: it may have been renamed or deleted meanwhile
        if spec.join and mixture is not None:
            add_member(session, mixture.name, spec.name)
        return {"expert": spec.name, "parent": parents[nearest.key].name, "parent_posterior": posterior}

    return register
