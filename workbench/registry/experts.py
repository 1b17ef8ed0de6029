"""Experts: register them with their provenance, describe, enable and disable, rename and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import String, cast, func, or_, select
from sqlalchemy.orm import Session, joinedload

from engine.methods.base import Parameters, StoredExpert
from engine.methods.registry import method_of, methods
from workbench.answers.cards import ExpertCard, ExpertLook
from workbench.errors import BadSpecError, NotFoundError
from workbench.formatting.shell_command import shell_command
from workbench.registry.aliases import aliases_of
from workbench.registry.database import plain
from workbench.registry.references import refuse_if_used, refuse_renaming, unfinished_jobs
from workbench.registry.reproducible import reproducible_from
from workbench.registry.seeds import copied_expert, copied_experts
from workbench.schema.names import bare_seeds, by_name, choose_look, clean_name, ensure_free, find_row
from workbench.schema.tables import Cluster, Corpus, Domain, Evaluation, Expert, Mixture, MixtureMember, SeedModel
from workbench.specs.base import SEED
from workbench.store.artifacts import forget_made_from, forget_scores

_AROUND = [joinedload(one) for one in (Expert.domain, Expert.seed, Expert.parent, Expert.artifact)]


def list_experts(session: Session) -> list[ExpertCard]:
    """All experts by name."""
    return _cards(session, session.scalars(select(Expert).options(*_AROUND).order_by(Expert.name)).all())


def list_with_seeds(session: Session) -> list[ExpertCard]:
    """All experts by name, then every seed model as it is that is not among them."""
    return [*list_experts(session), *_cards(session, bare_seeds(session))]


def list_states(session: Session) -> list[tuple[str, str, bool]]:
    """The id and the name of every expert, and whether it is enabled: quick, to see whether anything has changed."""
    statement = select(Expert.id, Expert.name, Expert.enabled).order_by(Expert.id)
    return [(id, name, enabled) for id, name, enabled in session.execute(statement).tuples()]


def list_looks(session: Session) -> list[ExpertLook]:
    """Names, colours and marks of all experts for charts, the oldest first; then those of seed models as they are."""
    columns = (Expert.name, Domain.name, Expert.colour_number, Expert.mark, Expert.job_id)
    statement = select(*columns).outerjoin(Expert.domain).order_by(Expert.created_at, Expert.id)
    rows = [*session.execute(statement).tuples()]
    rows += [(row.name, None, row.colour_number, row.mark, row.job_id) for row in bare_seeds(session)]
    return [
        ExpertLook(name=name, domain=domain or "", colour_number=number, mark=mark, job_id=job_id)
        for name, domain, number, mark, job_id in rows
    ]


def get_expert(session: Session, name: str) -> ExpertCard:
    """One expert."""
    row = expert_row(session, name)
    return _cards(session, [row])[0].model_copy(update={"reproducible_from": reproducible_from(session, row)})


def expert_row(session: Session, name: str) -> Expert:
    """The row of an expert; raises NotFoundError with the existing names."""
    return by_name(session, Expert, name)


def find_expert(session: Session, id: str) -> Expert | None:
    """The expert with this id, which a seed model as it is has of the seed model; None if there is none any more."""
    row, seed = session.get(Expert, id), session.get(SeedModel, id)
    return find_row(session, Expert, SEED + seed.name) if row is None and seed is not None else row


def expert_with_id(session: Session, id: str) -> Expert:
    """The expert with this id, as `find_expert` finds it. Raises NotFoundError."""
    if (row := find_expert(session, id)) is None:
        raise NotFoundError("expert", id)
    return row


def domains_of(row: Expert) -> list[str]:
    """The names of the domains that trained an expert."""
    return [row.domain.name] if row.domain else list(row.config.get("domains", ()))


def part_names(row: Expert) -> list[str]:
    """The names of an expert's parts; empty for experts without parts."""
    return [part["name"] for part in row.config.get("parts", ())]


def has_parts(row: Expert | ExpertCard) -> bool:
    """Whether the expert has parts that can be composed and switched."""
    return method_of(row.method).has_parts


