"""Figures 13 to 18 and tables 2 to 8 of C-BTM: ways to divide the text among models, and what clusters are like."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench_studies.cbtm.measurements import CbtmMeasurements
from workbench_studies.cbtm.names import PAPER, Division, System, shared, single_model
from workbench_studies.core.averages import Counted
from workbench_studies.core.findings import Row
from workbench_studies.core.shapes import ratios_of

_DIVISIONS: tuple[Division, ...] = ("balanced", "random", "unbalanced")


def divisions(measured: CbtmMeasurements) -> list[Row]:
    """Figures 13 and 14 and table 8: ways to divide the text among models, at equal tokens."""
    subject, size = measured.subject, measured.subject.budget
    share, table_8 = size.less if size.ablations_at_less else 1.0, PAPER["table_8"]
    dense, main = System(subject.dense_reference), System(subject.reference)
    metadata = System(subject.metadata, "cached")
    numbers = sorted({main_number := subject.main.num_models, *size.also_ablated}, key=lambda one: one != main_number)
    others = [System(subject.ablated(one, number)) for number in numbers for one in _DIVISIONS[1:]]
    fewer = [System(subject.ablated("balanced", number)) for number in numbers[1:]]
    in_paper = {dense: table_8["dense"], metadata: table_8["metadata"], main: table_8["clusters"]}
    return [
        {
            "models": str(arm),
            "updates": shared(size.training, arm.num_models, share).num_steps,
            **measured.perplexity(one),
            "paper, table 8": in_paper.get(one),
        }
        for one in (dense, main, *fewer, *others, metadata)
        if (arm := one.arm)
    ]


def by_number(measured: CbtmMeasurements) -> list[Row]:
    """Figures 13 and 14: perplexity by the number of clusters, for each way to make them, at the same tokens."""
    subject = measured.subject
    numbers = sorted({subject.main.num_models, *subject.budget.also_ablated})
    return [
        {"made": division, "clusters": number, **measured.perplexity(System(arm), with_novel=False)}
        for division in _DIVISIONS
        for number, arm in ((1, subject.dense_reference), *((n, subject.ablated(division, n)) for n in numbers))
    ]


def held_out(measured: CbtmMeasurements) -> list[Counted]:
    """The held-out documents of each seed by balanced and unbalanced cluster [B, U]."""
    balanced_ones, unbalanced = (measured.groupings_of(measured.subject.ablated(one)) for one in _DIVISIONS[::2])
    tables = []
    for seed in sorted(balanced_ones.keys() & unbalanced.keys()):
        one, other = balanced_ones[seed], unbalanced[seed]
        cells_D = one.clusters_D * other.num_clusters + other.clusters_D
        held_out_D, shape = one.is_held_out_D, (one.num_clusters, other.num_clusters)
        tables.append(Counted(cells_D[held_out_D], one.wholes_D[held_out_D], shape))
    return tables


def terms(measured: CbtmMeasurements) -> list[Row]:
    """Tables 2 to 7: the first words of each cluster of the main arm, in the first seed that has it."""
    for grouping in measured.groupings_of(measured.subject.main).values():
        sizes = grouping.counted.table.sum(0)
        return [
            {"cluster": number, "documents": int(sizes[number]), "words": ", ".join(words)}
            for number, words in enumerate(grouping.terms)
        ]
    return []


def pictures(measured: CbtmMeasurements) -> dict[str, Any]:
    """The matrices behind figures 15, 16 and 18: of the first seed, since each seed has clusters of its own."""
    tables = [one.table for one in held_out(measured)]
    return {
        "ratios": next((table for seed in measured.resampled.seeds if (table := _ratios(measured, seed))), None),
        "labels": _labels(measured),
        "sizes": {
            "balanced": [table.sum(1).astype(int).tolist() for table in tables],
            "unbalanced": [table.sum(0).astype(int).tolist() for table in tables],
        },
    }


def _ratios(measured: CbtmMeasurements, seed: int) -> list[list[float]] | None:
    """Figure 15 in one seed: each expert's perplexity on each cluster over that of the cluster's own expert."""
    arm = measured.subject.main
    experts = [single_model(arm, number) for number in range(arm.num_models)]
    return ratios_of(measured, seed, experts, measured.subject.runs[seed].domains(arm, ()))


def _labels(measured: CbtmMeasurements) -> Row | None:
    """The share of each label's documents in each cluster, and the normalised mutual information of every seed."""
    groupings = list(measured.groupings_of(measured.subject.main).values())
    if not groupings:
        return None
    counts_LK = groupings[0].counted.table
    shares_LK = counts_LK / np.maximum(counts_LK.sum(1, keepdims=True), 1)
    return {
        "labels": list(groupings[0].labels),
        "shares": shares_LK.round(4).tolist(),
        "information": [one.information for one in groupings],
    }
