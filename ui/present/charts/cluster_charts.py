"""Charts of a clustering: cluster sizes, and the overlap of clusters with domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.present.charts.colours import Looks, of_clusters
from ui.present.charts.heatmap import new_heatmap
from ui.present.text.formatting import pluralize
from workbench.answers.cards import ClusterCard, ClusteringCard
from workbench.formatting.chart_template import CaptionedChart, fill_of, name_axis, new_figure
from workbench.formatting.number_format import full_label, number, share


def sizes_picture(card: ClusteringCard, looks: Looks) -> CaptionedChart:
    """Documents in each cluster (C-BTM figure 18)."""
    ranked = sorted(card.clusters, key=lambda cluster: -cluster.num_documents)
    figure = new_figure("cluster", "documents")
    places = name_axis(figure, "x", [cluster.name for cluster in ranked])
    own = of_clusters(card.clusters, looks)
    fill = fill_of([own[cluster.name] for cluster in ranked])
    figure.add_bar(x=places, y=[cluster.num_documents for cluster in ranked], marker=fill)
    hover = [full_label(cluster.name) for cluster in ranked]
    figure.update_traces(customdata=hover, hovertemplate="%{customdata}: %{y:,}<extra></extra>")
    largest, smallest = ranked[0], ranked[-1]
    words = (
        f"Bar chart of the documents in {pluralize(len(ranked), 'cluster')}. The largest is {largest.name} with "
        f"{largest.num_documents:,}, the smallest {smallest.name} with {smallest.num_documents:,}."
    )
    table = [{"cluster": c.name, "number": c.number, "documents": c.num_documents} for c in ranked]
    return CaptionedChart(figure, _sizes_title(card, ranked), words, table)


def _sizes_title(card: ClusteringCard, ranked: Sequence[ClusterCard]) -> str:
    if card.config["clusters"]["method"] == "balanced":
        return (
            "Cluster sizes: fitted documents are divided evenly, the others go to the nearest centre, "
            "so a long bar is a common subject"
        )
    largest = ranked[0].num_documents / max(1, card.num_documents)
    return f"Cluster sizes: the largest cluster holds {share(largest)} of all documents"


def overlap_picture(card: ClusteringCard, looks: Looks) -> CaptionedChart:
    """The share of each domain's documents in each cluster (C-BTM figure 16): a row sums to 1."""
    overlap = card.metrics["overlap"]
    labels, names = overlap["labels"], [cluster.name for cluster in card.clusters]
    shares = [[count / max(1, sum(row)) for count in row] for row in overlap["counts"]]
    figure = new_heatmap(
        "cluster",
        "domain",
        names,
        labels,
        looks=([*of_clusters(card.clusters, looks).values()], [*map(looks.domain, labels)]),
        z=shares,
        zmin=0.0,
        zmax=1.0,
        numbers="%{z:.2f}",
        customdata=_hover(labels, names, overlap["counts"]),
        hovertemplate="%{customdata}<br>share %{z:.2f}<extra></extra>",
        colorbar={"title": "share"},
    )
    table = [
        {"domain": domain, "cluster": name, "documents": count, "share of the domain": share}
        for domain, counts, row in zip(labels, overlap["counts"], shares, strict=True)
        for name, count, share in zip(names, counts, row, strict=True)
    ]
    return CaptionedChart(figure, _overlap_title(overlap), _describe_overlap(labels, names, shares, overlap), table)


def _hover(labels: Sequence[str], names: Sequence[str], counts: Sequence[Sequence[int]]) -> list[list[str]]:
    return [
        [
            f"{full_label(domain)} in {full_label(name)}<br>{count:,} documents"
            for name, count in zip(names, row, strict=True)
        ]
        for domain, row in zip(labels, counts, strict=True)
    ]


def _overlap_title(overlap: Mapping[str, Any]) -> str:
    shared = overlap["normalised_mutual_information"]
    if len(overlap["labels"]) < 2:
        return "Overlap of clusters and domains: all documents come from one domain"
    return f"Overlap of clusters and domains: one bright cell in a row means a match (NMI {number(shared, 2)})"


def _describe_overlap(
    labels: Sequence[str], names: Sequence[str], shares: Sequence[Sequence[float]], overlap: Mapping[str, Any]
) -> str:
    sentences = [
        f"{domain} lies mostly in {names[row.index(max(row))]} ({share(max(row))})"
        for domain, row in zip(labels[:6], shares, strict=False)
    ]
    more = f" {len(labels) - 6} more domains are in the table." if len(labels) > 6 else ""
    shared = overlap["normalised_mutual_information"]
    information = f"Normalised mutual information {number(shared, 2)}."
    return f"Heatmap of domains (rows) by clusters. {'; '.join(sentences)}.{more} {information}"