def first_of_line(row: Expert) -> Expert:
    """The first expert of a line of copies: the oldest ancestor, or the expert itself."""
    return [row, *ancestors(row)][-1]


def register_expert(session: Session, *, name: str, domain_id: str | None, **columns: Any) -> ExpertCard:
    """Registers a new expert whose files are stored already; `columns` are the others of `Expert`.

    Related rows are given by id: names may have changed.
    """
    ensure_free(session, Expert, name)
    if domain_id is not None and session.get(Domain, domain_id) is None:
        raise NotFoundError("domain", domain_id, session.scalars(select(Domain.name)))
    colour_number, mark = choose_look(session, name)
    row = Expert(name=name, domain_id=domain_id, colour_number=colour_number, mark=mark, **columns)
    session.add(row)
    session.flush()
    return _cards(session, [row])[0]


def set_enabled(session: Session, names: Iterable[str], enabled: bool) -> list[ExpertCard]:
    """Enables or disables experts everywhere: all that are named, or none if one is unknown."""
    rows = [expert_row(session, name) for name in names]
    for row in rows:
        row.enabled = enabled
    return _cards(session, rows)


def describe(session: Session, name: str, *, notes: str | None = None, tags: Sequence[str] | None = None) -> ExpertCard:
    """Writes notes or tags; None leaves them unchanged."""
    row = expert_row(session, name)
    if notes is not None:
        row.notes = plain(notes)
    if tags is not None:
        row.tags = sorted({plain(tag).strip() for tag in tags} - {""})
    return _cards(session, [row])[0]


def rename(session: Session, name: str, new_name: str) -> ExpertCard:
    """Renames an expert. Its files and all references to it do not change.

    Raises InUseError while an unfinished job names it, BadSpecError for a seed model as it is.
    """
    row = expert_row(session, name)
    _refuse_bare_seed(row)
    new_name = clean_name("expert", new_name)
    if new_name != name:
        ensure_free(session, Expert, new_name)
        refuse_renaming("expert", name, _jobs(session, row))
        row.name = new_name
    session.flush()
    return _cards(session, [row])[0]


def delete_expert(session: Session, name: str) -> None:
    """Deletes an expert with its scores, and its base if no other expert uses it and it is not a seed.

    Raises InUseError if another expert or a seed is its copy, an average uses it, or a mixture, an alias or a job needs
    it, BadSpecError for a seed model as it is. A composition needs none of its source experts: it has its own copies,
    and keeps their names.
    """
    row = expert_row(session, name)
    _refuse_bare_seed(row)
    refuse_if_used("expert", name, users_of(session, name))
    forget_scores(session, Evaluation.expert_id == row.id)
    forget_made_from(session, row.id)
    for composed in experts_made_of(session, row, COMPOSED):
        composed.parent = None if composed.parent is row else composed.parent
    base, artifact = row.base, row.artifact
    session.delete(row)
    session.flush()
    if artifact is not base:
        session.delete(artifact)
    others = select(func.count()).where(or_(Expert.base_id == base.id, Expert.artifact_id == base.id))
    is_seed = session.scalar(select(SeedModel.id).where(SeedModel.artifact_id == base.id)) is not None
    if base is not artifact and not is_seed and not session.scalar(others):
        session.delete(base)


def _refuse_bare_seed(row: Expert) -> None:
    if method_of(row.method).is_seed and row.seed is not None:
        command = shell_command("seed", "delete", row.seed.name)
        raise BadSpecError(
            [f"“{row.name}” is the seed model “{row.seed.name}” as it is, not an expert that was trained."],
            f"It has the seed model's name, and is deleted with it: `{command}`.",
        )


