"""What stored scores say: perplexities of mixtures, and losses of documents; exact, without a forward pass.

Shapes: E experts, X scored tokens of a domain's split, N documents of a clustering.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.errors import ScoresError, first_of
from engine.files import ArtifactRef
from engine.loading.plan import GenerationPlan, gate_of
from engine.text.split_names import HELD_OUT_SPLITS, HeldOutSplit
from workbench.analysis.perplexity_tables import comparable
from workbench.formatting.shell_command import evaluate_command
from workbench.registry.clusters.cluster_routing import find_distances, key_of
from workbench.registry.clusters.clusterings import SourceFiles, clustering_files
from workbench.registry.experts import chat_tokens_key, expert_row, tokens_key
from workbench.schema.tables import Artifact, Domain, Evaluation, Expert
from workbench.store.artifacts import find_artifact
from workbench.store.storage import Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.clusters.distances import Distances
    from engine.text.blocks import Tokens


Measure = tuple[str, int, int]  # a text that was scored: domain, tokens, block size


def scored_domains(
    session: Session,
    planned: GenerationPlan,
    split: HeldOutSplit,
    *,
    block_size: int | None = None,
    max_tokens: int | None = None,
) -> dict[str, list[Evaluation]]:
    """Domains on which every planned expert was scored on the same tokens, with the scores in the plan's order.

    Of several such texts it is the one with most scored tokens in all members. A block size, and a most number of
    tokens, narrow the choice.
    """
    ids = [expert.id for expert in planned.experts]
    sets = _sets(session, planned, split, block_size, max_tokens)
    complete = {measure: by_expert for measure, by_expert in sets.items() if by_expert.keys() >= set(ids)}
    return {name: [rows[id] for id in ids] for name, rows in _by_domain(complete).items() if rows.keys() >= set(ids)}


@dataclass(frozen=True)
class ScoredText:
    """The scored text of a domain, with the plan of the experts that have it and their scores in its order."""

    domain: str
    planned: GenerationPlan
    evaluations: list[Evaluation]
    without: tuple[str, ...]  # experts that take part and are not scored on this text


def scored_texts(session: Session, planned: GenerationPlan, split: HeldOutSplit) -> list[ScoredText]:
    """The text of each domain that a mixture is measured on; experts that are not scored on it are left out by name.

    It is the one with most scored tokens in all members, whether they take part or not: neither a toggle nor an expert
    without scores changes the text that is compared. A domain without scores of any planned expert is left out, and,
    unless all are, one that `without_distances` names.
    """
    texts = _scored_texts(session, planned, split)
    names = _without_distances(session, planned, texts)
    return [text for text in texts if text.domain not in names] if len(names) < len(texts) else texts


def without_distances(session: Session, planned: GenerationPlan, split: HeldOutSplit) -> list[str]:
    """Scored domains whose text's distances to the clusters of the plan's gate are not measured."""
    return _without_distances(session, planned, _scored_texts(session, planned, split)) if planned.route else []


def _without_distances(session: Session, planned: GenerationPlan, texts: Sequence[ScoredText]) -> list[str]:
    if planned.route is None:
        return []
    keys = [key_of(planned.route, text.evaluations[0], planned.tokenizer_sha256) for text in texts]
    artifacts = find_distances(session, keys)
    return [text.domain for text, artifact in zip(texts, artifacts, strict=True) if artifact is None]


def _scored_texts(session: Session, planned: GenerationPlan, split: HeldOutSplit) -> list[ScoredText]:
    texts = []
    for domain, by_expert in _by_domain(_sets(session, planned, split)).items():
        places = [place for place, expert in enumerate(planned.experts) if expert.id in by_expert]
        without = tuple(expert.name for expert in planned.experts if expert.id not in by_expert)
        if places:
            of_scored = planned.of_experts(places) if without else planned
            texts.append(ScoredText(domain, of_scored, [by_expert[one.id] for one in of_scored.experts], without))
    return texts


def most_scored(
    session: Session, planned: GenerationPlan, split: HeldOutSplit
) -> tuple[GenerationPlan, list[ScoredText], list[str]]:
    """The plan of the experts with most scored tokens in all, the texts all of these have, and who is left out."""
    texts = scored_texts(session, planned, split)

    def texts_of(names: frozenset[str]) -> list[ScoredText]:
        return [text for text in texts if names.isdisjoint(text.without)]

    everybody = frozenset(expert.name for expert in planned.experts)
    choices = dict.fromkeys([everybody, *(everybody.difference(text.without) for text in texts)])
    best = max(choices, key=lambda names: len(names) * sum(text.evaluations[0].num_tokens for text in texts_of(names)))
    chosen = planned.of_experts([place for place, expert in enumerate(planned.experts) if expert.name in best])
    ids = [expert.id for expert in chosen.experts]
    narrowed = []
    for text in texts_of(best):
        by_expert = {row.expert_id: row for row in text.evaluations}
        narrowed.append(replace(text, planned=chosen, evaluations=[by_expert[id] for id in ids]))
    return chosen, narrowed, [expert.name for expert in planned.experts if expert.name not in best]


def _by_domain(sets: Mapping[Measure, dict[str, Evaluation]]) -> dict[str, dict[str, Evaluation]]:
    """The scores of each domain, by name in order, on the text with most scored tokens; by expert (id)."""
    names = {row.domain_id: measure[0] for measure, by_expert in sets.items() for row in by_expert.values()}
    rows = [row for by_expert in sets.values() for row in by_expert.values()]
    shown = {names[domain_id]: by_expert for domain_id, by_expert in comparable(rows).items()}
    return dict(sorted(shown.items()))


def scored_sets(session: Session, planned: GenerationPlan, split: HeldOutSplit) -> dict[Measure, list[Evaluation]]:
    """Every text that all planned experts were scored on, by its measure, with the scores in the plan's order."""
    ids = [expert.id for expert in planned.experts]
    sets = _sets(session, planned, split)
    return {measure: [rows[id] for id in ids] for measure, rows in sets.items() if all(id in rows for id in ids)}


