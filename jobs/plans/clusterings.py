"""The plans of C-BTM: the shards of a clustering; a model for each cluster and their mixture."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.config import AdaptingConfig, default_rate
from engine.errors import EngineError
from engine.methods.registry import get_method
from engine.mixing.gate_type import ClusteringGateConfig, GateConfig
from engine.mixing.gates.cluster import ClusterGateConfig
from jobs.probe.forecast import forecast, several
from jobs.queue.submit import submit_plan
from workbench.answers.forecasts import Forecast
from workbench.errors import BadSpecError, NameTakenError
from workbench.job_records.jobs import title_of
from workbench.job_records.preconditions import kind_of
from workbench.kinds.clusters import ClusterPart, FindClusters, MakeClusterDomains
from workbench.kinds.data import MakeDomain
from workbench.kinds.training.method_settings import is_random
from workbench.kinds.training.mixtures import MakeMixture
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry import database
from workbench.registry.aliases import model_name
from workbench.registry.clusters.cluster_documents import Shares, best_parent, parent_candidates, shared_documents
from workbench.registry.clusters.cluster_routing import domain_names, former_domains
from workbench.registry.clusters.clusterings import clustering_row
from workbench.registry.corpora import training_domains
from workbench.schema.names import ensure_free
from workbench.schema.tables import Clustering, Domain, Expert, Mixture, MixtureMember
from workbench.settings import Settings, get_settings
from workbench.specs.gates import changed_gate, default_gate, load_gate
from workbench.specs.requests import PlanStep, TrainClusters
from workbench.store.storage import get_storage


def submit_selection(
    domain: MakeDomain, training: TrainExpert | TrainJoint, settings: Settings | None = None
) -> list[str]:
    """Submits both jobs and the one that scores the expert in one transaction, and returns their ids.

    Raises BadSpecError, and then submits none.
    """
    steps = [
        PlanStep("domain", domain, title_of(domain)),
        PlanStep("expert", training, title_of(training), ("domain",)),
    ]
    if follow_up := kind_of(training).follow_up(training):
        steps.append(PlanStep("scores", follow_up, title_of(follow_up), ("expert",)))
    return submit_plan(lambda _: steps, settings)


_DENSE = get_method("dense")  # a model of its own for each cluster


def submit_find(spec: FindClusters, settings: Settings | None = None) -> list[str]:
    """Submits the jobs that find clusters and returns their ids, the one that registers the clustering last."""
    return submit_plan(lambda session: list(_find(session, spec)), settings)


def submit_training(
    spec: TrainClusters, settings: Settings | None = None, branches: Sequence[ClusterModel] | None = None
) -> list[str]:
    """Submits the jobs that train missing models and returns their ids, the one that composes the mixture last.

    `branches` are the result of `plan_training`; None plans now. Submitted again under the same name it continues:
    existing models stay, and those of changed clusters are trained again. Raises BadSpecError when the mixture's name
    is taken, or its models were trained with other settings.
    """
    planned = plan_training(spec, settings) if branches is None else branches
    return submit_plan(lambda session: list(_train(session, spec, planned)), settings)


def forecast_training(spec: TrainClusters, settings: Settings | None = None) -> Generator[str, None, Forecast]:
    """Yields what a probe is at, and returns the forecast of all models together, from a probe of one of them.

    The models differ only in their text. They are trained one after another as far as time and disk go, and as many at
    a time as a worker runs as far as memory goes. As long as clusters have no domains, the probe reads the text of the
    largest domain that was clustered in their place. Raises BadSpecError where no model is missing.
    """
    settings = settings or get_settings()
    missing = [branch for branch in plan_training(spec, settings) if not branch.is_there]
    if not missing:
        raise BadSpecError([f"Every model of “{spec.name}” exists: nothing would be trained."])
    longest = max(missing, key=lambda branch: branch.num_steps)
    if longest.makes_domain:
        longest = replace(longest, domain=_largest_source(spec, settings))
    single = yield from forecast(_training(spec, longest), settings)
    return several(single, len(missing), settings.worker_slots, spec.name)


def _largest_source(spec: TrainClusters, settings: Settings) -> str:
    """The largest domain whose documents were clustered and that is still there."""
    with database.reading(settings) as session:
        names = [source["name"] for source in clustering_row(session, spec.clustering).sources]
        rows = select(Domain.name).where(Domain.name.in_(names)).order_by(Domain.num_bytes.desc(), Domain.name)
        largest = session.scalar(rows.limit(1))
    if largest is None:
        raise BadSpecError(
            [f"The text of “{spec.clustering}” was deleted, so no model can be measured."], "Import it again."
        )
    return largest


# finding ------------------------------------------------------------------------------------------


def _find(session: Session, spec: FindClusters) -> Iterator[PlanStep]:
    """The fit, every shard, and the final job; only the final job if one shard is enough."""
    ensure_free(session, Clustering, spec.name)
    names = spec.domains or training_domains(session)
    spec = spec.model_copy(update={"domains": names})  # so that all parts use the same text
    counted = session.scalar(select(func.sum(Domain.num_documents)).where(Domain.name.in_(names))) or 0
    num_shards = -(-int(counted) // spec.shard_size)
    keys: list[str] = []
    for shard in [None, *range(num_shards)] if num_shards > 1 else []:
        part = ClusterPart(**spec.model_dump(exclude={"kind"}), shard=shard)
        label = "fit" if shard is None else f"shard {shard + 1} of {num_shards}"
        yield PlanStep(label, part, f"{spec.name}: {label}", tuple(keys[:1]))
        keys.append(label)
    yield PlanStep("whole", spec, f"Find clusters {spec.name}", tuple(keys))


# branch, train, merge -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterModel:
    """The model of one cluster and its parent.

    With `makes_domain` the `domain` is still to be made of the cluster's documents. `parent` is the expert to start
    from, None for the seed model; without a seed model, None means that the training chooses the nearest expert.
    `shares` are the shares of the cluster's documents that each expert was trained on. `num_steps` are the steps to
    train, or those trained if it `is_there`; they differ after an edit, when the steps are divided over more or fewer
    clusters.
    """

    cluster: str
    num_documents: int
    domain: str
    makes_domain: bool
    expert: str
    num_steps: int
    is_there: bool
    parent: str | None
    shares: Shares


def plan_training(spec: TrainClusters, settings: Settings | None = None) -> list[ClusterModel]:
    """The model of each cluster as `submit_training` would train it; nothing is queued.

    Raises BadSpecError with all differences when existing models were trained with other settings.
    """
    settings = settings or get_settings()
    storage = get_storage(settings)
    with database.reading(settings) as session:
        spec = _without_alias(session, spec)
        candidates = (
            parent_candidates(session, storage, spec.clustering, spec.branch_from) if spec.branch_from else None
        )
    shares = shared_documents(candidates) if candidates else {}
    with database.reading(settings) as session:
        branches = list(_branches(session, spec, shares))
        _refuse_others(session, spec, branches)
        return branches


def _branches(session: Session, spec: TrainClusters, shares: Mapping[int, Shares]) -> Iterator[ClusterModel]:
    row = clustering_row(session, spec.clustering)
    wanted = domain_names(session, row)
    for cluster, num_steps in zip(row.clusters, split_steps(spec.training.max_steps, len(row.clusters)), strict=True):
        domain = wanted.get(cluster.number) or (cluster.domain.name if cluster.domain else "")
        model = f"{spec.name}/{domain.removeprefix(f'{row.name}/')}"
        names = _expert_names(model, domain)
        trained = select(Expert).where(Expert.name.in_(names), Expert.domain_id == cluster.domain_id)
        existing = None if cluster.number in wanted else session.scalar(trained)
        expert = existing.name if existing else names[spec.branch_from is not None]
        of_cluster = shares.get(cluster.number, {})
        yield ClusterModel(
            cluster.name,
            cluster.num_documents,
            domain,
            cluster.number in wanted,
            expert,
            existing.config.get("num_steps", num_steps) if existing else num_steps,
            existing is not None,
            best_parent(of_cluster),
            of_cluster,
        )


def _refuse_others(session: Session, spec: TrainClusters, branches: Sequence[ClusterModel]) -> None:
    """Raises BadSpecError with all differences between the existing models and the spec.

    After clusters were edited, remaining models had other shares of the steps than new ones, and may have another
    parent; then only those with the same kind of parent must have the settings of the spec.
    """
    names = [branch.expert for branch in branches if branch.is_there]
    existing = list(session.scalars(select(Expert).where(Expert.name.in_(names))))
    if not existing:
        return
    # After clusters were edited, models or domains are left over from when they were first trained on.
    left = select(Expert.id).where(Expert.name.startswith(f"{spec.name}/", autoescape=True), Expert.name.not_in(names))
    edited = former_domains(clustering_row(session, spec.clustering)) or session.scalar(left.limit(1)) is not None
    comparable = [expert for expert in existing if _has_parent_of(session, spec, expert)]
    continues = edited and len(existing) < len(branches)
    differences = _other_knobs(spec, comparable if continues else existing)
    if not (comparable or continues):
        differences["parent"] = f"not {spec.branch_from or spec.seed_model}"
    if not edited:
        shares = split_steps(spec.training.max_steps, len(branches))
        steps = [(branch.num_steps, share) for branch, share in zip(branches, shares, strict=True) if branch.is_there]
        if any(trained != share for trained, share in steps):
            trained_for, shared = (", ".join(map(str, column)) for column in zip(*steps, strict=True))
            differences["num_steps"] = f"{trained_for} instead of {shared}"
    if differences:
        text = "; ".join(f"{name}: {value}" for name, value in differences.items())
        raise BadSpecError(
            [f"The models of “{spec.name}” were trained with other settings: {text}."],
            "Choose another name, delete its mixture and models, or use the same settings.",
        )


def _other_knobs(spec: TrainClusters, existing: Sequence[Expert]) -> dict[str, str]:
    """The settings in which trained models differ from the spec, except checkpoint_every and sample_tokens."""
    differences = {
        name: f"{expert.config[name]} instead of {value}"
        for name, value in asdict(spec.training).items()
        for expert in existing
        if name not in ("num_steps", "checkpoint_every", "sample_tokens", "shard")
        and not (name == "learning_rate" and value is None)
        and expert.config.get(name, value) != value
    }
    seeds = {expert.seed.name for expert in existing if expert.seed} - {spec.seed_model}
    return differences | (
        {"seed_model": f"{', '.join(sorted(seeds))} instead of {spec.seed_model}"} if spec.seed_model and seeds else {}
    )


def _has_parent_of(session: Session, spec: TrainClusters, expert: Expert) -> bool:
    """True if the expert's parent is as in the spec: none, or an expert of the mixture to branch from."""
    if spec.branch_from is None or expert.parent is None:
        return spec.branch_from is None and expert.parent is None
    is_member = (
        select(Mixture.id)
        .join(Mixture.members)
        .where(Mixture.name == spec.branch_from, MixtureMember.expert_id == expert.parent_id)
    )
    return session.scalar(is_member) is not None or expert.parent.name.startswith(f"{spec.branch_from}/")