def users_of(session: Session, name: str) -> dict[str, list[str]]:
    """The names of what prevents an expert's deletion, by sort; lists may be empty."""
    row = expert_row(session, name)
    with_parts = [method.name for method in methods().values() if method.has_parts]  # they hold their own copies
    return {
        "expert": [
            *session.scalars(select(Expert.name).where(Expert.parent_id == row.id, Expert.method.not_in(with_parts))),
            *(one.name for one in experts_made_of(session, row, AVERAGED)),
        ],
        "seed model": [seed.name for seed, expert in copied_experts(session) if expert is row],
        "mixture": _mixtures(session, [row.id])[row.id],
        "alias": aliases_of(session, row),
        "job": _jobs(session, row),
    }


def _jobs(session: Session, row: Expert) -> list[str]:
    return unfinished_jobs(session, ["parent", "expert", "experts"], [row.name])


def lineage(session: Session, name: str) -> dict[str, list[dict[str, str]]]:
    """The lineage seed -> parents -> expert -> children and mixtures. A composition or average has all its sources.

    A seed that is a copy of an expert descends from that expert.
    `nodes` are {id, kind, name} with kind seed, expert or mixture; `edges` are {source, target}, both ids.
    """
    row = expert_row(session, name)
    nodes, edges = _before(session, row)
    joined = select(Mixture).join(MixtureMember).where(MixtureMember.expert_id == row.id).order_by(Mixture.name)
    children = select(Expert).where(Expert.parent_id == row.id).order_by(Expert.name)
    later_ones = dict.fromkeys(
        [*session.scalars(children), *experts_made_of(session, row, AVERAGED), *experts_made_of(session, row, COMPOSED)]
    )
    copies = [seed for seed, expert in copied_experts(session) if expert is row]
    for kind, later in (("expert", later_ones), ("seed", copies), ("mixture", session.scalars(joined).all())):
        for row_after in later:
            nodes.append(_node(row_after, kind))
            edges.append(_edge(row, row_after))
    return {"nodes": nodes, "edges": edges}


def _before(session: Session, row: Expert) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Nodes and edges of an expert's origins, each once; the expert itself is the last node."""
    parents = parents_of(session, row)
    sources: list[Expert | SeedModel] = [*parents] if parents or row.seed is None else [row.seed]
    nodes, edges = dict[str, dict[str, str]](), list[dict[str, str]]()
    for source in sources:
        if isinstance(source, Expert):
            older, between = _before(session, source)
        elif (copied := copied_expert(session, source)) is not None:
            older, between = [_node(copied, "expert"), _node(source, "seed")], [_edge(copied, source)]
        else:
            older, between = [_node(source, "seed")], []
        nodes |= {node["id"]: node for node in older}
        edges += [edge for edge in [*between, _edge(source, row)] if edge not in edges]
    return [*nodes.values(), _node(row, "expert")], edges


def parents_of(session: Session, row: Expert) -> list[Expert]:
    """The existing experts that it is a copy, an average or a composition of."""
    return list(dict.fromkeys([*([row.parent] if row.parent else []), *source_experts(session, row)]))


def ancestors(row: Expert) -> list[Expert]:
    """The experts that it descends from, its parent first."""
    rows: list[Expert] = []
    while (parent := (rows[-1] if rows else row).parent) is not None:
        rows.append(parent)
    return rows


IMPORTED = "imported"  # in the config of an expert that was not trained here: its source
AVERAGED, COMPOSED = "averaged", "composed_of"  # in the config of an expert: the experts that it was made of


def parts_of(row: Expert, fields: Sequence[str] = (AVERAGED, COMPOSED)) -> list[str]:
    """The ids of the experts that an average or a composition was made of."""
    return [part["id"] for field in fields for part in row.config.get(field, ())]


def source_experts(session: Session, row: Expert, fields: Sequence[str] = (AVERAGED, COMPOSED)) -> list[Expert]:
    """The existing experts that an average or a composition was made of."""
    parts = (session.get(Expert, id) for id in parts_of(row, fields))
    return [part for part in parts if part is not None]


def experts_made_of(session: Session, row: Expert, field: str) -> list[Expert]:
    """The averages, or the compositions, that were made of an expert."""
    named = cast(Expert.config, String).contains(row.id)  # so that not every expert is read
    rows = session.scalars(select(Expert).where(named).order_by(Expert.name))
    return [one for one in rows if any(part["id"] == row.id for part in one.config.get(field, ()))]


