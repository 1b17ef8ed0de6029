"""Corpora and their domains: registering, listing, previewing and deleting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload, selectinload

from engine.text.split_names import Split
from workbench.answers.cards import CorpusCard, DomainCard, ImportReport
from workbench.answers.forecasts import BatchRow
from workbench.answers.posteriors import Document
from workbench.errors import BadSpecError, StorageError
from workbench.registry.database import plain
from workbench.registry.experts import domains_of
from workbench.registry.references import refuse_if_used, unfinished_jobs
from workbench.registry.seeds import seed_row
from workbench.schema.names import by_name, clean_name, ensure_free
from workbench.schema.tables import Artifact, Cluster, Clustering, Corpus, Domain, Evaluation, Expert
from workbench.store.artifacts import forget_made_from, forget_scores
from workbench.store.storage import Storage

_MARKED_TOKENS = 512  # of a conversation that is shown with what counts


def list_corpora(session: Session) -> list[CorpusCard]:
    """All corpora by name."""
    rows = session.scalars(select(Corpus).options(selectinload(Corpus.domains)).order_by(Corpus.name))
    return [_corpus_card(row) for row in rows]


def get_corpus(session: Session, name: str) -> CorpusCard:
    """One corpus, with the report of its import."""
    return _corpus_card(by_name(session, Corpus, name))


def list_domains(session: Session) -> list[DomainCard]:
    """All domains by name."""
    query = select(Domain).options(joinedload(Domain.corpus)).order_by(Domain.name)
    return [_domain_card(row) for row in session.scalars(query)]


def get_domain(session: Session, name: str) -> DomainCard:
    """One domain."""
    return _domain_card(domain_row(session, name))


def domain_row(session: Session, name: str) -> Domain:
    """The row of a domain; raises NotFoundError with the existing names."""
    return by_name(session, Domain, name)


def training_domains(session: Session) -> list[str]:
    """The names of all training domains except those made of clusters, which repeat other domains' text."""
    query = select(Domain.name).join(Corpus).where(Domain.role == "train", Corpus.clustering_id.is_(None))
    return list(session.scalars(query.order_by(Domain.name)))


def preview_documents(
    session: Session, storage: Storage, name: str, split: Split = "train", limit: int = 20, offset: int = 0
) -> list[Document]:
    """Some documents of a domain."""
    from engine.text.split import read_split  # here, because only previews need Arrow

    domain = domain_row(session, name)
    folder = storage.path(domain.artifact_id) / domain.folder
    if not folder.is_dir():
        raise StorageError(f"The text of “{name}” is not in {folder}.", "Restore it from a copy, or import it again.")
    rows = islice(read_split(folder, split), offset, offset + limit)
    return [Document.model_validate(row) for row in rows]


def preview_marked(
    session: Session, storage: Storage, name: str, seed: str, split: Split = "train", limit: int = 20
) -> list[BatchRow]:
    """Some conversations of a domain as a seed model reads them, and which of their tokens are in the loss.

    Raises BadSpecError for a domain of texts or a seed model without a chat template.
    """
    from engine.text.chat.conversations import stored_conversation
    from engine.text.chat.template import load_chat_template
    from engine.text.split import read_split
    from engine.text.tokenizer import load_tokenizer

    domain, base = domain_row(session, name), storage.path(seed_row(session, seed).artifact_id)
    template = load_chat_template(base, f"“{seed}”")
    if domain.format != "chat" or template is None:
        cause = f"“{name}” holds texts" if domain.format != "chat" else f"“{seed}” has no chat template"
        raise BadSpecError(
            [f"{cause}, so no conversation can be shown as it is trained on."], "Leave out the seed model."
        )
    tokenizer, rows = load_tokenizer(base), read_split(storage.path(domain.artifact_id) / domain.folder, split)
    talks = (stored_conversation(row["messages"]) for row in islice(rows, limit))
    encoded = (template.with_values(one.template_kwargs).encode_answers(tokenizer, one.messages) for one in talks)
    listed = ((ids, [False, *is_answer[1:].tolist()]) for ids, is_answer in encoded)
    return [BatchRow.of(name, ids, counted, tokenizer, _MARKED_TOKENS) for ids, counted in listed]


def register_corpus(
    session: Session,
    *,
    name: str,
    role: str,
    source: str,
    artifact: Artifact,
    summary: Mapping[str, Any],
    report: Mapping[str, Any],
    licence: str = "",
    clustering_id: str | None = None,
    job_id: str | None = None,
) -> CorpusCard:
    """Registers a corpus with all domains of the summary that engine.text.split wrote."""
    ensure_free(session, Corpus, name)
    names = [clean_name("domain", domain["name"] or name) for domain in summary["domains"]]
    taken = sorted(session.scalars(select(Domain.name).where(Domain.name.in_(names))))
    twice = sorted({name for name in names if names.count(name) > 1})
    complaints = [f"A domain called “{name}” already exists." for name in taken]
    complaints += [f"Two domains of this corpus would be called “{name}”." for name in twice]
    if complaints:
        raise BadSpecError(complaints, "Choose other names, or delete the corpus that holds them.")
    row = Corpus(
        name=name,
        source=plain(source),
        licence=licence,
        report=dict(report),
        clustering_id=clustering_id,
        job_id=job_id,
    )
    row.domains = [
        Domain(
            name=domain,
            role=role,
            format=one.get("format", "text"),
            artifact=artifact,
            folder=one["folder"],
            splits=one["splits"],
            **{key: one[key] for key in ("num_documents", "num_words", "num_bytes", "data_sha256")},
        )
        for domain, one in zip(names, summary["domains"], strict=True)
    ]
    session.add(row)
    session.flush()
    return _corpus_card(row)


def delete_corpus(session: Session, name: str) -> None:
    """Deletes a corpus with its domains and every score on them; raises InUseError when experts or jobs need them."""
    corpus = by_name(session, Corpus, name)
    ids = [domain.id for domain in corpus.domains]
    names = [domain.name for domain in corpus.domains]
    users: dict[str, Iterable[str]] = {
        "expert": [expert.name for expert in session.scalars(select(Expert)) if set(names) & set(domains_of(expert))],
        "clustering": [
            row.name for row in session.scalars(select(Clustering)) if any(one["id"] in ids for one in row.sources)
        ],
        "job": unfinished_jobs(session, ["domain", "domains", "watch", "retain"], names),
    }
    refuse_if_used("corpus", name, users)
    for cluster in session.scalars(select(Cluster).where(Cluster.domain_id.in_(ids))):
        cluster.domain, cluster.stale = None, False
    forget_scores(session, Evaluation.domain_id.in_(ids))
    artifacts = {domain.artifact for domain in corpus.domains}
    for domain in corpus.domains:
        forget_made_from(session, domain.id)
        session.delete(domain)
    for row in [corpus, *artifacts]:
        session.delete(row)


def _corpus_card(row: Corpus) -> CorpusCard:
    names = sorted(domain.name for domain in row.domains)
    return CorpusCard.from_fields(row, report=ImportReport.model_validate(row.report), domains=names)


def _domain_card(row: Domain) -> DomainCard:
    corpus = row.corpus
    return DomainCard.from_fields(row, corpus=corpus.name, source=corpus.source, licence=corpus.licence)