def _sets(
    session: Session,
    planned: GenerationPlan,
    split: HeldOutSplit,
    block_size: int | None = None,
    max_tokens: int | None = None,
) -> dict[Measure, dict[str, Evaluation]]:
    query = (
        select(Domain.name, Evaluation)
        .join(Evaluation.domain)
        .options(joinedload(Evaluation.artifact))
        .where(Evaluation.expert_id.in_(planned.member_ids), Evaluation.split == split)
        .order_by(Domain.name, Evaluation.num_tokens, Evaluation.block_size)
    )
    if block_size is not None:
        query = query.where(Evaluation.block_size == block_size)
    if max_tokens is not None:
        query = query.where(Evaluation.num_tokens <= max_tokens)
    sets: dict[Measure, dict[str, Evaluation]] = {}
    for name, row in session.execute(query):
        sets.setdefault((name, row.num_tokens, row.block_size), {})[row.expert_id] = row
    return sets


def shared_scores(
    session: Session,
    experts: Sequence[Expert],
    domain_id: str,
    split: HeldOutSplit,
    block_size: int | None = None,
    num_blocks: int = 0,
) -> dict[str, Evaluation] | None:
    """The longest measure that all experts share, as evaluations by expert id; None when they share none.

    It holds at least `num_blocks` full blocks, of `block_size` if given.
    """
    ids = {expert.id for expert in experts}
    texts: dict[tuple[int, int, int | None], list[Evaluation]] = {}
    for row in _usable(session, ids, domain_id, split, block_size, num_blocks):
        texts.setdefault((row.num_tokens, row.block_size, row.num_counted), []).append(row)
    complete = [row for rows in texts.values() if len(rows) == len(ids) for row in rows]
    return comparable(complete).get(domain_id)


def most_shared_scores(
    session: Session,
    experts: Iterable[Expert],
    domain_id: str,
    split: str,
    block_size: int | None = None,
    num_blocks: int = 0,
) -> dict[str, Evaluation]:
    """The scores of these experts on the text with most scored tokens in all; empty where none is scored."""
    ids = {expert.id for expert in experts}
    return comparable(_usable(session, ids, domain_id, split, block_size, num_blocks)).get(domain_id, {})


def _usable(
    session: Session, ids: Collection[str], domain_id: str, split: str, block_size: int | None, num_blocks: int
) -> list[Evaluation]:
    rows = select(Evaluation).where(
        Evaluation.expert_id.in_(ids), Evaluation.domain_id == domain_id, Evaluation.split == split
    )
    return [
        row
        for row in session.scalars(rows)
        if block_size in (None, row.block_size) and row.num_tokens // row.block_size >= num_blocks
    ]


