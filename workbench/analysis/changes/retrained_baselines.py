"""What trained an expert, by the registry's records: the baseline –Domain (DEMix table 7), and what a removal leaves.

A domain is identified by its id and its text, not by its name: the same text may have been imported twice, and the name
may belong to another text now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from engine.methods.registry import method_of
from workbench.errors import BadSpecError
from workbench.kinds.kind import kind_named, parse_spec
from workbench.registry.experts import AVERAGED, ancestors, expert_row, origins, source_experts
from workbench.registry.mixtures import MEMBERS, mixture_row, taking_part
from workbench.registry.seeds import copied_expert
from workbench.schema.job_tables import Job
from workbench.schema.tables import Domain, Expert, Mixture

# In an expert's config: the texts that trained it, and those that trained its base.
OWN, OF_BASE = "sources", "base_sources"


@dataclass(frozen=True)
class Retrained:
    """A mixture whose experts, bases and ancestors were not trained on a domain, with its active experts."""

    mixture: str
    experts: tuple[Expert, ...]


@dataclass(frozen=True)
class TrainingText:
    """A training text with its name at that time; without an id the text is unknown."""

    name: str = ""
    id: str = ""
    data_sha256: str = ""
    corpus_id: str = ""
    place: str = ""  # that it was imported from

    @classmethod
    def of(cls, row: Domain) -> TrainingText:
        """The text of a domain."""
        return cls(row.name, row.id, row.data_sha256, row.corpus_id, row.corpus.source)

    def same_as(self, domain: Domain) -> str:
        """A phrase that says how it is a domain's text; empty if it is not.

        Two imports from one place count as one text, since either may have read less of it.
        """
        if not self.id:
            return ""
        if self.id == domain.id:
            return f", as “{self.name}”"
        if self.data_sha256 == domain.data_sha256:
            return f", as “{self.name}”: the same text"
        if self.corpus_id != domain.corpus_id and self.place == domain.corpus.source:
            return f", as “{self.name}”: text of the same source"
        return ""


def sources_of(session: Session, domain_ids: Iterable[str]) -> list[TrainingText]:
    """The texts of these domains; an unknown one for each domain that is gone."""
    rows = (session.get(Domain, id) for id in domain_ids)
    return [TrainingText.of(row) if row else TrainingText() for row in rows]


def name_now(session: Session, expert: Expert, name: str) -> str:
    """The current name of a domain that had this name when it trained an expert."""
    if expert.domain is not None:
        return expert.domain.name
    ids = [source.id for source in _own(session, expert) if source.name == name]
    row = session.get(Domain, ids[0]) if ids and ids[0] else None
    return row.name if row else name


def retrained_without(session: Session, mixture: str, removed: Expert) -> Retrained:
    """The mixture as a baseline without an expert's domain; raises MixtureError if it is not one."""
    experts = taking_part(mixture_row(session, mixture))
    if objection := _objection(session, experts, removed):
        raise MixtureError(
            f"“{mixture}” is not a baseline without the domain of “{removed.name}”: {objection}.",
            "Train a mixture on the other domains, from a seed with the same tokenizer: workbench train joint.",
        )
    return Retrained(mixture, experts)


def candidates(session: Session, expert: str) -> list[str]:
    """The mixtures that can be the baseline –Domain when an expert is removed."""
    removed = expert_row(session, expert)
    rows = session.scalars(select(Mixture).options(MEMBERS).order_by(Mixture.name))
    return [row.name for row in rows if not _objection(session, taking_part(row), removed)]


def _objection(session: Session, experts: Iterable[Expert], removed: Expert) -> str:
    """The reason why experts cannot be the baseline –Domain; empty if they can."""
    if not experts:
        return "none of its experts is active"
    if removed.domain is None:
        return f"“{removed.name}” was trained on several domains"
    for expert in experts:
        if expert.tokenizer_sha256 != removed.tokenizer_sha256:
            return f"“{expert.name}” has another tokenizer, so perplexities per token are not comparable"
        if name := seen_as(session, expert, removed.domain):
            return f"“{expert.name}” or what it was trained from has seen it{name}"
        if reason := unknown_text(session, expert):
            return f"it is not known whether “{expert.name}” or what it was trained from has seen it: {reason}"
    return ""


