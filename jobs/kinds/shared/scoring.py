"""Loads models for a job; scores experts of a mixture on held-out text, and measures the distances that its gate needs.

Both are stored per token, and not computed again where they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.clusters.artifact import open_clustering
from engine.clusters.distances import measure_distances
from engine.device import choose_device
from engine.errors import DamagedFileError, MixtureError
from engine.events import Note, Progress
from engine.files import ArtifactRef
from engine.inference.ensemble import Ensemble, Group
from engine.inference.scores import counted_tokens, score_card, score_together, token_hits
from engine.loading.loaded_base import load_base
from engine.methods.multi_expert_files import read_limits
from engine.models.expert_model import ExpertModel, require_context
from engine.models.multi_expert import MultiExpertModel
from engine.text.blocks import EvalSample, Tokens
from engine.text.chat.template import load_chat_template, template_folder
from engine.text.split_names import HeldOutSplit
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Events, Work
from jobs.kinds.shared.tokens import DomainFiles, can_show, pack, read_domains
from workbench.analysis.perplexity_tables import register_evaluation
from workbench.errors import StorageError
from workbench.registry.clusters.cluster_routing import distances_key, find_route
from workbench.registry.experts import expert_row, find_expert
from workbench.registry.mixtures import members_of, mixture_row
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store import artifact_kinds
from workbench.store.storage import Storage

Experts = Mapping[ArtifactRef, Mapping[str, ArtifactRef]]  # by base, then by id


def load_experts(work: Work, base: ArtifactRef, experts: Mapping[str, ArtifactRef], block_size: int) -> ExpertModel:
    """Loads experts of one base on the job's device. Raises TrainingError if its context is shorter than a block."""
    require_context(read_limits(base.folder), block_size)
    return load_base(base, experts, choose_device(work.settings.device)).view(list(experts))


def load_in_turn(work: Work, experts: Experts, block_size: int) -> Ensemble:
    """Loads each base when it is used and frees it when nothing refers to it. Raises as `load_experts` does."""
    return _ensemble(experts, block_size, lambda base: lambda: load_experts(work, base, experts[base], block_size))


def load_all(work: Work, experts: Experts, block_size: int) -> Ensemble:
    """Loads all bases into memory."""
    loaded = {base: load_experts(work, base, kept, block_size) for base, kept in experts.items()}
    return _ensemble(experts, block_size, lambda base: lambda: loaded[base])


def files_by_base(storage: Storage, rows: Iterable[Expert]) -> dict[ArtifactRef, dict[str, ArtifactRef]]:
    """The files of these experts."""
    files: dict[ArtifactRef, dict[str, ArtifactRef]] = {}
    for row in rows:
        files.setdefault(storage.kept(row.base), {})[row.id] = storage.kept(row.artifact)
    return files


def _ensemble(
    experts: Experts, block_size: int, loader: Callable[[ArtifactRef], Callable[[], ExpertModel]]
) -> Ensemble:
    groups = []
    for base, kept in experts.items():
        limits = read_limits(base.folder)
        require_context(limits, block_size)
        groups.append(Group(tuple(kept), loader(base), limits.max_positions, limits.vocab_size))
    return Ensemble(tuple(groups))


@dataclass(frozen=True)
class NewScores:
    """One expert's scores on one domain: written to a folder, not yet registered."""

    artifact_id: str
    expert_id: str
    domain_id: str
    split: HeldOutSplit
    block_size: int
    num_tokens: int
    log_likelihood: float  # of all its tokens that count, nats
    num_correct: int | None  # of these the most probable ones
    num_counted: int | None  # None: all count


