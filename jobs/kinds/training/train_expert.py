"""Add an expert: copy a parent and train only the copy on a domain (DEMix §6).

Or adapt the full model, the paper's baseline Dense-DAPT: a copy of the shared parameters is trained too, and stored as
a new base, so that the original model does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sqlalchemy.orm import Session

from engine.analysis.parent_choice import Nearest, find_nearest, score_each, with_rate
from engine.clusters.artifact import open_clustering
from engine.clusters.distances import Distances, measure_distances, open_distances
from engine.config import AdaptingConfig, TrainingConfig
from engine.device import choose_device
from engine.errors import TrainingError
from engine.events import Event, Note, ParentChosen, Progress, forward_progress
from engine.files import ArtifactRef
from engine.inference.scores import losses_mixed, losses_of, watched_blocks
from engine.inference.text_samples import TextSampler
from engine.loading.plan import GenerationPlan
from engine.methods.registry import get_method, method_of
from engine.mixing.cluster import Routing
from engine.mixing.gate_type import build_gate
from engine.models.expert_model import ExpertModel, require_context
from engine.text.blocks import EvalSample, Tokens
from engine.text.chat.template import load_chat_template, template_folder
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.training.data import DomainText
from engine.training.loop import train
from engine.training.memory import require_memory_to_build
from engine.training.optimizer import autocast_for
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.expert_files import (
    NewExpert,
    keep_expert,
    last_losses,
    register_new_expert,
    seed_of,
    store_base,
)
from jobs.kinds.shared.resume_guard import note_versions, read_inputs, write_inputs
from jobs.kinds.shared.scoring import load_all, load_in_turn
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack, require_same
from workbench.errors import NotFoundError
from workbench.formatting.number_format import weight
from workbench.kinds.training.train_expert import TrainExpert
from workbench.registry.clusters.cluster_documents import domain_folders, share_of
from workbench.registry.clusters.cluster_routing import cluster_numbers, clustering_of
from workbench.registry.experts import first_of_line
from workbench.registry.mixtures import add_member, average_weight, create_mixture, mixture_row, require_place
from workbench.requests.planning import plan
from workbench.schema.tables import Expert, Mixture
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import Storage


@dataclass(frozen=True)
class Parent:
    """A possible parent, as it was when the job read the registry."""

    id: str
    name: str
    method: str
    seed_id: str | None
    kept: ArtifactRef
    base_id: str
    base: ArtifactRef
    first: str  # name of the expert at the start of its line of copies; its own name if it is not a copy
    learning_rate: float | None  # the peak that this first one was trained with; None if it is not recorded
    documents: tuple[Path, ...]  # folders of the domains that trained it, if they still exist


@dataclass(frozen=True)
class Choice:
    """The parent. If several were possible: each one's posterior by name, and the number of held-out blocks."""

    parent: Parent
    posterior: dict[str, float]
    num_blocks: int


def possible_parents(session: Session, storage: Storage, mixture: Mixture, name: str | None) -> tuple[Parent, ...]:
    """The experts of the mixture, or the requested one of them. Raises NotFoundError.

    Raises TrainingError if no copy of these experts can be trained.
    """
    members = [member.expert for member in mixture.members]
    chosen = [member for member in members if name in (None, member.name)]
    if not chosen:
        raise NotFoundError("expert", str(name), [member.name for member in members], where=f"in “{mixture.name}”")
    able = [member for member in chosen if method_of(member.method).can_be_copied]
    if not able:
        title = method_of(chosen[0].method).title
        raise TrainingError(
            f"“{chosen[0].name}” cannot be a parent: experts of {title} cannot be copied and trained.",
            "Train another expert next to the backbone (workbench train mode), then workbench mode compose.",
        )
    return tuple(_as_parent(session, storage, member) for member in able)


def choose_parent(work: Work, parents: Sequence[Parent], text: DomainText, block_size: int) -> Events[Choice]:
    """Chooses the parent. A resumed job keeps its parent; raises TrainingError if that one is gone."""
    if (stored := read_inputs(work, "parent")) is not None:
        nearest = Nearest(**stored)
    else:
        nearest = Nearest(parents[0].id, {}, 0)
        if len(parents) > 1:
            nearest = yield from _find_nearest(work, parents, text, block_size)
        write_inputs(work, "parent", asdict(nearest))
    by_id = {parent.id: parent for parent in parents}
    if nearest.key not in by_id:
        raise TrainingError(
            "The parent that this training started from is no longer in the mixture.",
            "Add it to the mixture again, or start a new job.",
        )
    shares = {by_id[id].name: share for id, share in nearest.posterior.items() if id in by_id}
    return Choice(by_id[nearest.key], shares, nearest.num_blocks)