def _without_alias(session: Session, spec: TrainClusters) -> TrainClusters:
    """The spec with the name of the mixture that an alias means now."""
    return spec.model_copy(update={"branch_from": spec.branch_from and model_name(session, spec.branch_from)})


def _train(session: Session, spec: TrainClusters, branches: Sequence[ClusterModel]) -> Iterator[PlanStep]:
    spec = _with_rate(session, _without_alias(session, spec), branches)
    row, existing = clustering_row(session, spec.clustering), _existing_mixture(session, spec)
    new = [branch.domain for branch in branches if branch.makes_domain]
    if new:
        domains = MakeClusterDomains(clustering=row.name, domains=new)
        yield PlanStep("domains", domains, f"{spec.name}: make domains of {row.name}")
    missing = [branch for branch in branches if not branch.is_there]
    for branch in missing:
        title = f"{spec.name}: train on {branch.cluster}" + (f" from {branch.parent}" if branch.parent else "")
        yield PlanStep(branch.expert, _training(spec, branch), title, ("domains",) if new else ())
    experts = [branch.expert for branch in branches]
    mixture = MakeMixture(name=spec.name, experts=experts, gate=_gate(row, existing), replace=True)
    needed = tuple(branch.expert for branch in missing)
    yield PlanStep("mixture", mixture, f"{spec.name}: compose the mixture", needed)