def origins(session: Session, row: Expert) -> list[Expert]:
    """All experts that it descends from as a copy, an average or a composition, or through its seed."""
    result = ancestors(row)
    for expert in [row, *result]:
        copied = copied_expert(session, expert.seed)
        for part in [*source_experts(session, expert), *([copied] if copied else [])]:
            result += [part, *origins(session, part)]
    return list(dict.fromkeys(result))


def _node(row: Any, kind: str) -> dict[str, str]:
    return {"id": row.id, "kind": kind, "name": row.name}


def _edge(source: Any, target: Any) -> dict[str, str]:
    return {"source": source.id, "target": target.id}


def _mixtures(session: Session, expert_ids: Sequence[str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {id: [] for id in expert_ids}
    statement = select(MixtureMember.expert_id, Mixture.name).join(Mixture).order_by(Mixture.name)
    for id, name in session.execute(statement.where(MixtureMember.expert_id.in_(expert_ids))):
        names[id].append(name)
    return names


def _cards(session: Session, rows: Sequence[Expert]) -> list[ExpertCard]:
    mixtures, changed = _mixtures(session, [row.id for row in rows]), changed_domains(session)
    return [_card(row, parents_of(session, row), mixtures[row.id], row.domain_id in changed) for row in rows]


def changed_domains(session: Session) -> set[str]:
    """Ids of the domains whose clusters were deleted or hold other documents now."""
    same = select(Cluster.domain_id).where(Cluster.domain_id.is_not(None), ~Cluster.stale)
    made = select(Domain.id).join(Corpus).where(Corpus.clustering_id.is_not(None))
    return set(session.scalars(made.where(Domain.id.not_in(same))))


def parameters_of(row: Expert) -> Parameters | None:
    """The parameters of an expert with its base; None where its seed model is not known."""
    if row.seed is None:
        return None
    method, origin = method_of(row.method), first_of_line(row)
    if method.in_place_of_base and method_of(origin.method).in_place_of_base:
        method = method_of(origin.method)  # a copy of a mixture of experts is one itself
    stored = StoredExpert(row.num_parameters, origin.config)
    return method.parameters(row.seed.num_parameters, row.seed.config, stored)


def _card(row: Expert, parents: Sequence[Expert], mixtures: list[str], stale: bool) -> ExpertCard:
    parameters = parameters_of(row)
    return ExpertCard.from_fields(
        row,
        domain=row.domain.name if row.domain else "",
        domains=domains_of(row),
        parts=part_names(row),
        seed=row.seed.name if row.seed else None,
        parent=row.parent.name if row.parent else None,
        parents=[parent.name for parent in parents],
        sha256=row.artifact.sha256,
        size_bytes=row.artifact.size_bytes,
        total_parameters=parameters.total if parameters else None,
        active_parameters=parameters.active if parameters else None,
        mixtures=mixtures,
        stale=stale,
    )


class HasTokenizer(Protocol):
    """An expert's row, or the plan of a model."""

    @property
    def tokenizer_sha256(self) -> str: ...


Model = TypeVar("Model", bound=HasTokenizer)


def with_another_tokenizer(first: HasTokenizer, others: Iterable[Model]) -> list[Model]:
    """The experts that do not share the tokenizer of the first."""
    return [one for one in others if one.tokenizer_sha256 != first.tokenizer_sha256]


def tokens_key(domain_id: str, tokenizer_sha256: str) -> str:
    """The key of the artifact with a domain's tokens."""
    return f"tokens:{domain_id}:{tokenizer_sha256}"


def chat_tokens_key(
    domain_id: str, tokenizer_sha256: str, template_sha256: str, block_size: int, mask_rule: int
) -> str:
    """The same of a domain of conversations: they are shown by a template, masked, and packed for one block size."""
    key = f"{tokens_key(domain_id, tokenizer_sha256)}:{template_sha256}:{block_size}"
    return key if mask_rule == 1 else f"{key}:masks-{mask_rule}"  # the first rule had no number