def score_missing(
    work: Work,
    mixture: str,
    domains: Sequence[str] | None,
    split: HeldOutSplit,
    block_size: int,
    max_tokens: int,
    *,
    more_experts: Sequence[str] = (),
    again: bool = False,
) -> Events[list[NewScores]]:
    """Computes the missing scores of every expert on every domain (None: all domains).

    `more_experts` names further ones with the same tokenizer; `again` computes existing scores again. One base is in
    memory at a time. Writes one folder per expert and domain; a resumed job keeps the complete ones. Register them with
    `register_scores`.
    """
    with work.reading() as session:
        rows = [member.expert for member in mixture_row(session, mixture).members]
        rows += [expert_row(session, name) for name in more_experts]
        experts, texts = files_by_base(work.storage, rows), read_domains(session, work.storage, domains)
    first = next(iter(experts))
    first.check()
    tokenizer = load_tokenizer(first.folder)  # that of all
    template = next(iter(_template_folders(experts)))  # that of all, where conversations are read
    shown = [domain for domain in texts if domains or can_show(template, domain)]
    if left := sorted({domain.name for domain in texts} - {domain.name for domain in shown}):
        yield Note(f"Without scores, since the base has no chat template: {', '.join(left)}.")
    if any(domain.is_chat for domain in shown):
        _require_one_template(experts)
    samples = {}
    for domain in shown:
        folder = yield from pack(work, domain, tokenizer, template, block_size)
        samples[domain] = EvalSample.of(Tokens.open(folder, split), block_size, max_tokens)
    with work.reading() as session:
        done = set() if again else _existing_scores(session, work, split, samples)
    measure = f"{split} {block_size}"  # one job may score a domain more than once
    missing = [
        _Missing(
            work.stable_id(f"scores {expert_id} {domain.id} {measure} {sample.num_tokens}"), expert_id, domain, sample
        )
        for kept in experts.values()
        for domain, sample in samples.items()
        for expert_id in kept
        if (expert_id, domain.id, sample.block_size, sample.num_tokens) not in done
    ]
    yield from _score_all(work, experts, missing, block_size)
    return [_read_scores(work, pair, split) for pair in missing]


def _template_folders(experts: Experts) -> Iterator[Path]:
    for base, kept in experts.items():
        yield from (template_folder(base.folder, one.folder) for one in kept.values())


def _require_one_template(experts: Experts) -> None:
    """Raises MixtureError if the experts show conversations in different ways: their tokens would differ."""
    templates = (load_chat_template(folder) for folder in dict.fromkeys(_template_folders(experts)))
    if len({None if template is None else template.sha256 for template in templates}) > 1:
        raise MixtureError(
            "The experts of this mixture have different chat templates, so they do not read the same tokens of a "
            "conversation.",
            "Evaluate experts of one chat template, or on domains of texts.",
        )


def register_scores(session: Session, work: Work, scores: Sequence[NewScores]) -> int:
    """Registers the results of `score_missing`. Returns their number without those deleted meanwhile."""
    num_registered = 0
    for score in scores:
        if find_expert(session, score.expert_id) is not None and session.get(Domain, score.domain_id) is not None:
            measured = asdict(score)
            artifact = work.register_artifact(session, measured.pop("artifact_id"), artifact_kinds.SCORES)
            register_evaluation(session, **measured, artifact=artifact, job_id=work.job_id)
            num_registered += 1
    return num_registered


@dataclass(frozen=True)
class _Missing:
    """One expert on one domain: the text to score, and the artifact to write."""

    artifact_id: str
    expert_id: str
    domain: DomainFiles
    text: EvalSample


def _existing_scores(
    session: Session, work: Work, split: HeldOutSplit, texts: Mapping[DomainFiles, EvalSample]
) -> set[tuple[str, str, int, int]]:
    """Expert, domain, block size and tokens of what is scored. Conversations masked by an earlier rule are not."""
    rows = session.scalars(select(Evaluation).where(Evaluation.split == split))
    hashes = {domain.id: text.sha256 for domain, text in texts.items() if domain.is_chat}
    return {
        (row.expert_id, row.domain_id, row.block_size, row.num_tokens)
        for row in rows
        if row.domain_id not in hashes or _hash_of_scored_text(work, row) == hashes[row.domain_id]
    }


