"""Prints a clustering, one of its clusters with documents, and the plan of training a model on each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ui.cli.output import day, print_fields, print_json, print_table, say
from ui.present.text.formatting import pluralize
from workbench.answers.cards import ClusterCard, ClusteringCard, MixtureCard
from workbench.formatting.clustering_warnings import clustering_warnings, unequal_lengths
from workbench.formatting.number_format import share
from workbench.formatting.shell_command import shell_command
from workbench.specs.requests import TrainClusters

if TYPE_CHECKING:
    from jobs.plans.clusterings import ClusterModel

SHOWN_TERMS = 8


def say_temperature(mixture: MixtureCard) -> None:
    """Prints the temperature that dev text proposes for a gate of clusters, and how to set it."""
    if "temperature" not in mixture.gate:
        return
    from ui.present.charts.cluster_grid import temperature_words
    from workbench.questions.cluster_grid import propose_temperature
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        say(temperature_words(propose_temperature(session, get_storage(), mixture.name)))


def print_clustering(card: ClusteringCard) -> None:
    """Prints its settings and a row for each cluster; names stale experts and the command that retrains them."""
    overlap, chart, num_bytes = card.metrics["overlap"], card.metrics["map"], card.metrics.get("num_bytes")
    print_fields(
        {
            "clustering": card.name,
            "clusters": card.config["clusters"],
            "vectors": card.config["embedder"]["kind"] + (f" of {card.seed}" if card.seed else ""),
            "documents": f"{card.num_documents:,}, clusters fitted on {card.num_fitted:,}",
            "without known words": card.metrics["num_blank"],
            "in several domains": card.metrics["num_duplicates"],
            "map": f"{chart['num_points']:,} points, fitted on {chart['num_fitted']:,}" if chart else "none",
            "normalized mutual information with the domains": overlap["normalised_mutual_information"],
            "created": day(card.created_at),
        }
    )
    rows = [
        (
            one.number,
            one.name,
            one.num_documents,
            *([f"{num_bytes[one.number]:,}"] if num_bytes else []),
            one.terms[:SHOWN_TERMS],
            *_shares(overlap, one.number),
            one.domain,
            "stale" if one.stale else "",
            one.experts,
        )
        for one in card.clusters
    ]
    columns = [
        "No.",
        "Cluster",
        "Documents",
        *(["Bytes"] if num_bytes else []),
        "Terms",
        *overlap["labels"],
        "Domain",
        "",
        "Experts",
    ]
    print_table(columns, rows, empty="The clustering has no clusters.")
    for warning in [*clustering_warnings(card.metrics), *unequal_lengths(card.metrics)]:
        say(warning)
    if card.stale_experts:
        say(
            f"{pluralize(len(card.stale_experts), 'expert')} trained on documents that have changed: "
            f"{', '.join(card.stale_experts)}."
        )
        command = shell_command("train", "clusters", card.name, "NAME", "--seed-model", "SEED")
        say(f"Retrain only those with: {command}")
        say("To start each from the expert trained on most of its documents, use --branch-from MIXTURE instead.")


def _shares(overlap: dict[str, Any], number: int) -> list[str]:
    """The share of each domain's documents that a cluster holds (figure 16)."""
    return [share(row[number] / max(sum(row), 1)) for row in overlap["counts"]]


def print_cluster(card: ClusteringCard, cluster: str, as_json: bool) -> None:
    """Prints one cluster, by number or name, with its typical documents."""
    from workbench.registry.clusters.cluster_documents import get_document
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    match = _find(card, cluster)
    with reading() as session:
        documents = [get_document(session, get_storage(), card.name, id) for id in match.representatives]
    if as_json:
        print_json({"cluster": match, "documents": documents})
        return
    print_fields(match.model_dump(exclude={"id", "representatives"}))
    for one in documents:
        say(f"\n— {one.id[:12]}, {one.domain}, {one.split}\n{one.text[:400]}")


def _find(card: ClusteringCard, cluster: str) -> ClusterCard:
    from workbench.errors import NotFoundError

    by_name = {one.name: one for one in card.clusters} | {str(one.number): one for one in card.clusters}
    if cluster not in by_name:
        known = [f"{one.number} ({one.name})" for one in card.clusters]
        raise NotFoundError("cluster", cluster, known, where=f"in “{card.name}”")
    return by_name[cluster]


def print_branches(branches: Sequence[ClusterModel], spec: TrainClusters) -> None:
    """Prints a row for each cluster: its existing model, or what a new one starts from and its number of steps."""
    rows = [
        (
            one.cluster,
            one.num_documents,
            one.expert,
            *(
                ("exists", "")
                if one.is_there
                else (_start(one, spec), share(one.shares[one.parent]) if one.parent else "")
            ),
            one.num_steps,
        )
        for one in branches
    ]
    columns = ["Cluster", "Documents", "Model", "Starts from", "Parent trained on", "Steps"]
    print_table(columns, rows, empty="The clustering has no clusters.")
    existing, new = ([branch.num_steps for branch in branches if branch.is_there is exists] for exists in (True, False))
    if existing and new:
        say(f"Existing models were trained for {_span(existing)} steps each; new ones will be for {_span(new)}:")
        say(f"{spec.training.num_steps} steps are divided among {pluralize(len(branches), 'cluster')}.")


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _start(branch: ClusterModel, spec: TrainClusters) -> str:
    return branch.parent or spec.seed_model or f"the nearest of {spec.branch_from}, by its posterior"