def _with_rate(session: Session, spec: TrainClusters, branches: Sequence[ClusterModel]) -> TrainClusters:
    """The spec with a learning rate: that of models which are there already, or the default for its start."""
    if spec.training.learning_rate is not None:
        return spec
    names = [branch.expert for branch in branches if branch.is_there]
    existing = session.scalars(select(Expert).where(Expert.name.in_(names)))
    is_new = spec.seed_model is not None and is_random(session, spec.seed_model)
    known = (expert.config.get("learning_rate") for expert in existing)
    rate = next(filter(None, known), default_rate(not is_new))
    return spec.model_copy(update={"training": replace(spec.training, learning_rate=rate)})


def _training(spec: TrainClusters, branch: ClusterModel) -> TrainJoint | TrainExpert:
    """The spec of a dense model from the seed, or of a full copy of an expert and its base."""
    name = branch.expert.removesuffix(f"/{_DENSE.only_expert}")
    training = replace(spec.training, num_steps=branch.num_steps)
    if spec.seed_model is not None:
        return TrainJoint(
            name=name, seed_model=spec.seed_model, domains=[branch.domain], method=_DENSE.name, training=training
        )
    return TrainExpert(
        name=branch.expert.removesuffix(f"/{branch.domain}"),
        domain=branch.domain,
        mixture=str(spec.branch_from),
        parent=branch.parent,
        full_model=True,
        training=AdaptingConfig(**{field.name: getattr(training, field.name) for field in fields(AdaptingConfig)}),
    )