def _hash_of_scored_text(work: Work, row: Evaluation) -> str:
    """The hash of the text of a score; empty where its files are gone."""
    try:
        return str(score_card(work.storage.kept(row.artifact).folder).get("text_sha256", ""))
    except (DamagedFileError, StorageError):
        return ""


def _score_all(work: Work, experts: Experts, missing: Sequence[_Missing], block_size: int) -> Events[None]:
    """Loads one base after another, and writes the missing scores of its experts."""
    total, before = sum(pair.text.num_tokens for pair in missing), 0
    for base, kept in experts.items():
        of_base = [pair for pair in missing if pair.expert_id in kept]
        if not of_base:
            continue
        model = load_experts(work, base, kept, block_size)
        for pairs in _that_share(model, of_base):
            left = [pair for pair in pairs if not work.storage.path(pair.artifact_id).exists()]
            done, text = before + (len(pairs) - len(left)) * pairs[0].text.num_tokens, pairs[0].text
            with ExitStack() as folders:
                to_fill = {pair.expert_id: folders.enter_context(work.storage.new(pair.artifact_id)) for pair in left}
                for progress in score_together(model, to_fill, text) if left else ():
                    scored = done + len(left) * progress.done
                    yield Progress(scored, total, "tokens", f"scoring {pairs[0].domain.name}")
            before += len(pairs) * text.num_tokens
        del model  # before the next one is loaded


def _that_share(model: ExpertModel, pairs: Sequence[_Missing]) -> Iterable[list[_Missing]]:
    """Together the pairs on one domain whose experts share layers, each other pair by itself."""
    groups: dict[str, list[_Missing]] = {}
    for pair in pairs:
        shares = isinstance(model, MultiExpertModel) and model.first_layer(pair.expert_id) > 0
        groups.setdefault(pair.domain.id if shares else pair.artifact_id, []).append(pair)
    return groups.values()


def _read_scores(work: Work, pair: _Missing, split: HeldOutSplit) -> NewScores:
    folder = work.storage.path(pair.artifact_id)
    logprobs = np.load(folder / "logprobs.npy", mmap_mode="r", allow_pickle=False)
    hits = token_hits(folder)  # None in the folder of a job that began before hits were kept
    counted = counted_tokens(folder)
    is_counted = slice(None) if counted is None else counted.numpy()
    return NewScores(
        pair.artifact_id,
        pair.expert_id,
        pair.domain.id,
        split,
        pair.text.block_size,
        len(logprobs),
        log_likelihood=float(logprobs[is_counted].sum(dtype=np.float64)),
        num_correct=None if hits is None else int(np.count_nonzero(hits[is_counted])),
        num_counted=None if counted is None else int(counted.sum()),
    )


def measure_missing(
    work: Work, mixture: str, domains: Sequence[str] | None, split: HeldOutSplit, block_size: int, max_tokens: int
) -> Events[None]:
    """Measures missing distances on the domains (None: all); does nothing for a gate without clusters.

    They cover the tokens that `score_missing` scores, including dev text and the clusters' own domains, since pages mix
    everything that was scored. Each is registered as soon as it is complete.
    """
    with work.reading() as session:
        experts, gate = members_of(session, mixture)
        route, base = find_route(session, work.storage, gate, experts), work.storage.kept(experts[0].base)
        template = template_folder(base.folder, work.storage.path(experts[0].artifact_id))
        texts = read_domains(session, work.storage, domains)
    if route is None:
        return
    base.check()
    tokenizer = load_tokenizer(base.folder)
    clustering = open_clustering(route.clustering, route.seed, work.settings.device)
    for domain in texts if domains else [domain for domain in texts if can_show(template, domain)]:
        packed = yield from pack(work, domain, tokenizer, template, block_size)
        text = EvalSample.of(Tokens.open(packed, split), block_size, max_tokens)
        key = distances_key(route.artifact_id, domain.id, tokenizer.sha256, split, block_size, text.num_tokens)
        fill = partial(measure_distances, clustering, tokenizer, text)
        yield from work.cached_artifact(key, artifact_kinds.DISTANCES, fill)