def load_scores(storage: Storage, evaluations: Sequence[Evaluation]) -> tuple[Tensor, int]:
    """The scores [E, tokens] behind evaluations of one text, and their block size; each folder is checked once."""
    from engine.inference.scores import open_scores

    return open_scores([_checked_folder(storage.kept(evaluation.artifact)) for evaluation in evaluations])


def load_places(storage: Storage, evaluation: Evaluation) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The start of each scored block in its split, and its document."""
    from engine.inference.scores import block_documents, block_starts

    folder = _checked_folder(storage.kept(evaluation.artifact))
    return block_starts(folder), block_documents(folder)


def load_counted(storage: Storage, evaluation: Evaluation) -> Tensor | None:
    """Which of the scored tokens count in perplexities [tokens]; None: all."""
    from engine.inference.scores import counted_tokens

    return counted_tokens(_checked_folder(storage.kept(evaluation.artifact)))


def scored_tokens(session: Session, storage: Storage, domain: Domain, expert: Expert, evaluation: Evaluation) -> Tokens:
    """The tokens that were scored. Those of conversations depend on the rule by which these were masked."""
    from engine.inference.scores import score_card
    from engine.text.blocks import MASK_RULE, EvalSample, Tokens
    from engine.text.chat.template import load_chat_template, template_folder

    keys = [tokens_key(domain.id, expert.tokenizer_sha256)]
    if domain.format == "chat":
        folder = template_folder(storage.path(expert.base_id), storage.path(expert.artifact_id))
        if (template := load_chat_template(folder)) is not None:
            of_chat = (domain.id, expert.tokenizer_sha256, template.sha256, evaluation.block_size)
            keys = [chat_tokens_key(*of_chat, rule) for rule in range(MASK_RULE, 0, -1)]
    for artifact in filter(None, (find_artifact(session, key) for key in keys)):
        tokens = Tokens.open(storage.path(artifact.id), evaluation.split)
        starts_N, _ = load_places(storage, evaluation)
        scored = score_card(storage.path(evaluation.artifact_id)).get("text_sha256")
        if len(keys) == 1 or EvalSample(tokens, evaluation.block_size, starts_N).sha256 == scored:
            return tokens
    raise ScoresError(f"The tokens of “{domain.name}” are no longer stored.", "Evaluate the mixture again.")


def mixed_perplexity(
    session: Session, storage: Storage, planned: GenerationPlan, evaluations: Sequence[Evaluation]
) -> float:
    """The perplexity of a plan's mixture, by its gate, on one text that all its experts were scored on."""
    return mixed_perplexities(session, storage, planned, [evaluations])[0]


def mixed_perplexities(
    session: Session, storage: Storage, planned: GenerationPlan, texts: Sequence[Sequence[Evaluation]]
) -> list[float]:
    """The same of several texts, which are summed side by side."""
    from engine.inference.kept_scores import mixed_perplexities as mixed

    artifacts = [[storage.kept(artifact.artifact) for artifact in evaluations] for evaluations in texts]
    for artifact in chain.from_iterable(artifacts):
        _checked_folder(artifact)
    firsts = [evaluations[0] for evaluations in texts]
    distances: Sequence[ArtifactRef | None] = [None] * len(texts)
    if planned.route is not None:
        distances = _distances(session, storage, planned, firsts)
    return mixed(gate_of(planned), artifacts, distances)


def load_distances(session: Session, storage: Storage, planned: GenerationPlan, evaluation: Evaluation) -> Distances:
    """The distances of a scored text to the centres of a plan's clustering; raises ScoresError when there are none."""
    from engine.clusters.distances import open_distances

    (distances,) = _distances(session, storage, planned, [evaluation])
    return open_distances(distances.folder)


def _distances(
    session: Session, storage: Storage, planned: GenerationPlan, evaluations: Sequence[Evaluation]
) -> list[ArtifactRef]:
    assert planned.route is not None
    keys = [key_of(planned.route, evaluation, planned.tokenizer_sha256) for evaluation in evaluations]
    artifacts = find_distances(session, keys)
    return [_same_text(storage, planned, *both) for both in zip(evaluations, artifacts, strict=True)]


