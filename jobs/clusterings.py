"""What of C-BTM is a plan of jobs: the shards of a clustering; a model for each cluster, then a mixture of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.config import GateConfig
from engine.efficiency import split_steps
from jobs.plans import submit_plan
from workbench.cluster_specs import ClusterPart, FindClusters, MakeClusterDomains
from workbench.errors import BadSpec, NameTaken
from workbench.plans import Step
from workbench.services.clusterings import clustering_row, domain_names
from workbench.services.corpora import training_domains
from workbench.services.names import ensure_free
from workbench.settings import Settings
from workbench.specs import DENSE, MakeMixture, TrainClusters, TrainDemix
from workbench.tables import Clustering, Domain, Expert, Mixture


def submit_find(wish: FindClusters, settings: Settings | None = None) -> list[str]:
    """The ids of the jobs that find clusters, the one that ends with them last."""
    return submit_plan(lambda session: list(_find(session, wish)), settings)


def submit_training(wish: TrainClusters, settings: Settings | None = None) -> list[str]:
    """The ids of the jobs that train what is not trained yet, the one that composes the mixture last.

    Asked again under the same name it goes on: models that are there stay, and those of clusters that changed since
    are trained anew. Raises BadSpec when the mixture's name belongs to something else.
    """
    return submit_plan(lambda session: list(_train(session, wish)), settings)


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


def _train(session: Session, wish: TrainClusters) -> Iterator[Step]:
    row, there = clustering_row(session, wish.clustering), _ours(session, wish)
    wanted = domain_names(session, row)
    if wanted:
        domains = MakeClusterDomains(clustering=row.name, domains=list(wanted.values()))
        yield Step("domains", domains, f"{wish.name}: make domains of {row.name}")
    experts = []
    for cluster, num_steps in zip(row.clusters, split_steps(wish.training.num_steps, len(row.clusters)), strict=True):
        domain = wanted.get(cluster.number) or (cluster.domain.name if cluster.domain else "")
        model = f"{wish.name}/{domain.removeprefix(f'{row.name}/')}"
        experts.append(f"{model}/{DENSE}")
        if cluster.number not in wanted and _is_trained(session, experts[-1]):
            continue
        spec = TrainDemix(
            name=model, seed_model=wish.seed_model, domains=[domain], method="dense",
            training=replace(wish.training, num_steps=num_steps),
        )  # fmt: skip
        yield Step(experts[-1], spec, f"{wish.name}: train on {cluster.name}", ("domains",) if wanted else ())
    mixture = MakeMixture(name=wish.name, experts=experts, gate=_gate(row, there), replace=True)
    needs = tuple(name for name in experts if not _is_trained(session, name))
    yield Step("mixture", mixture, f"{wish.name}: compose the mixture", needs)


def _is_trained(session: Session, expert: str) -> bool:
    return session.scalar(select(Expert.id).where(Expert.name == expert)) is not None


def _gate(clustering: Clustering, mixture: Mixture | None) -> GateConfig:
    """By nearness to these clusters; as sharp as the mixture's gate was, where there is one."""
    before = mixture.gate if mixture else {}
    return GateConfig(**{**before, "kind": "cluster", "clustering": clustering.id})


def _ours(session: Session, wish: TrainClusters) -> Mixture | None:
    """The mixture of an earlier training; raises BadSpec when it holds anything but models of clusters."""
    row = session.scalar(select(Mixture).where(Mixture.name == wish.name))
    names = [member.expert.name for member in row.members] if row else []
    if any(not (name.startswith(f"{wish.name}/") and name.endswith(f"/{DENSE}")) for name in names):
        raise BadSpec([NameTaken("mixture", wish.name).problem], "Choose another name.")
    return row
