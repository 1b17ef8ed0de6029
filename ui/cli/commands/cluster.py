"""Clusterings (C-BTM): find clusters of documents, show, edit and delete them, make domains of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.job_progress import card_of, follow, report, submit
from ui.cli.options import RunOptions, naming_argument, naming_option, split_commas, takes
from ui.cli.output import day, print_fields, print_table, say
from ui.cli.verbs import CREATED, NAME, Column, CommandGroup, Outcome, get_card, read, write
from ui.present.text.formatting import pluralize
from workbench.answers.cards import ClusteringCard
from workbench.formatting.clustering_warnings import clustering_warnings, unequal_lengths
from workbench.formatting.number_format import share
from workbench.formatting.shell_command import shell_command
from workbench.kinds.clusters import FindClusters, MakeClusterDomains

if TYPE_CHECKING:
    from workbench.answers.posteriors import TextChanges

app = CommandGroup(__doc__)

Name = Annotated[str, naming_argument("Name of a clustering.", "clustering")]
ClusterName = Annotated[str, typer.Argument(help="A cluster, by number or name.")]

SHOWN_TERMS = 8
_COLUMNS = (
    NAME,
    Column("Method", lambda clustering: clustering.config["clusters"]["method"]),
    Column("Clusters", lambda clustering: len(clustering.clusters)),
    Column("Documents", lambda clustering: clustering.num_documents),
    Column("Domains", lambda clustering: clustering.sources),
    Column("Stale experts", lambda clustering: clustering.stale_experts),
    CREATED,
)


@app.command("find")
@takes(FindClusters, "name")
def find(spec: FindClusters, run_options: RunOptions) -> None:
    """Cluster documents: fit the clusters, assign every document to one, and describe them."""
    if run_options.in_process:
        submit(spec, run_options)
        return
    from jobs.plans.clusterings import submit_find

    last = submit_find(spec)[-1]
    report(follow(last, run_options.json) if run_options.wait else card_of(last), run_options.json)


app.add_list("clustering", _COLUMNS, "List clusterings.", "Create one with: workbench cluster find NAME")


@app.verb()
def show(
    name: Name, cluster: Annotated[str, typer.Argument(help="A cluster, by number or name. Default: all.")] = ""
) -> Outcome:
    """Show a clustering with the terms of its clusters, or one cluster with its typical documents."""
    card = get_card("clustering", name)
    return Outcome(cluster_with_documents(card, cluster), print_cluster) if cluster else Outcome(card, print_clustering)


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
            *(share(row[one.number] / max(sum(row), 1)) for row in overlap["counts"]),  # of each domain (figure 16)
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


def cluster_with_documents(card: ClusteringCard, name: str) -> dict[str, Any]:
    """A cluster, by number or name, with its typical documents. Raises NotFoundError."""
    from workbench.errors import NotFoundError
    from workbench.registry.clusters.cluster_documents import get_document
    from workbench.store.storage import get_storage

    by_name = {cluster.name: cluster for cluster in card.clusters}
    by_name |= {str(cluster.number): cluster for cluster in card.clusters}
    if name not in by_name:
        known = [f"{cluster.number} ({cluster.name})" for cluster in card.clusters]
        raise NotFoundError("cluster", name, known, where=f"in “{card.name}”")
    documents = [read(get_document, get_storage(), card.name, id) for id in by_name[name].representatives]
    return {"cluster": by_name[name], "documents": documents}


def print_cluster(shown: dict[str, Any]) -> None:
    """Prints a cluster with its typical documents."""
    print_fields(shown["cluster"].model_dump(exclude={"id", "representatives"}))
    for document in shown["documents"]:
        say(f"\n— {document.id[:12]}, {document.domain}, {document.split}\n{document.text[:400]}")


@app.verb("changes")
def show_changes(
    name: Name,
    domains: Annotated[
        str, naming_option("Domains to compare with. Default: the domains that were clustered.", "domain")
    ] = "",
) -> Outcome:
    """Compare a clustering with the text of now: list documents that are missing and documents that are new."""
    from workbench.registry.clusters.cluster_documents import changes
    from workbench.store.storage import get_storage

    return Outcome(read(changes, get_storage(), name, split_commas([domains])), _print_changes)


def _print_changes(changes: TextChanges) -> None:
    if not changes.num_missing and not changes.num_new:
        say("Nothing changed: no document is missing and none is new.")
        return
    for number, ids, words in (
        (changes.num_missing, changes.missing, "of the clustering are missing"),
        (changes.num_new, changes.new, "are new"),
    ):
        more = ", …" if number > len(ids) else ""
        say(f"{pluralize(number, 'document')} {words}" + (f": {', '.join(ids)}{more}" if ids else "."))


@app.verb()
def rename(name: Name, cluster: ClusterName, new_name: Annotated[str, typer.Argument(help="The new name.")]) -> Outcome:
    """Rename a cluster; no document moves."""
    from workbench.registry.clusters.clusterings import change_cluster

    return Outcome(write(change_cluster, name, cluster, name=new_name), f"“{cluster}” is now called “{new_name}”.")


@app.verb()
def note(
    name: Name,
    cluster: ClusterName,
    notes: Annotated[str, typer.Argument(help="Notes about the cluster; they replace the old ones.")],
) -> Outcome:
    """Set the notes of a cluster."""
    from workbench.registry.clusters.clusterings import change_cluster

    return Outcome(write(change_cluster, name, cluster, notes=notes), f"The notes of “{cluster}” are saved.")


app.add_job("domains CLUSTERING", MakeClusterDomains, domains=[])
app.add_jobs("cluster")
app.add_delete(
    "clustering",
    Name,
    "Delete a clustering; its domains are kept. Refused while an expert, a mixture or a job uses it.",
)