def _same_text(
    storage: Storage, planned: GenerationPlan, evaluation: Evaluation, artifact: Artifact | None
) -> ArtifactRef:
    """The distances of the text of an evaluation; raises ScoresError when there are none."""
    if artifact is None:
        raise ScoresError(
            f"The distances of the {evaluation.split} text of “{evaluation.domain.name}” to the clusters of "
            f"“{planned.model}” are not measured.",
            f"Save the gate in the mixture and evaluate it again: {evaluate_command(planned.model)}.",
        )
    kept = storage.kept(artifact)
    _require_same_text(kept, storage.kept(evaluation.artifact))
    return kept


@lru_cache(maxsize=4096)
def _require_same_text(distances: ArtifactRef, scores: ArtifactRef) -> None:
    from engine.clusters.distances import require_same_text

    require_same_text(_checked_folder(distances), _checked_folder(scores))


@lru_cache(maxsize=4096)
def _checked_folder(kept: ArtifactRef) -> Path:
    kept.check()
    return kept.folder


def describe_unscored(session: Session, names: Mapping[str, str], domains: Collection[str], split: str) -> str:
    """Who keeps some domains from being scored under all experts (names by id): those without any score of them."""
    rows = select(Evaluation.expert_id).join(Evaluation.domain).where(Evaluation.split == split)
    scored = set(session.scalars(rows.where(Domain.name.in_(domains), Evaluation.expert_id.in_(names)).distinct()))
    unscored = [f"“{name}”" for id, name in names.items() if id not in scored]
    return f" Without scores: {first_of(unscored)}." if scored and unscored else ""


def experts_with_scores(session: Session, domains: list[str]) -> list[str]:
    """The experts that were scored on held-out text of any of these domains, by name."""
    query = select(Expert.name).join(Evaluation, Evaluation.expert_id == Expert.id).join(Evaluation.domain)
    return list(session.scalars(query.where(Domain.name.in_(domains)).distinct().order_by(Expert.name)))


def document_losses(session: Session, storage: Storage, clustering: str, expert: str) -> NDArray[np.float32]:
    """The mean loss of an expert over the scored tokens of each document (nats); NaN where none was scored.

    Of each domain and split the scores of the most tokens count. Conversations have none: their blocks hold several.
    """
    import numpy as np

    from engine.clusters.documents import as_ids, load_documents, places_of
    from engine.text.parquet_rows import read_ids

    files, row = clustering_files(session, storage, clustering), expert_row(session, expert)
    documents = load_documents(files.kept.folder)
    losses_N = np.full(len(documents), np.nan, dtype=np.float32)
    for source in files.sources:
        for split in HELD_OUT_SPLITS:
            means = _means(session, storage, source, row, split)
            if means is None or source.kept is None:
                continue
            path = source.kept.folder / source.folder / f"{split}.parquet"
            ids = as_ids([id for some in read_ids(path) for id in some])
            numbers = places_of(ids, documents.ids_N)
            is_scored = np.isfinite(means) & (numbers >= 0)
            losses_N[numbers[is_scored]] = means[is_scored]
    return losses_N


def _means(
    session: Session, storage: Storage, source: SourceFiles, expert: Expert, split: HeldOutSplit
) -> NDArray[np.float32] | None:
    """The mean loss of every document of a split, in its order; None without scores or tokens."""
    import numpy as np

    from engine.text.blocks import Tokens

    evaluation = session.scalar(
        select(Evaluation)
        .join(Evaluation.domain)
        .options(joinedload(Evaluation.artifact))
        .where(Domain.name == source.name, Domain.format == "text")
        .where(Evaluation.expert_id == expert.id, Evaluation.split == split)
        .order_by(Evaluation.num_tokens.desc())
        .limit(1)
    )
    if evaluation is None:
        return None
    artifact = find_artifact(session, tokens_key(evaluation.domain_id, expert.tokenizer_sha256))
    if artifact is None:
        return None
    scores_EX, block_size = load_scores(storage, [evaluation])
    starts, _ = load_places(storage, evaluation)
    tokens = Tokens.open(storage.path(artifact.id), split)
    positions_X = (starts[:, None] + 1 + np.arange(block_size)).ravel()[: scores_EX.shape[1]]
    documents_X = np.searchsorted(tokens.starts, positions_X, side="right") - 1
    counts = np.bincount(documents_X, minlength=len(tokens.starts))
    sums = np.bincount(documents_X, weights=-scores_EX[0].double().numpy(), minlength=len(tokens.starts))
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float32] = np.where(counts > 0, sums / counts, np.nan).astype(np.float32)
    return means