def seen_as(session: Session, expert: Expert, domain: Domain, *, with_bases: bool = True) -> str:
    """The name under which an expert, its base or an ancestor was trained on a domain's text; empty if none was.

    Without bases only the experts' own training texts count.
    """
    if any(one.data_sha256 == domain.data_sha256 for one in (expert, *origins(session, expert))):
        return ": the same text"
    return _first(source.same_as(domain) for source in _all(session, expert, with_bases))


def unknown_text(session: Session, expert: Expert, *, with_bases: bool = True) -> str:
    """The reason why an unrecorded text may have trained an expert, its base or an ancestor; empty if all are known."""
    return _first(_not_known(source) for source in _all(session, expert, with_bases))


def base_seen_as(session: Session, expert: Expert, domain: Domain) -> str:
    """As `seen`, for an expert's base only, with everything that the base was made of."""
    beneath = _first(seen_as(session, part, domain) for part in _beneath(session, expert))
    return beneath or _first(source.same_as(domain) for source in _of_bases(session, expert))


def unknown_text_of_base(session: Session, expert: Expert) -> str:
    """As `unknown`, for an expert's base only."""
    beneath = _first(unknown_text(session, part) for part in _beneath(session, expert))
    return beneath or _first(_not_known(source) for source in _of_bases(session, expert))


def _first(reasons: Iterable[str]) -> str:
    return next(filter(None, reasons), "")


def _not_known(source: TrainingText) -> str:
    if source.id:
        return ""
    return f"which text “{source.name}” was is not recorded" if source.name else "which text trained it is not recorded"


def _all(session: Session, expert: Expert, with_bases: bool) -> Iterator[TrainingText]:
    """The training texts of an expert and its origins; without bases only the experts' own."""
    for origin in (expert, *origins(session, expert)):
        yield from _own(session, origin)
        if with_bases:
            yield from _of_base(session, origin)
        yield from _of_lost_copy(session, origin)


def _of_bases(session: Session, expert: Expert) -> Iterator[TrainingText]:
    """The training texts of an expert's base, which is the parent's or a further trained copy of it."""
    for origin in (expert, *ancestors(expert)):
        yield from _of_base(session, origin)
        yield from _of_lost_copy(session, origin)


def _beneath(session: Session, expert: Expert) -> Iterator[Expert]:
    """The experts that the base was made of: those of an average, and the one that its seed is a copy of."""
    for origin in (expert, *ancestors(expert)):
        yield from source_experts(session, origin, [AVERAGED])
        if (copied := copied_expert(session, origin.seed)) is not None:
            yield copied


def _of_lost_copy(session: Session, expert: Expert) -> list[TrainingText]:
    """An unknown text if the seed is a copy of an expert that is no longer known."""
    seed = expert.seed
    is_copy = seed is not None and seed.source.startswith("expert:")
    return [TrainingText()] if is_copy and copied_expert(session, seed) is None else []


def _own(session: Session, expert: Expert) -> list[TrainingText]:
    if kept := expert.config.get(OWN):
        return [TrainingText(**one) for one in kept]
    if expert.domain is not None:
        return [TrainingText.of(expert.domain)]
    return [_text_named(session, name, expert.created_at) for name in expert.config.get("domains", ())] or [
        TrainingText()
    ]


def _of_base(session: Session, expert: Expert) -> list[TrainingText]:
    """The training texts of an expert's base; none if the base is an unchanged seed."""
    if expert.base.kind == "seed":
        return []
    job = session.get(Job, expert.base.job_id) if expert.base.job_id else None
    with suppress(BadSpecError):  # of a kind that is not installed
        if job and any(what == "seed model" for what, _ in kind_named(job.kind).creates(parse_spec(job.spec))):
            return []  # its domains trained a tokenizer
    on_it = session.scalars(select(Expert).where(Expert.base_id == expert.base_id).order_by(Expert.name)).all()
    if kept := next((one.config[OF_BASE] for one in on_it if one.config.get(OF_BASE)), None):
        return [TrainingText(**one) for one in kept]
    return _of_older_base(session, on_it, job)


