"""Whether a wish can be granted, said at once: names that are taken, names that nobody knows, paths to nothing.

What unfinished jobs will make counts as made, so that a whole chain of jobs can be asked for in one go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.text.streams import printable
from workbench.analysis.mode_parts import mode_complaints
from workbench.classify_specs import Classify
from workbench.cluster_specs import (
    ClusterPart,
    FindClusters,
    MakeClusterDomains,
    MakeDomain,
    MergeClusters,
    PinDocuments,
    SplitCluster,
)
from workbench.corpus_specs import ImportCorpus
from workbench.errors import BadSpec, NameTaken, NotFound
from workbench.mode_specs import ComposeMode, TrainMode
from workbench.registry.experts import can_be_parent
from workbench.registry.names import not_a_cli_name
from workbench.registry.tables import Clustering, Corpus, Domain, Expert, Job, Mixture, Prior, SeedModel
from workbench.spec_base import Spec
from workbench.specs import CertifyRemoval, Evaluate, MakeMixture, MeasureOverlap, parse_spec
from workbench.training_specs import AverageExperts, CertifyAddition, MakeSeed, TrainDemix, TrainExpert

Thing = tuple[str, str]  # what, name
Named = type[Corpus] | type[Domain] | type[SeedModel] | type[Expert] | type[Mixture] | type[Clustering] | type[Prior]
TABLES: dict[str, Named] = {
    "corpus": Corpus,
    "domain": Domain,
    "seed model": SeedModel,
    "expert": Expert,
    "mixture": Mixture,
    "clustering": Clustering,
    "prior": Prior,
}


def validate_against_registry(session: Session, spec: Spec) -> None:
    """Raises BadSpec with every name that is taken, unknown or not to be said in a command, and a path to nothing."""
    RegistryForecast(session).validate(spec)


class RegistryForecast:
    """What is in the registry, and what its unfinished jobs will put there: read once, for many wishes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._coming: set[Thing] = set()
        self._any_domain = False
        for job in session.scalars(select(Job).where(Job.state.in_(["queued", "running", "paused"]))):
            self.expect(parse_spec(job.spec))

    def expect(self, spec: Spec) -> None:
        """Counts what this wish will make as coming, too."""
        self._coming |= creates(spec)
        self._any_domain |= _makes_any_domain(spec)

    def holds(self, thing: Thing) -> bool:
        """Whether a thing is in the registry, or will be once the unfinished jobs are done."""
        return thing in self._coming or _exists(self._session, thing)

    def validate(self, spec: Spec) -> None:
        """Raises BadSpec with all that the function of this name complains of."""
        taken = [] if _may_replace(spec) else [thing for thing in sorted(creates(spec)) if self.holds(thing)]
        complaints = [NameTaken(*thing).problem for thing in taken]
        if made := sorted((one for one in creates(spec) if not_a_cli_name(*one)), key=lambda one: len(one[1])):
            complaints.append(not_a_cli_name(*made[0]))  # the names of the others begin with it
        for what, name in dict.fromkeys(requires(spec)):
            if not self.holds((what, name)) and not (what == "domain" and self._any_domain):
                complaints.append(str(NotFound(what, name, _known(self._session, what, self._coming))))
        if (path := reads(spec)) and not os.path.exists(path):
            complaints.append(f"The path must be a file or a folder, but there is none at {printable(path)}.")
        if not complaints and isinstance(spec, TrainMode | ComposeMode):
            complaints = mode_complaints(self._session, spec)
        if not complaints and isinstance(spec, TrainExpert):
            complaints = _no_parent(self._session, spec)
        if complaints:
            raise BadSpec(complaints)


