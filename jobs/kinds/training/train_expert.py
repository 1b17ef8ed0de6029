"""Add an expert: copy a parent and train only the copy on a domain (DEMix §6).

Or adapt the full model, the paper's baseline Dense-DAPT: a copy of the shared parameters is trained too, and stored as
a new base, so that the original model does not change.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.parent_choice import with_rate
from engine.config import TrainingConfig
from engine.device import choose_device
from engine.errors import TrainingError
from engine.events import Event, Note, ParentChosen
from engine.inference.sampling import TextSampler
from engine.methods.registry import get_method
from engine.models.expert_model import TrainableModel, require_context
from engine.text.blocks import Tokens
from engine.text.chat.own_template import template_folder
from engine.text.chat.template import load_chat_template
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.training.data import DomainText
from engine.training.loop import train
from engine.training.memory import require_memory_to_build
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.environment import environment_of
from jobs.kinds.shared.expert_files import NewExpert, keep_expert, register_new_expert, store_base
from jobs.kinds.shared.losses import Losses, last_losses
from jobs.kinds.shared.parents import Choice, Parent, choose_parent, possible_parents, require_parent
from jobs.kinds.shared.resume_guard import note_versions, require_same
from jobs.kinds.shared.side_evaluation import Watch, Watched, start_watch
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack
from workbench.kinds.training.train_expert import TrainExpert
from workbench.registry.clusters.branching import share_of
from workbench.registry.clusters.cluster_routing import cluster_numbers, clustering_of
from workbench.registry.mixtures import add_member, average_weight, create_mixture, mixture_row, require_place
from workbench.requests.planning import plan
from workbench.schema.names import ensure_free
from workbench.schema.tables import Artifact, Expert, Mixture
from workbench.specs.requests import MixtureSpec
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact


@dataclass(frozen=True)
class _Inputs:
    domain: DomainFiles
    mixture_id: str
    parents: tuple[Parent, ...]
    watched: Watched | None


@dataclass(frozen=True)
class _Made:
    """Results on disk without rows: the expert, its provenance, and the base of a full model."""

    expert: NewExpert
    choice: Choice
    known: float  # share of the domain's documents that the parent was trained on
    training: TrainingConfig
    tokenizer_sha256: str
    base_id: str | None


def run(work: Work, spec: TrainExpert) -> Generator[Event, None, Register]:
    """Trains the new expert from its parent. No other file changes (law L8)."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    require_same(work, [inputs.domain])
    yield from note_versions(work)
    inputs.parents[0].base.check()
    tokenizer = load_tokenizer(inputs.parents[0].base.folder)  # that of all
    template = _template_folder(inputs)
    folder = yield from pack(work, inputs.domain, tokenizer, template, spec.training.block_size)
    key = stable_id(work.job_id, "expert")
    text = DomainText(inputs.domain.name, key, Tokens.open(folder, "train"), Tokens.open(folder, "dev"))
    choice = yield from choose_parent(work, inputs.parents, text, spec.training.block_size)
    parent, training = choice.parent, with_rate(spec.training, choice.parent.learning_rate)
    known = share_of(inputs.domain.kept.folder / inputs.domain.folder, parent.documents)
    yield from _choice_notes(spec, choice, training)
    method = get_method(parent.method)
    device, load = choose_device(work.settings.device), partial(method.load, parent.base, {key: parent.kept})
    only = None if spec.full_model else [key]
    require_memory_to_build(load, parent.base.folder, only, training, device)
    model = load().to(device)
    require_context(model, spec.training.block_size)
    watch = None
    if inputs.watched is not None:
        watch = yield from start_watch(work, spec, inputs.watched, tokenizer, template, model, key)
    losses = yield from _train(work, only, training, model, tokenizer, text, watch)
    base_id = store_base(work, method, model, tokenizer) if spec.full_model else None
    base_sha256 = work.storage.describe(base_id)[0] if base_id else str(parent.base.sha256)
    expert = keep_expert(
        work,
        model,
        key,
        spec.expert,
        [inputs.domain],
        method=method.name if spec.full_model else method.copy_name,
        held_out=losses.of([inputs.domain]),
        base_sha256=base_sha256,
        tokenizer_sha256=tokenizer.sha256,
        parent=parent.kept.folder,
    )
    return _register(work, spec, inputs, _Made(expert, choice, known, training, tokenizer.sha256, base_id))


