"""Seed models: the decoders that experts start from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from workbench.answers.cards import SeedCard
from workbench.registry.aliases import aliases_of
from workbench.registry.database import plain
from workbench.registry.references import refuse_if_used, unfinished_jobs
from workbench.schema.job_tables import Job
from workbench.schema.names import by_name, clean_name, ensure_free
from workbench.schema.tables import Clustering, Evaluation, Expert, Mixture, MixtureMember, SeedModel
from workbench.specs.base import SEED
from workbench.store.artifacts import forget_scores
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from engine.models.gguf_model import GgufOrigin

MADE_OF = "expert_id"  # in the result of a seed's job: the expert that the seed is a copy of
CHANGES = "changes"  # in the same: what of the model's files was left out or changed, as sentences


def list_seeds(session: Session) -> list[SeedCard]:
    """All seed models by name."""
    rows = session.scalars(select(SeedModel).options(joinedload(SeedModel.artifact)).order_by(SeedModel.name))
    return [_card(row) for row in rows]


def get_seed(session: Session, name: str) -> SeedCard:
    """One seed model."""
    return _card(seed_row(session, name))


@dataclass(frozen=True)
class SeedText:
    """How a seed model reads and ends texts; `chat_template` is its source, `conversation` what it makes of one."""

    context: int | None  # tokens
    begins_with: str
    stops: tuple[str, ...]  # the tokens that end an answer
    chat_template: str
    conversation: str
    changes: str  # what of its files was left out or changed when it was imported
    origin: GgufOrigin | None  # of a model from GGUF


def seed_text(session: Session, storage: Storage, name: str) -> SeedText:
    """How a seed model reads and ends texts, from the files that it was stored with."""
    from engine.errors import ChatTemplateError
    from engine.models.gguf_model import GgufOrigin
    from engine.text.chat.template import load_chat_template, stop_ids
    from engine.text.tokenizer import load_tokenizer

    row = seed_row(session, name)
    folder = storage.path(row.artifact_id)
    tokenizer, template = load_tokenizer(folder), load_chat_template(folder, "this model")
    stops = stop_ids(tokenizer, folder, folder)
    try:
        shown = template.render(_EXAMPLE, add_generation_prompt=True) if template else ""
    except ChatTemplateError as error:
        shown = str(error)
    job = session.get(Job, row.job_id) if row.job_id else None
    return SeedText(
        context=context_of(row),
        begins_with="".join(map(tokenizer.written, tokenizer.prefix)),
        stops=tuple(map(tokenizer.written, sorted(stops))),
        chat_template=template.source if template else "",
        conversation=shown,
        changes=str(job.result.get(CHANGES, "")) if job and job.result else "",
        origin=GgufOrigin.read(folder),
    )


def context_of(seed: SeedCard | SeedModel) -> int | None:
    """The tokens that a seed model reads at most; None where its config.json sets no bound."""
    return next((int(seed.config[field]) for field in _CONTEXT if seed.config.get(field)), None)


_EXAMPLE = [{"role": "user", "content": "Hello?"}]
_CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")


def seed_row(session: Session, name: str) -> SeedModel:
    """The row of a seed model; raises NotFoundError with the existing names."""
    return by_name(session, SeedModel, name)


def register_seed(session: Session, *, name: str, source: str, **columns: Any) -> SeedCard:
    """Registers a seed model whose folder is stored already; `columns` are the others of `SeedModel`."""
    name = clean_name("seed model", name)
    ensure_free(session, SeedModel, name)
    row = SeedModel(name=name, source=plain(source), **columns)
    session.add(row)
    session.flush()
    return _card(row)


def copied_expert(session: Session, seed: SeedModel | None) -> Expert | None:
    """The expert that a seed is a full copy of; None for other seeds, and for None."""
    job = session.get(Job, seed.job_id) if seed and seed.job_id else None
    expert_id = job.result.get(MADE_OF) if job else None
    return session.get(Expert, expert_id) if expert_id else None


def copied_experts(session: Session) -> list[tuple[SeedModel, Expert]]:
    """The seeds that are copies of experts, by name, each with its expert."""
    rows = session.scalars(select(SeedModel).where(SeedModel.source.startswith("expert:")).order_by(SeedModel.name))
    return [(row, expert) for row in rows if (expert := copied_expert(session, row)) is not None]


def delete_seed(session: Session, name: str) -> None:
    """Deletes a seed model, and what it is as an expert with its scores.

    Raises InUseError when experts, clusterings, unfinished jobs, or as an expert mixtures and aliases need it.
    """
    row = seed_row(session, name)
    bare = session.scalar(select(Expert).where(Expert.seed_id == row.id, Expert.artifact_id == row.artifact_id))
    ids = {bare.id} if bare else set[str]()
    mixtures = select(Mixture.name).join(MixtureMember).where(MixtureMember.expert_id.in_(ids))
    names = [name, SEED + name]
    users: dict[str, Iterable[str]] = {
        "expert": session.scalars(select(Expert.name).where(Expert.seed_id == row.id, Expert.id.not_in(ids))),
        "clustering": session.scalars(select(Clustering.name).where(Clustering.seed_id == row.id)),
        "mixture": session.scalars(mixtures),
        "alias": aliases_of(session, bare) if bare else (),
        "job": unfinished_jobs(session, ["seed_model", "mixture", "expert", "experts"], names),
    }
    refuse_if_used("seed model", name, users)
    if bare is not None:
        forget_scores(session, Evaluation.expert_id == bare.id)
        session.delete(bare)
        session.flush()
    session.delete(row)
    session.delete(row.artifact)


def _card(row: SeedModel) -> SeedCard:
    return SeedCard.from_fields(row, size_bytes=row.artifact.size_bytes)