def _as_parent(session: Session, storage: Storage, row: Expert) -> Parent:
    first = first_of_line(row)
    return Parent(
        row.id,
        row.name,
        row.method,
        row.seed_id,
        storage.kept(row.artifact),
        row.base_id,
        storage.kept(row.base),
        first.name,
        first.config.get("learning_rate"),
        tuple(domain_folders(session, storage, row)),
    )


def _find_nearest(work: Work, parents: Sequence[Parent], text: DomainText, block_size: int) -> Events[Nearest]:
    experts: dict[ArtifactRef, dict[str, ArtifactRef]] = {}
    for parent in parents:
        experts.setdefault(parent.base, {})[parent.id] = parent.kept
    models, ids = load_in_turn(work, experts, block_size), [parent.id for parent in parents]
    if text.dev.num_blocks(block_size) < 1:
        raise TrainingError(
            f"The held-out text of “{text.name}” has {len(text.dev)} tokens. Finding the nearest parent needs at least "
            f"one block of {block_size} tokens.",
            "Import more text, or choose smaller blocks.",
        )
    return (yield from forward_progress(find_nearest(models, ids, text.dev, block_size, most_blocks=work.most_blocks)))


def run(work: Work, spec: TrainExpert) -> JobRun:
    """Trains the new expert from its parent. No other file changes (law L8)."""
    with work.reading() as session:
        domain, mixture_id, parents, watched = _read(session, work, spec)
    require_same(work, [domain])
    yield from note_versions(work)
    parents[0].base.check()
    tokenizer = load_tokenizer(parents[0].base.folder)  # that of all
    template = _template_folder(domain, parents)
    folder = yield from pack(work, domain, tokenizer, template, spec.training.block_size)
    key = work.stable_id("expert")
    text = DomainText(domain.name, key, Tokens.open(folder, "train"), Tokens.open(folder, "dev"))
    choice = yield from choose_parent(work, parents, text, spec.training.block_size)
    parent, training = choice.parent, with_rate(spec.training, choice.parent.learning_rate)
    known = share_of(domain.kept.folder / domain.folder, parent.documents)
    yield from _choice_notes(spec, choice, training)
    method = get_method(parent.method)
    device, load = choose_device(work.settings.device), partial(method.load, parent.base, {key: parent.kept})
    only = None if spec.full_model else [key]
    require_memory_to_build(load, parent.base.folder, only, training, device)
    model = load().to(device)
    require_context(model, spec.training.block_size)
    watch = None
    if watched is not None:
        watch = yield from start_watch(work, spec, watched, tokenizer, template, model, key)
    sample = TextSampler(model, tokenizer, [text], training)
    losses = yield from last_losses(
        train(model, [text], training, work.folder, only_experts=only, watch=watch, sample=sample)
    )
    expert = keep_expert(
        work,
        model,
        key,
        spec.expert,
        [domain],
        method=method.name if spec.full_model else method.copy_name,
        held_out=losses.of([domain]),
        base_id=store_base(work, method, model, tokenizer) if spec.full_model else parent.base_id,
        tokenizer_sha256=tokenizer.sha256,
        parent=parent.kept.folder,
    )
    why = {"parent_posterior": choice.posterior, "parent_blocks": choice.num_blocks, "parent_documents": known}
    return partial(_register, work, spec, mixture_id, expert, parent, training, why)


def _template_folder(domain: DomainFiles, parents: Sequence[Parent]) -> Path:
    """The folder of the chat template of all possible parents; raises TrainingError where a conversation needs one."""
    first, *others = [template_folder(parent.base.folder, parent.kept.folder) for parent in parents]
    templates = [load_chat_template(folder) for folder in (first, *others)]
    if domain.is_chat and len({template.sha256 if template else None for template in templates}) > 1:
        raise TrainingError(
            f"“{domain.name}” holds conversations, and the possible parents have different chat templates.",
            "Name the parent (--parent).",
        )
    return first


def _read(
    session: Session, work: Work, spec: TrainExpert
) -> tuple[DomainFiles, str, tuple[Parent, ...], WatchedDomains | None]:
    """The domain, the id of the mixture, the possible parents, and what is watched."""
    mixture, domain = mixture_row(session, spec.mixture), domain_files(session, work.storage, spec.domain)
    if spec.join and not spec.full_model:
        require_place(session, mixture.name, spec.name, domain.id)
    watched = None
    if spec.watch:
        planned = plan(session, work.storage, mixture.name)
        watched = WatchedDomains(
            tuple(domain_files(session, work.storage, name) for name in spec.watch),
            planned,
            average_weight([member.weight for member in mixture.members]),
            cluster_numbers(session, clustering_of(planned.gate)).get(domain.id),
        )
    return domain, mixture.id, possible_parents(session, work.storage, mixture, spec.parent), watched