def _template_folder(inputs: _Inputs) -> Path:
    """The folder of the chat template of all possible parents; raises TrainingError where a conversation needs one."""
    first, *others = [template_folder(parent.base.folder, parent.kept.folder) for parent in inputs.parents]
    templates = [load_chat_template(folder) for folder in (first, *others)]
    if inputs.domain.is_chat and len({one.sha256 if one else None for one in templates}) > 1:
        raise TrainingError(
            f"“{inputs.domain.name}” holds conversations, and the possible parents have different chat templates.",
            "Name the parent (--parent).",
        )
    return first


def _read(session: Session, work: Work, spec: TrainExpert) -> _Inputs:
    ensure_free(session, Expert, spec.expert)
    if spec.full_model:
        ensure_free(session, Mixture, spec.name)
    mixture, domain = mixture_row(session, spec.mixture), domain_files(session, work.storage, spec.domain)
    if spec.join and not spec.full_model:
        require_place(session, mixture.name, spec.name, domain.id)
    return _Inputs(
        domain=domain,
        mixture_id=mixture.id,
        parents=possible_parents(session, work.storage, mixture, spec.parent),
        watched=_read_watched(session, work, spec, mixture, domain.id) if spec.watch else None,
    )


def _read_watched(session: Session, work: Work, spec: TrainExpert, mixture: Mixture, domain_id: str) -> Watched:
    domains = tuple(domain_files(session, work.storage, name) for name in spec.watch)
    weight = average_weight([member.weight for member in mixture.members])
    planned = plan(session, work.storage, mixture.name)
    return Watched(domains, planned, weight, cluster_numbers(session, clustering_of(planned.gate)).get(domain_id))


def _choice_notes(spec: TrainExpert, choice: Choice, training: TrainingConfig) -> Generator[Event, None, None]:
    """The parent, and notes about it and the learning rate that the job chose."""
    yield ParentChosen(choice.parent.id, choice.parent.name)
    if sentence := choice.explanation(training.block_size):
        yield Note(sentence)
    if spec.training.learning_rate is None:
        reason = f"a tenth of what “{choice.parent.first}” was trained with"
        yield Note(f"The peak learning rate is {training.learning_rate:g}: {reason}.")


def _train(
    work: Work,
    only: Sequence[str] | None,
    config: TrainingConfig,
    model: TrainableModel,
    tokenizer: Tokenizer,
    text: DomainText,
    watch: Watch | None,
) -> Generator[Event, None, Losses]:
    """Trains the expert alone, or with None the full model. Returns the held-out losses."""
    sample = TextSampler(model, tokenizer, [text], config)
    events = train(model, [text], config, work.folder, only_experts=only, watch=watch, sample=sample)
    return (yield from last_losses(events))


def _register(work: Work, spec: TrainExpert, inputs: _Inputs, made: _Made) -> Register:
    config = asdict(made.training) | ({"full_model": True} if spec.full_model else {})
    parent = made.choice.parent
    why = {
        "parent_posterior": made.choice.posterior,
        "parent_blocks": made.choice.num_blocks,
        "parent_documents": made.known,
    }

    environment = environment_of(work)

    def register(session: Session) -> dict[str, Any]:
        require_parent(session, parent)
        register_new_expert(
            session,
            work,
            made.expert,
            base=_base(session, work, made),
            seed_id=parent.seed_id,
            parent_id=parent.id,
            tokenizer_sha256=made.tokenizer_sha256,
            config=config,
            metrics=why,
            trained_base=made.expert.domains if made.base_id else (),
        )
        return {
            "expert": spec.expert,
            "parent": parent.name,
            **why,
            "mixture": _put_into_mixture(session, spec, inputs),
            "environment": environment,
        }

    return register


def _base(session: Session, work: Work, made: _Made) -> Artifact:
    if made.base_id is None:
        return session.get_one(Artifact, made.choice.parent.base_id)
    return register_artifact(session, work.storage, made.base_id, artifact_kinds.BASE, job_id=work.job_id)


def _put_into_mixture(session: Session, spec: TrainExpert, inputs: _Inputs) -> str | None:
    """Adds the expert to its mixture and returns the name; None if not requested, or if the mixture is gone."""
    if spec.full_model:
        return create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert])).name
    mixture = session.get(Mixture, inputs.mixture_id)  # by id: another one may have the name now
    if not spec.join or mixture is None:
        return None
    return add_member(session, mixture.name, spec.expert).name
