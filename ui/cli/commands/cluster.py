"""workbench cluster: find domains nobody named, change them, train a model on each (C-BTM)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ui.cli.job_progress import card_of, follow, report, submit
from ui.cli.options import How, Json, split_commas, takes
from ui.cli.output import day, print_done, print_json, print_table, say
from ui.cli.plan_progress import show_progress
from ui.cli.printing.clustering import print_branches, print_cluster, print_clustering
from ui.present.text.formatting import pluralize
from workbench.kinds.clusters.find_clusters import FindClusters
from workbench.kinds.clusters.make_cluster_domains import MakeClusterDomains
from workbench.kinds.clusters.merge_clusters import MergeClusters
from workbench.kinds.clusters.pin_documents import PinDocuments
from workbench.kinds.clusters.split_cluster import SplitCluster
from workbench.kinds.data.make_domain import MakeDomain
from workbench.registry.cards import ClusteringCard
from workbench.specs import TrainClusters

app = typer.Typer(no_args_is_help=True, help="Clusters: find, look at, change, make domains of, train a model on each.")

Name = Annotated[str, typer.Argument(help="Name of a clustering.")]
ClusterName = Annotated[str, typer.Argument(help="A cluster, by number or name.")]


@app.command("find")
@takes(FindClusters, "name")
def find(spec: FindClusters, how: How) -> None:
    """Find clusters among documents, put every document into one, and describe them."""
    if how.here:
        submit(spec, how)
        return
    from jobs.plans.clusterings import submit_find

    last = submit_find(spec)[-1]
    report(follow(last, how.json) if how.wait else card_of(last), how.json)


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """Every clustering."""
    from workbench.registry.clusterings import list_clusterings
    from workbench.registry.database import reading

    with reading() as session:
        cards = list_clusterings(session)
    if as_json:
        print_json(cards)
        return
    rows = [
        (
            one.name,
            one.config["clusters"]["method"],
            len(one.clusters),
            one.num_documents,
            one.sources,
            one.stale_experts,
            day(one.created_at),
        )
        for one in cards
    ]
    columns = ["Clustering", "Method", "Clusters", "Documents", "Of domains", "Stale experts", "Made"]
    print_table(columns, rows, empty="There is no clustering yet. Find one with: workbench cluster find NAME")


@app.command("show")
def show(
    name: Name,
    cluster: Annotated[str, typer.Argument(help="A cluster, by number or name; empty shows all.")] = "",
    as_json: Json = False,
) -> None:
    """A clustering with the terms of its clusters; or one cluster with its typical documents."""
    from workbench.registry.clusterings import get_clustering
    from workbench.registry.database import reading

    with reading() as session:
        card = get_clustering(session, name)
    if cluster:
        print_cluster(card, cluster, as_json)
    elif as_json:
        print_json(card)
    else:
        print_clustering(card)


@app.command("changes")
def changes(
    name: Name,
    domains: Annotated[str, typer.Option(help="Domains to compare with; empty: those now called as then.")] = "",
    as_json: Json = False,
) -> None:
    """How text differs from what was clustered: which documents are missing, which are new."""
    from workbench.registry import cluster_documents
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        found = cluster_documents.changes(session, get_storage(), name, split_commas([domains]))
    if as_json:
        print_json(found)
        return
    if not found["num_missing"] and not found["num_new"]:
        say("Nothing changed: every document that was clustered is there, and no other.")
        return
    for what, told in (("missing", "that were clustered are missing"), ("new", "were not there then")):
        ids = found[what]
        more = ", …" if found[f"num_{what}"] > len(ids) else ""
        say(f"{pluralize(found[f'num_{what}'], 'document')} {told}" + (f": {', '.join(ids)}{more}" if ids else "."))


@app.command("rename")
def rename(
    name: Name,
    cluster: ClusterName,
    new_name: Annotated[str, typer.Argument(help="The new name.")],
    as_json: Json = False,
) -> None:
    """Give a cluster another name; no document moves."""
    from workbench.registry.clusterings import rename_cluster

    _print_changed(rename_cluster, (name, cluster, new_name), f"“{cluster}” is now called “{new_name}”.", as_json)


@app.command("note")
def note(
    name: Name,
    cluster: ClusterName,
    notes: Annotated[str, typer.Argument(help="Free text about the cluster; replaces what was there.")],
    as_json: Json = False,
) -> None:
    """Write down what you know about a cluster."""
    from workbench.registry.clusterings import note_cluster

    _print_changed(note_cluster, (name, cluster, notes), f"Noted on “{cluster}”.", as_json)


def _print_changed(change: Callable[..., ClusteringCard], told: tuple[str, str, str], done: str, as_json: bool) -> None:
    """Changes what a cluster is called, or what is noted on it, and says so."""
    from workbench.registry.database import transaction

    with transaction() as session:
        card = change(session, *told)
    print_done(card, done, as_json)


@app.command("merge")
@takes(MergeClusters, "clustering")
def merge(spec: MergeClusters, how: How) -> None:
    """Make one cluster of several; experts trained on one of them become stale, no other does."""
    submit(spec, how)


@app.command("split")
@takes(SplitCluster, "clustering", "cluster")
def split(spec: SplitCluster, how: How) -> None:
    """Find clusters within a cluster; experts trained on it become stale, no other does."""
    submit(spec, how)


@app.command("pin")
@takes(PinDocuments, "clustering", "cluster")
def pin(spec: PinDocuments, how: How) -> None:
    """Put documents into a cluster by hand, wherever the nearest centre is."""
    submit(spec, how)


@app.command("domains")
@takes(MakeClusterDomains, "clustering", domains=[])
def domains(spec: MakeClusterDomains, how: How) -> None:
    """Make a domain of each cluster; documents that are held out stay held out."""
    submit(spec, how)


@app.command("choose")
@takes(MakeDomain, "clustering", "name")
def choose(spec: MakeDomain, how: How) -> None:
    """Make one domain of chosen documents: of an area on the map, of some clusters, or of both."""
    submit(spec, how)


@app.command("train")
@takes(TrainClusters, "clustering", "name")
def train(
    spec: TrainClusters,
    how: How,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Show what each model would begin from; queue nothing.")] = False,
) -> None:
    """Train a model on each cluster, every one a job of its own, and compose them; asked again, it goes on.

    Models that are there stay. Those of clusters that changed since are trained anew. What is to be trained, and what
    each model begins from, is shown before anything is queued.
    """
    from jobs.plans.clusterings import plan_training, submit_training
    from jobs.queue.local_runner import cards_of

    branches = plan_training(spec)
    if plan and how.json:
        print_json(branches)
        return
    if not how.json:
        print_branches(branches, spec)
    if plan:
        return
    ids = submit_training(spec, branches=branches)
    if how.here or how.wait:
        show_progress(ids, how.here, quiet=how.json)
    cards = cards_of(ids)
    for card in cards:
        if card.state in ("failed", "cancelled"):
            report(card, how.json)
    if how.json:
        print_json({"name": spec.name, "jobs": ids, "state": cards[-1].state, "result": cards[-1].result})
        return
    done = sum(one.state == "done" for one in cards)
    say(f"{spec.name}: {done} of {pluralize(len(cards), 'job')} done.")
    if cards[-1].state != "done":
        say("The rest waits for a worker (`workbench up`); the same command shows how far it is.")


@app.command("delete")
def delete(name: Name, as_json: Json = False) -> None:
    """Delete a clustering; its domains stay. Refused while an expert, a mixture or a job depends on it."""
    from workbench.registry.clusterings import delete_clustering
    from workbench.registry.database import transaction

    with transaction() as session:
        delete_clustering(session, name)
    print_done({"deleted": name}, f"“{name}” is deleted.", as_json)
