"""Whether a wish can be granted, said at once: names that are taken, names that nobody knows.

What unfinished jobs will make counts as made, so that a whole chain of jobs can be asked for in one go.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.errors import BadSpec, NameTaken, NotFound
from workbench.specs import (
    CertifyAddition,
    CertifyRemoval,
    Evaluate,
    ImportCorpus,
    MakeSeed,
    MeasureOverlap,
    Spec,
    TrainDemix,
    TrainExpert,
    parse_spec,
)
from workbench.tables import Corpus, Domain, Expert, Job, Mixture, SeedModel

Thing = tuple[str, str]  # what, name
TABLES: dict[str, type[Corpus] | type[Domain] | type[SeedModel] | type[Expert] | type[Mixture]] = {
    "corpus": Corpus,
    "domain": Domain,
    "seed model": SeedModel,
    "expert": Expert,
    "mixture": Mixture,
}


def refuse_impossible(session: Session, spec: Spec) -> None:
    """Raises BadSpec with every name that is taken or unknown."""
    unfinished = [parse_spec(job.spec) for job in _unfinished(session)]
    coming = {thing for one in unfinished for thing in made_by(one)}
    complaints = [
        NameTaken(*thing).problem for thing in sorted(made_by(spec)) if thing in coming or _exists(session, thing)
    ]
    any_domain = any(isinstance(one, ImportCorpus) and one.domain_field for one in unfinished)
    for what, name in dict.fromkeys(needed_by(spec)):
        if (what, name) in coming or (what == "domain" and any_domain) or _exists(session, (what, name)):
            continue
        complaints.append(str(NotFound(what, name, _known(session, what, coming))))
    if complaints:
        raise BadSpec(complaints)


def is_there(session: Session, thing: Thing) -> bool:
    """Whether a thing is in the registry, or will be once the unfinished jobs are done."""
    return _exists(session, thing) or any(thing in made_by(parse_spec(job.spec)) for job in _unfinished(session))


def made_by(spec: Spec) -> set[Thing]:
    """What a wish will put into the registry, as far as its names are known before the work."""
    match spec:
        case ImportCorpus():
            return {("corpus", spec.name)} | (set() if spec.domain_field else {("domain", spec.name)})
        case MakeSeed():
            return {("seed model", spec.name)}
        case TrainDemix():
            return {("mixture", spec.name), *(("expert", name) for name in spec.experts)}
        case TrainExpert():
            return {("expert", spec.expert)} | ({("mixture", spec.name)} if spec.whole else set())
    return set()


def needed_by(spec: Spec) -> list[Thing]:
    """What a wish takes from the registry."""
    match spec:
        case MakeSeed():
            return [("domain", name) for name in spec.domains]
        case TrainDemix():
            return [("seed model", spec.seed_model), *(("domain", name) for name in spec.domains)]
        case TrainExpert():
            parent = [("expert", spec.parent)] if spec.parent else []
            watched = [("domain", name) for name in spec.watch]
            return [("domain", spec.domain), ("mixture", spec.mixture), *parent, *watched]
        case Evaluate():
            experts = [("expert", name) for name in spec.experts]
            return [("mixture", spec.mixture), *experts, *(("domain", name) for name in spec.domains)]
        case CertifyAddition():
            return [("expert", spec.expert), ("mixture", spec.mixture)]
        case CertifyRemoval():
            retrained = [("mixture", spec.retrained)] if spec.retrained else []
            return [("expert", spec.expert), ("mixture", spec.mixture), *retrained]
        case MeasureOverlap():
            return [("domain", name) for name in spec.domains]
    return []


def _unfinished(session: Session) -> Iterable[Job]:
    return session.scalars(select(Job).where(Job.state.in_(["queued", "running", "paused"])))


def _exists(session: Session, thing: Thing) -> bool:
    table = TABLES[thing[0]]
    return session.scalar(select(table.id).where(table.name == thing[1])) is not None


def _known(session: Session, what: str, coming: Iterable[Thing]) -> list[str]:
    table = TABLES[what]
    names = session.scalars(select(table.name).order_by(table.name).limit(20)).all()
    return [*names, *(name for kind, name in coming if kind == what)]
