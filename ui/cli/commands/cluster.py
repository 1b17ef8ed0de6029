"""Clusterings (C-BTM): find clusters of documents, show, edit and delete them, make domains of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ui.cli.completion import names_of
from ui.cli.job_progress import card_of, follow, report, submit
from ui.cli.listing import Column, created_column, name_column
from ui.cli.options import Json, RunOptions, split_commas, takes
from ui.cli.output import day, print_done, print_json, say
from ui.cli.printing.clustering import print_cluster, print_clustering
from ui.cli.things import add_delete, add_list, get_card
from ui.present.text.formatting import pluralize
from workbench.answers.cards import ClusteringCard
from workbench.kinds.clusters import FindClusters, MakeClusterDomains, MergeClusters, PinDocuments, SplitCluster
from workbench.kinds.data import MakeDomain

app = typer.Typer(no_args_is_help=True, help=__doc__)

Name = Annotated[str, typer.Argument(help="Name of a clustering.", autocompletion=names_of("clustering"))]
ClusterName = Annotated[str, typer.Argument(help="A cluster, by number or name.")]

_COLUMNS = (
    name_column(),
    Column("Method", lambda clustering: clustering.config["clusters"]["method"]),
    Column("Clusters", lambda clustering: len(clustering.clusters)),
    Column("Documents", lambda clustering: clustering.num_documents),
    Column("Domains", lambda clustering: clustering.sources),
    Column("Stale experts", lambda clustering: clustering.stale_experts),
    created_column(day),
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


add_list(
    app,
    "clustering",
    _COLUMNS,
    noun="clustering",
    help="List clusterings.",
    empty="There is no clustering yet. Create one with: workbench cluster find NAME",
)


@app.command("show")
def show(
    name: Name,
    cluster: Annotated[str, typer.Argument(help="A cluster, by number or name. Default: all.")] = "",
    as_json: Json = False,
) -> None:
    """Show a clustering with the terms of its clusters, or one cluster with its typical documents."""
    card = get_card("clustering", name)
    if cluster:
        print_cluster(card, cluster, as_json)
    elif as_json:
        print_json(card)
    else:
        print_clustering(card)


@app.command("changes")
def changes(
    name: Name,
    domains: Annotated[
        str,
        typer.Option(
            help="Domains to compare with. Default: the domains that were clustered.", autocompletion=names_of("domain")
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Compare a clustering with the text of now: list documents that are missing and documents that are new."""
    from workbench.registry.clusters import cluster_documents
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        changes = cluster_documents.changes(session, get_storage(), name, split_commas([domains]))
    if as_json:
        print_json(changes)
        return
    if not changes.num_missing and not changes.num_new:
        say("Nothing changed: no document is missing and none is new.")
        return
    for number, ids, words in (
        (changes.num_missing, changes.missing, "of the clustering are missing"),
        (changes.num_new, changes.new, "are new"),
    ):
        more = ", …" if number > len(ids) else ""
        say(f"{pluralize(number, 'document')} {words}" + (f": {', '.join(ids)}{more}" if ids else "."))


@app.command("rename")
def rename(
    name: Name,
    cluster: ClusterName,
    new_name: Annotated[str, typer.Argument(help="The new name.")],
    as_json: Json = False,
) -> None:
    """Rename a cluster; no document moves."""
    from workbench.registry.clusters.clusterings import rename_cluster

    _print_changed(rename_cluster, (name, cluster, new_name), f"“{cluster}” is now called “{new_name}”.", as_json)


@app.command("note")
def note(
    name: Name,
    cluster: ClusterName,
    notes: Annotated[str, typer.Argument(help="Notes about the cluster; they replace the old ones.")],
    as_json: Json = False,
) -> None:
    """Set the notes of a cluster."""
    from workbench.registry.clusters.clusterings import note_cluster

    _print_changed(note_cluster, (name, cluster, notes), f"The notes of “{cluster}” are saved.", as_json)


def _print_changed(
    change: Callable[..., ClusteringCard], arguments: tuple[str, str, str], done: str, as_json: bool
) -> None:
    """Changes the name or the notes of a cluster and prints that it is done."""
    from workbench.registry.database import transaction

    with transaction() as session:
        card = change(session, *arguments)
    print_done(card, done, as_json)


@app.command("merge")
@takes(MergeClusters, "clustering")
def merge(spec: MergeClusters, run_options: RunOptions) -> None:
    """Merge clusters into one; experts trained on them become stale."""
    submit(spec, run_options)


@app.command("split")
@takes(SplitCluster, "clustering", "cluster")
def split(spec: SplitCluster, run_options: RunOptions) -> None:
    """Split a cluster into smaller ones; experts trained on it become stale."""
    submit(spec, run_options)


@app.command("pin")
@takes(PinDocuments, "clustering", "cluster")
def pin(spec: PinDocuments, run_options: RunOptions) -> None:
    """Assign documents to a cluster by hand, whatever their nearest centre is."""
    submit(spec, run_options)


@app.command("domains")
@takes(MakeClusterDomains, "clustering", domains=[])
def domains(spec: MakeClusterDomains, run_options: RunOptions) -> None:
    """Make a domain of each cluster; documents stay in their splits."""
    submit(spec, run_options)


@app.command("choose")
@takes(MakeDomain, "clustering", "name")
def choose(spec: MakeDomain, run_options: RunOptions) -> None:
    """Make one domain of selected documents: those of an area on the map, of some clusters, or both."""
    submit(spec, run_options)


add_delete(
    app,
    "clustering",
    Name,
    "Delete a clustering; its domains are kept. Refused while an expert, a mixture or a job uses it.",
)