def _choice_notes(spec: TrainExpert, choice: Choice, training: TrainingConfig) -> Iterator[Event]:
    """The parent, and notes about it and the learning rate that the job chose."""
    yield ParentChosen(choice.parent.id, choice.parent.name)
    if choice.posterior:
        share = weight(choice.posterior.get(choice.parent.name, 0))
        yield Note(
            f"The parent is “{choice.parent.name}”: its mean posterior is {share} "
            f"over {choice.num_blocks} held-out blocks of {training.block_size} tokens."
        )
    if spec.training.learning_rate is None:
        reason = f"a tenth of what “{choice.parent.first}” was trained with"
        yield Note(f"The peak learning rate is {training.learning_rate:g}: {reason}.")


def _register(
    work: Work,
    spec: TrainExpert,
    mixture_id: str,
    expert: NewExpert,
    parent: Parent,
    training: TrainingConfig,
    why: dict[str, Any],
    session: Session,
) -> dict[str, Any]:
    if session.get(Expert, parent.id) is None:
        raise TrainingError(
            f"The parent “{parent.name}” was deleted while its copy was trained.",
            "Start a new job with another parent.",
        )
    register_new_expert(
        session,
        work,
        expert,
        seed_id=parent.seed_id,
        parent_id=parent.id,
        config=asdict(training) | ({"full_model": True} if spec.full_model else {}),
        metrics=why,
        trained_base=expert.domains if spec.full_model else (),
    )
    mixture = _add_to_mixture(session, spec, mixture_id)
    made_from = seed_of(session, parent.seed_id)
    return {"expert": spec.expert, "parent": parent.name, **why, **made_from, "mixture": mixture}


def _add_to_mixture(session: Session, spec: TrainExpert, mixture_id: str) -> str | None:
    """Adds the expert to its mixture and returns the name; None if not requested, or if the mixture is gone."""
    if spec.full_model:
        return create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert])).name
    mixture = session.get(Mixture, mixture_id)  # by id: another one may have the name now
    if not spec.join or mixture is None:
        return None
    return add_member(session, mixture.name, spec.expert).name


Watch = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class WatchedDomains:
    """The domains to evaluate, and the mixture that the new expert joins, with its weight there.

    `cluster` is the new expert's cluster; None if it has none or the gate uses none.
    """

    domains: tuple[DomainFiles, ...]
    mixture: GenerationPlan
    weight: float
    cluster: int | None = None


def pack_watched(
    work: Work, domains: Sequence[DomainFiles], tokenizer: Tokenizer, base: Path, config: AdaptingConfig
) -> Events[dict[str, EvalSample]]:
    """The held-out blocks of each domain, by name, that every evaluation measures."""
    texts = {}
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer, base, config.block_size)
        dev = Tokens.open(folder, "dev")
        texts[domain.name] = watched_blocks(domain.name, dev, config.block_size, config.evaluation_blocks)
    return texts


def start_watch(
    work: Work,
    spec: TrainExpert,
    watched: WatchedDomains,
    tokenizer: Tokenizer,
    base: Path,
    model: ExpertModel,
    key: str,
) -> Events[Watch]:
    """Returns a function that gives each watched domain's current held-out loss (nats per token).

    If the full model is trained, it is that model's loss. Otherwise it is that of the mixture with the new expert: the
    existing experts do not change, so they are scored once, in the precision of the training.

    Raises MixtureError if the gate cannot weigh the new expert.
    """
    texts = yield from pack_watched(work, watched.domains, tokenizer, base, spec.training)
    if spec.full_model:
        return lambda: losses_of(model, key, texts)
    mixture, route = watched.mixture, watched.mixture.route
    routing = Routing((*route.clusters, watched.cluster)) if route else None
    gate = build_gate(mixture.gate, [*(expert.weight for expert in mixture.experts), watched.weight], routing)
    distances = yield from _measure(work, mixture, tokenizer, texts)
    others, known = load_all(work, mixture.files(), spec.training.block_size), {}
    for number, (name, text) in enumerate(texts.items()):
        with autocast_for(spec.training.precision, model.device):
            rows = dict(score_each(others, text))
        known[name] = torch.stack([rows[expert.id] for expert in mixture.experts])
        yield Progress(number + 1, len(texts), "domains", "scoring watched domains", is_first=True)
    return lambda: losses_mixed(gate, known, model, key, texts, distances)


def _measure(
    work: Work, mixture: GenerationPlan, tokenizer: Tokenizer, texts: Mapping[str, EvalSample]
) -> Events[dict[str, Distances]]:
    """The distances of each text to the gate's clusters; empty for a gate without clusters."""
    distances: dict[str, Distances] = {}
    if mixture.route is not None:
        clustering = open_clustering(mixture.route.clustering, mixture.route.seed, work.settings.device)
        for number, (name, text) in enumerate(texts.items()):
            folder = work.folder / f"distances-{number}"
            folder.mkdir(exist_ok=True)
            yield from measure_distances(clustering, tokenizer, text, folder)
            distances[name] = open_distances(folder)
    return distances