def _no_parent(session: Session, spec: TrainExpert) -> list[str]:
    """That there is nobody whose copy could be trained, as far as the registry knows the mixture."""
    mixture = session.scalar(select(Mixture).where(Mixture.name == spec.mixture))
    if mixture is None or any(can_be_parent(member.expert) for member in mixture.members):
        return []
    told = f"“{spec.mixture}” must hold an expert whose copy can be trained, but its experts are all of MoDE: "
    return [f"{told}train another beside the same seed, with `workbench train mode`."]


def _may_replace(spec: Spec) -> bool:
    return isinstance(spec, MakeMixture) and spec.replace


def _makes_any_domain(spec: Spec) -> bool:
    """Whether a wish makes domains whose names are not known before the work."""
    return isinstance(spec, MakeClusterDomains) or (isinstance(spec, ImportCorpus) and bool(spec.domain_field))


def creates(spec: Spec) -> set[Thing]:
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
        case MakeMixture():
            return {("mixture", spec.name)}
        case FindClusters():
            return {("clustering", spec.name)}
        case MakeDomain():
            return {("corpus", spec.name), ("domain", spec.name)}
        case MakeClusterDomains():
            return {("domain", name) for name in spec.domains}
        case AverageExperts() | TrainMode() | ComposeMode():
            return {("expert", spec.expert), ("mixture", spec.name)}
    return set()


def requires(spec: Spec) -> list[Thing]:
    """What a wish takes from the registry."""
    match spec:
        case MakeSeed():
            copied = [("expert", spec.expert)] if spec.expert else []
            return [*copied, *(("domain", name) for name in spec.domains)]
        case TrainDemix() | TrainMode():
            return [("seed model", spec.seed_model), *(("domain", name) for name in (*spec.domains, *spec.retain))]
        case TrainExpert():
            parent = [("expert", spec.parent)] if spec.parent else []
            watched = [("domain", name) for name in spec.watch]
            return [("domain", spec.domain), ("mixture", spec.mixture), *parent, *watched]
        case ComposeMode():
            domains = [("domain", name) for name in (*spec.domains, *spec.retain)]
            return [*(("expert", name) for name in spec.experts), *domains]
        case AverageExperts():
            prior = [("prior", spec.prior)] if spec.prior else []
            return [*(("expert", name) for name in spec.experts), *prior]
        case Evaluate():
            experts = [("expert", name) for name in spec.experts]
            return [("mixture", spec.mixture), *experts, *(("domain", name) for name in spec.domains)]
        case Classify():
            return [("mixture", spec.mixture), *(("expert", name) for name in spec.experts)]
        case CertifyAddition():
            return [("expert", spec.expert), ("mixture", spec.mixture)]
        case CertifyRemoval():
            retrained = [("mixture", spec.retrained)] if spec.retrained else []
            return [("expert", spec.expert), ("mixture", spec.mixture), *retrained]
        case MeasureOverlap():
            return [("domain", name) for name in spec.domains]
        case MakeMixture():
            clustering = [("clustering", spec.clustering)] if spec.clustering else []
            return [*clustering, *(("expert", name) for name in spec.experts)]
        case FindClusters() | ClusterPart():
            seed = [("seed model", spec.seed_model)] if spec.seed_model else []
            return [*seed, *(("domain", name) for name in spec.domains)]
        case MergeClusters() | SplitCluster() | PinDocuments() | MakeClusterDomains() | MakeDomain():
            return [("clustering", spec.clustering)]
    return []


def reads(spec: Spec) -> str:
    """The local file or folder that a wish reads; empty for none."""
    match spec:
        case ImportCorpus() | Classify():
            return spec.path
        case MakeSeed(source="folder"):
            return spec.location
    return ""


def _exists(session: Session, thing: Thing) -> bool:
    table = TABLES[thing[0]]
    return session.scalar(select(table.id).where(table.name == thing[1])) is not None


def _known(session: Session, what: str, coming: Iterable[Thing]) -> list[str]:
    table = TABLES[what]
    names = session.scalars(select(table.name).order_by(table.name).limit(20)).all()
    return [*names, *(name for kind, name in coming if kind == what)]
