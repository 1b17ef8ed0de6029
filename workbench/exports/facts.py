"""What the registry knows of a model that leaves the workbench, read in one short transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.methods.registry import method_of
from engine.text.dataset_source import DatasetSource
from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import num_counted_tokens, perplexity
from workbench.registry.experts import IMPORTED, domains_of, expert_row, parameters_of
from workbench.registry.reports import list_reports
from workbench.registry.reproducible import reproducible_from
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.specs.base import hub_origin
from workbench.store.storage import Storage

_DATASET = "data set "  # begins the source of a corpus that was downloaded
_NO_OPTIONS = ("domains", "full_model", IMPORTED)  # of an expert's config: named elsewhere, or a path of this machine


@dataclass(frozen=True)
class DomainFacts:
    """A domain that trained the model. `dataset` is its name on the hub; empty: not from there."""

    name: str
    num_documents: int
    num_words: int
    num_bytes: int
    licence: str
    dataset: str


@dataclass(frozen=True)
class Score:
    """A perplexity on held-out text."""

    domain: str
    split: HeldOutSplit
    num_tokens: int
    perplexity: float


@dataclass(frozen=True)
class ExpertFacts:
    """An expert with its provenance. `seed_on_hub` is the seed's name on the hub; empty: not from there."""

    name: str
    method: str
    method_title: str
    paper: str
    seed: str
    seed_on_hub: str
    parent: str
    num_parameters: int  # its own, without its base
    domains: tuple[DomainFacts, ...]
    unknown_domains: tuple[str, ...]  # whose rows are deleted
    options: tuple[tuple[str, str], ...]
    scores: tuple[Score, ...]
    certificates: tuple[str, ...]
    code_version: str
    reproducible_from: str = ""  # empty: not recorded
    total_parameters: int | None = None  # with its base; None where its seed model is not known
    is_seed: bool = False  # a seed model as an expert
    is_imported: bool = False  # it was trained elsewhere

    @property
    def base_model(self) -> str:
        """The address at which PEFT looks for the seed model: the hub, else a folder of its name where it runs.

        It begins with `./`, so that it is never taken for somebody's repository on the hub.
        """
        return self.seed_on_hub or f"./{re.sub(r'[^A-Za-z0-9_-]+', '-', self.seed).strip('-') or 'seed'}"


def expert_facts(session: Session, row: Expert) -> ExpertFacts:
    """The facts about an expert."""
    method, names = method_of(row.method), domains_of(row)
    rows = session.scalars(select(Domain).where(Domain.name.in_(names)).order_by(Domain.name)).all()
    is_older = MASK_RULE not in row.config and is_of_first_rule(session, row)  # than the written rule of masks
    return ExpertFacts(
        name=row.name,
        method=row.method,
        method_title=method.title,
        paper=method.paper,
        seed=row.seed.name if row.seed else "",
        seed_on_hub=hub_origin(row.seed.source if row.seed else "")[0],
        parent=row.parent.name if row.parent else "",
        num_parameters=row.num_parameters,
        domains=tuple(_domain(one) for one in rows),
        unknown_domains=tuple(sorted(set(names) - {one.name for one in rows})),
        options=(*_options(row.config), *([(MASK_RULE, "1")] if is_older else ())),
        scores=tuple(_scores(session, row)),
        certificates=tuple(
            str(report.findings["sentence"])
            for report in reversed(list_reports(session, about_id=row.id))
            if report.findings.get("sentence")
        ),
        code_version=row.code_version,
        is_seed=method.is_seed,
        is_imported=IMPORTED in row.config,
        reproducible_from=reproducible_from(session, row),
        total_parameters=parameters.total if (parameters := parameters_of(row)) else None,
    )


def _domain(row: Domain) -> DomainFacts:
    source = row.corpus.source
    name = source.removeprefix(_DATASET).partition(",")[0] if source.startswith(_DATASET) else ""
    dataset = DatasetSource.parse(name).dataset
    return DomainFacts(row.name, row.num_documents, row.num_words, row.num_bytes, row.corpus.licence, dataset)


def _options(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values of the training's options; lists of texts and experts are not options."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _options(value, f"{prefix}{name}.")
        elif value is not None and name not in _NO_OPTIONS:
            is_list_of_rows = isinstance(value, Sequence) and any(isinstance(one, Mapping) for one in value)
            if not is_list_of_rows:
                yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def _scores(session: Session, row: Expert) -> Iterator[Score]:
    """The newest perplexity on each split of each domain."""
    query = select(Evaluation).where(Evaluation.expert_id == row.id).order_by(Evaluation.created_at)
    newest = {(scored.domain.name, scored.split): scored for scored in session.scalars(query) if scored.num_tokens}
    for (domain, split), scored in sorted(newest.items()):
        yield Score(domain, split, num_counted_tokens(scored), perplexity(scored))


MASK_RULE = "mask_rule"  # in an expert's config: the rule of its training on conversations
OLD_MASKS = (
    "Its answers were masked by the first rule, which differs for this chat template: ends of answers were left out of "
    "the loss, or words of users were in it. Train it again to have it by the present rule."
)


def is_of_first_rule(session: Session, row: Expert) -> bool:
    """Whether it was trained on conversations before the rule was written down."""
    if MASK_RULE in row.config or "num_steps" not in row.config:
        return row.config.get(MASK_RULE) == 1
    formats = session.scalars(select(Domain.format).where(Domain.name.in_(domains_of(row))))
    return "chat" in set(formats)


def old_masks(session: Session, storage: Storage, name: str) -> str:
    """What an expert's card says where the first rule masked otherwise than the present one; else empty."""
    from engine.errors import EngineError
    from engine.text.chat.template import load_chat_template, template_folder
    from engine.text.tokenizer import load_tokenizer

    row = expert_row(session, name)
    if not is_of_first_rule(session, row):
        return ""
    try:
        base = storage.path(row.base_id)
        template = load_chat_template(template_folder(base, storage.path(row.artifact_id)))
        is_other = template is not None and template.masks_changed(load_tokenizer(base))
    except EngineError:  # of files that are gone nothing can be said
        return ""
    return OLD_MASKS if is_other else ""
