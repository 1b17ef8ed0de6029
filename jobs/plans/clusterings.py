"""What of C-BTM is a plan of jobs: the shards of a clustering; a model for each cluster, then a mixture of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.analysis.efficiency import split_steps
from engine.config import AdaptingConfig
from engine.methods.registry import get_method
from engine.mixing.gate_type import ClusteringGateConfig, GateConfig
from engine.mixing.gates.cluster import ClusterGateConfig
from jobs.plans.plan import submit_plan
from workbench.errors import BadSpec, NameTaken
from workbench.gate_configs import changed_gate, default_gate, load_gate
from workbench.kinds.clusters.cluster_part import ClusterPart
from workbench.kinds.clusters.find_clusters import FindClusters
from workbench.kinds.clusters.make_cluster_domains import MakeClusterDomains
from workbench.kinds.training.make_mixture import MakeMixture
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.plans import Step
from workbench.registry import database
from workbench.registry.branching import Shares, best_parent, parent_candidates, shared_documents
from workbench.registry.cluster_domains import domain_names, former_domains
from workbench.registry.clusterings import clustering_row
from workbench.registry.corpora import training_domains
from workbench.registry.names import ensure_free
from workbench.registry.tables import Clustering, Domain, Expert, Mixture, MixtureMember
from workbench.settings import Settings, get_settings
from workbench.specs import TrainClusters
from workbench.store.storage import get_storage

_DENSE = get_method("dense")  # a model of its own for each cluster


def submit_find(wish: FindClusters, settings: Settings | None = None) -> list[str]:
    """The ids of the jobs that find clusters, the one that ends with them last."""
    return submit_plan(lambda session: list(_find(session, wish)), settings)


def submit_training(
    wish: TrainClusters, settings: Settings | None = None, branches: Sequence[Branch] | None = None
) -> list[str]:
    """The ids of the jobs that train what is not trained yet, the one that composes the mixture last.

    `branches` are what `plan_training` showed; None plans now. Asked again under the same name it goes on: models that
    are there stay, and those of clusters that changed since are trained anew. Raises BadSpec when the mixture's name
    belongs to something else, or its models were trained otherwise.
    """
    planned = plan_training(wish, settings) if branches is None else branches
    return submit_plan(lambda session: list(_train(session, wish, planned)), settings)


# finding ------------------------------------------------------------------------------------------


def _find(session: Session, wish: FindClusters) -> Iterator[Step]:
    """The fit, every shard, the whole; one job where one shard holds all."""
    ensure_free(session, Clustering, "clustering", wish.name)
    names = wish.domains or training_domains(session)
    wish = wish.model_copy(update={"domains": names})  # so that all parts mean the same text
    counted = session.scalar(select(func.sum(Domain.num_documents)).where(Domain.name.in_(names))) or 0
    num_shards = -(-int(counted) // wish.shard_size)
    parts = [None, *range(num_shards)] if num_shards > 1 else []
    for shard in parts:
        part = ClusterPart(**wish.model_dump(exclude={"kind"}), shard=shard)
        told = "fit" if shard is None else f"shard {shard + 1} of {num_shards}"
        yield Step(_key(shard), part, f"{wish.name}: {told}", () if shard is None else (_key(None),))
    yield Step("whole", wish, f"Find clusters {wish.name}", tuple(map(_key, parts)))


def _key(shard: int | None) -> str:
    return "fit" if shard is None else f"shard {shard}"


# branch, train, merge -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Branch:
    """The model of one cluster: what is asked for, and what it begins from.

    `domain` is yet to be made of the cluster's documents where `makes_domain`. `parent` is the expert that it begins
    from, None for the seed model; without a seed model None is the nearest expert, which the training looks for.
    `shares` are those of the cluster's documents that each expert was trained on. `num_steps` are those it is to be
    trained for, or was where it `is_there`: after an edit other ones, as the steps asked for are shared by more or
    fewer clusters.
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