def _gate(clustering: Clustering, mixture: Mixture | None) -> GateConfig:
    """A cluster gate on this clustering, with the other settings of the existing mixture's gate, if any."""
    before = load_gate(mixture.gate) if mixture else default_gate()
    kind = before.kind if isinstance(before, ClusteringGateConfig) else ClusterGateConfig.kind
    return changed_gate(before, {"kind": kind, "clustering": clustering.id})


def _existing_mixture(session: Session, spec: TrainClusters) -> Mixture | None:
    """The mixture of an earlier training; raises BadSpecError when it has other members than cluster models."""
    row = session.scalar(select(Mixture).where(Mixture.name == spec.name))
    for member in row.members if row else ():
        expert = member.expert.name
        number = expert.removeprefix(f"{spec.name}/").partition("/")[0]
        if expert not in _expert_names(f"{spec.name}/{number}", f"{spec.clustering}/{number}"):
            raise BadSpecError([NameTakenError("mixture", spec.name).problem], "Choose another name.")
    return row


def _expert_names(model: str, domain: str) -> list[str]:
    """The names of a cluster's expert: trained from a seed, and from an expert."""
    return [f"{model}/{_DENSE.only_expert}", f"{model}/{domain}"]


def split_steps(num_steps: int, num_clusters: int) -> list[int]:
    """Splits the dense model's updates over the experts, so that both see equally many tokens (§A.2).

    The remainder goes to the first experts. Raises EngineError when an expert would get no update.
    """
    if num_steps < num_clusters:
        raise EngineError(
            f"{num_steps} steps are too few for {num_clusters} clusters: each needs at least one.",
            "Set more steps: they are divided over all clusters.",
        )
    each, rest = divmod(num_steps, num_clusters)
    return [each + (number < rest) for number in range(num_clusters)]