def _of_older_base(session: Session, on_it: Sequence[Expert], job: Job | None) -> list[TrainingText]:
    """The training texts of a base of the previous version, from the experts trained with it and the job's names.

    Names count only if the experts do not cover all: a name may belong to another text now.
    """
    if job is None:
        took_all = [one for one in on_it if one.config.get("full_model") or method_of(one.method).only_expert]
        sources = [source for one in took_all for source in _own(session, one)]
        return sources or [TrainingText()]
    together = [one for one in on_it if one.job_id == job.id or (one.job_id is None and one.parent_id is None)]
    sources = list(dict.fromkeys(source for one in together for source in _own(session, one)))
    names = [name for name in (*job.spec.get("domains", ()), job.spec.get("domain")) if name]
    if len({source.id for source in sources if source.id}) < len(names):
        sources += [_text_named(session, name, job.finished_at) for name in names]
    return sources or [TrainingText()]


def _text_named(session: Session, name: str, at: float | None) -> TrainingText:
    """The text that had a name at a time; unknown if the domain was deleted, renamed or made later."""
    row = session.scalar(select(Domain).where(Domain.name == name))
    if row is None or (at is not None and row.created_at > at):
        return TrainingText(name)
    return TrainingText.of(row)


_MADE_HERE = ("fresh", "expert:")  # of sources of seed models: what they read is recorded


def what_stays(session: Session, mixture: str, removed: Expert) -> str:
    """Sentences that say whether the rest of a mixture was trained on the removed expert's domain.

    Empty for an expert of several domains: a removal concerns one domain.
    """
    if removed.domain is None:
        return ""
    remaining = [member.expert for member in mixture_row(session, mixture).members if member.expert is not removed]
    if any(one.base_id == removed.base_id for one in remaining):
        sentence = _base_sentence(session, removed, removed.domain)
    else:
        nothing_shared = "No other expert of the mixture shares a parameter with this one: its full model is removed."
        sentence = " ".join([nothing_shared, *_before_import(session, remaining)])
    return " ".join([sentence, *_expert_sentences(session, removed, removed.domain, remaining)])


def _base_sentence(session: Session, removed: Expert, domain: Domain) -> str:
    method = method_of(removed.method)
    if base_seen_as(session, removed, domain):
        return (
            f"Removing this expert is not unlearning: {method.shared_words} was also trained on “{domain.name}” and "
            "stays unchanged."
        )
    if why := unknown_text_of_base(session, removed):
        return f"It is not known whether removing this expert is unlearning: {method.shared_words} stays, and {why}."
    sentence = (
        f"All that this expert learned on “{domain.name}” is removed with its {method.expert_words}: "
        f"{method.shared_words} was frozen, and no training of it on “{domain.name}” is recorded."
    )
    return " ".join([sentence, *_before_import(session, [removed])])


def _before_import(session: Session, experts: Iterable[Expert]) -> list[str]:
    seeds = [one.seed for expert in experts for one in (expert, *origins(session, expert)) if one.seed is not None]
    names = dict.fromkeys(seed.name for seed in seeds if not seed.source.startswith(_MADE_HERE))
    return [f"What “{name}” had read before it was imported is not recorded." for name in names]


def _expert_sentences(session: Session, removed: Expert, domain: Domain, remaining: Sequence[Expert]) -> list[str]:
    knowing, perhaps = list[str](), list[str]()
    for other in remaining:
        with_bases = other.base_id != removed.base_id
        if seen_as(session, other, domain, with_bases=with_bases):
            knowing.append(f"“{other.name}”")
        elif unknown_text(session, other, with_bases=with_bases):
            perhaps.append(f"“{other.name}”")
    names_by_text = {
        f"Remaining experts trained on “{domain.name}”, or started from one that was:": knowing,
        f"Remaining experts that may have been trained on “{domain.name}”:": perhaps,
    }
    return [f"{words} {', '.join(names)}." for words, names in names_by_text.items() if names]