def plan_training(wish: TrainClusters, settings: Settings | None = None) -> list[Branch]:
    """The model of each cluster in turn, as `submit_training` would ask for them; nothing is queued.

    Raises BadSpec with all that differs when models that would stay were trained otherwise than is asked for now.
    """
    settings = settings or get_settings()
    storage = get_storage(settings)
    with database.reading(settings) as session:
        found = parent_candidates(session, storage, wish.clustering, wish.branch_from) if wish.branch_from else None
    shares = shared_documents(found) if found else {}
    with database.reading(settings) as session:
        branches = list(_branches(session, wish, shares))
        _refuse_others(session, wish, branches)
        return branches


def _branches(session: Session, wish: TrainClusters, shares: Mapping[int, Shares]) -> Iterator[Branch]:
    row = clustering_row(session, wish.clustering)
    wanted = domain_names(session, row)
    for cluster, num_steps in zip(row.clusters, split_steps(wish.training.num_steps, len(row.clusters)), strict=True):
        domain = wanted.get(cluster.number) or (cluster.domain.name if cluster.domain else "")
        model = f"{wish.name}/{domain.removeprefix(f'{row.name}/')}"
        names = [f"{model}/{_DENSE.only_expert}", f"{model}/{domain}"]  # from a seed, from an expert
        there = None if cluster.number in wanted else _trained(session, names, cluster.domain_id)
        expert = there.name if there else names[wish.branch_from is not None]
        of_cluster = shares.get(cluster.number, {})
        yield Branch(
            cluster.name,
            cluster.num_documents,
            domain,
            cluster.number in wanted,
            expert,
            there.config.get("num_steps", num_steps) if there else num_steps,
            there is not None,
            best_parent(of_cluster),
            of_cluster,
        )


def _refuse_others(session: Session, wish: TrainClusters, branches: Sequence[Branch]) -> None:
    """Raises BadSpec with all in which the models that are there differ from the wish.

    Once clusters were edited, models that stay were trained for other shares of the steps than those that are trained
    anew, and may have begun otherwise; only those that began alike must then have the knobs of the wish.
    """
    names = [one.expert for one in branches if one.is_there]
    there = list(session.scalars(select(Expert).where(Expert.name.in_(names))))
    if not there:
        return
    edited = _was_edited(session, wish, names)
    kin = [one for one in there if _begins_as_wished(session, wish, one)]
    goes_on = edited and len(there) < len(branches)
    found = _other_knobs(wish, kin if goes_on else there)
    if not (kin or goes_on):
        found["beginning"] = f"not from {wish.branch_from or wish.seed_model}"
    if not edited:
        shares = split_steps(wish.training.num_steps, len(branches))
        steps = [(one.num_steps, share) for one, share in zip(branches, shares, strict=True) if one.is_there]
        if any(trained != share for trained, share in steps):
            trained_for, shared = (", ".join(map(str, column)) for column in zip(*steps, strict=True))
            found["num_steps"] = f"{trained_for} instead of {shared}"
    if found:
        told = "; ".join(f"{name}: {value}" for name, value in found.items())
        raise BadSpec(
            [f"The models of “{wish.name}” must be trained as is asked for now, but were trained otherwise: {told}."],
            "Choose another name, or delete its mixture and models, or ask as before.",
        )


def _other_knobs(wish: TrainClusters, there: Sequence[Expert]) -> dict[str, str]:
    """What models were trained with where it is not what is asked for; how often a training is saved is no matter."""
    found = {
        name: f"{expert.config[name]} instead of {value}"
        for name, value in asdict(wish.training).items()
        for expert in there
        if name not in ("num_steps", "checkpoint_every") and expert.config.get(name, value) != value
    }
    seeds = {one.seed.name for one in there if one.seed} - {wish.seed_model}
    return found | (
        {"seed_model": f"{', '.join(sorted(seeds))} instead of {wish.seed_model}"} if wish.seed_model and seeds else {}
    )


def _begins_as_wished(session: Session, wish: TrainClusters, expert: Expert) -> bool:
    """From a seed model, or from an expert that was in the mixture to branch from or is called as such."""
    if wish.branch_from is None or expert.parent is None:
        return wish.branch_from is None and expert.parent is None
    in_it = (
        select(Mixture.id)
        .join(Mixture.members)
        .where(Mixture.name == wish.branch_from, MixtureMember.expert_id == expert.parent_id)
    )
    return session.scalar(in_it) is not None or expert.parent.name.startswith(f"{wish.branch_from}/")


def _was_edited(session: Session, wish: TrainClusters, names: Sequence[str]) -> bool:
    """Whether clusters changed since they were first trained on: then models are left over, or domains."""
    left = select(Expert.id).where(Expert.name.startswith(f"{wish.name}/", autoescape=True), Expert.name.not_in(names))
    return bool(former_domains(clustering_row(session, wish.clustering))) or session.scalar(left.limit(1)) is not None


def _train(session: Session, wish: TrainClusters, branches: Sequence[Branch]) -> Iterator[Step]:
    row, there = clustering_row(session, wish.clustering), _ours(session, wish)
    new = [one.domain for one in branches if one.makes_domain]
    if new:
        domains = MakeClusterDomains(clustering=row.name, domains=new)
        yield Step("domains", domains, f"{wish.name}: make domains of {row.name}")
    missing = [one for one in branches if not one.is_there]
    for one in missing:
        told = f"{wish.name}: train on {one.cluster}" + (f" from {one.parent}" if one.parent else "")
        yield Step(one.expert, _training(wish, one), told, ("domains",) if new else ())
    experts = [one.expert for one in branches]
    mixture = MakeMixture(name=wish.name, experts=experts, gate=_gate(row, there), replace=True)
    yield Step("mixture", mixture, f"{wish.name}: compose the mixture", tuple(one.expert for one in missing))


def _training(wish: TrainClusters, branch: Branch) -> TrainJoint | TrainExpert:
    """A dense model from the seed; or a whole copy of an expert and its base, trained on."""
    name = branch.expert.removesuffix(f"/{_DENSE.only_expert}")
    training = replace(wish.training, num_steps=branch.num_steps)
    if wish.seed_model is not None:
        return TrainJoint(
            name=name, seed_model=wish.seed_model, domains=[branch.domain], method=_DENSE.name, training=training
        )
    return TrainExpert(
        name=branch.expert.removesuffix(f"/{branch.domain}"),
        domain=branch.domain,
        mixture=str(wish.branch_from),
        parent=branch.parent,
        whole=True,
        training=AdaptingConfig(**asdict(training)),
    )


def _trained(session: Session, names: Sequence[str], domain_id: str | None) -> Expert | None:
    """The expert of one of these names that was trained on the domain."""
    return session.scalar(select(Expert).where(Expert.name.in_(names), Expert.domain_id == domain_id))


def _gate(clustering: Clustering, mixture: Mixture | None) -> GateConfig:
    """By nearness to these clusters; as sharp as the mixture's gate was, where there is one, and with its evidence."""
    before = load_gate(mixture.gate) if mixture else default_gate()
    kind = before.kind if isinstance(before, ClusteringGateConfig) else ClusterGateConfig.kind
    return changed_gate(before, {"kind": kind, "clustering": clustering.id})


def _ours(session: Session, wish: TrainClusters) -> Mixture | None:
    """The mixture of an earlier training; raises BadSpec when it holds anything but models of clusters."""
    row = session.scalar(select(Mixture).where(Mixture.name == wish.name))
    if row is not None and not all(_is_ours(wish, member.expert.name) for member in row.members):
        raise BadSpec([NameTaken("mixture", wish.name).problem], "Choose another name.")
    return row


def _is_ours(wish: TrainClusters, expert: str) -> bool:
    """Whether an expert is called as such a training calls it: NAME/NUMBER/dense or NAME/NUMBER/CLUSTERING/NUMBER."""
    number, _, rest = expert.removeprefix(f"{wish.name}/").partition("/")
    return expert.startswith(f"{wish.name}/") and rest in (_DENSE.only_expert, f"{wish.clustering}/{number}")
