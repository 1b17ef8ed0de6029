"""Figures 13 to 18 and tables 2 to 8 of C-BTM: ways to divide the text among models, and what clusters are like."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench_studies.cbtm.measurements import CbtmMeasurements
from workbench_studies.cbtm.names import PAPER, Division, System, shared
from workbench_studies.core.averages import Counted, Row
from workbench_studies.core.study import ratios_of

_DIVISIONS: tuple[Division, ...] = ("balanced", "random", "unbalanced")


def by_division(measured: CbtmMeasurements) -> dict[str, list[Row]]:
    """Figures 13 and 14, by the number of clusters as well, table 8, and tables 2 to 7, of the first seed."""
    subject, size, table_8 = measured.subject, measured.subject.budget, PAPER["table_8"]
    dense, main = System(subject.dense_reference), System(subject.reference)
    metadata = System(subject.metadata, "cached")
    first, *more = numbers = list(dict.fromkeys([subject.main.num_models, *sorted(size.also_ablated)]))
    others = [subject.ablated(division, number) for number in numbers for division in _DIVISIONS[1:]]
    fewer = [subject.ablated("balanced", number) for number in more]
    in_paper = {dense: table_8["dense"], metadata: table_8["metadata"], main: table_8["clusters"]}
    grouping = next(iter(measured.groupings_of(subject.main).values()), None)
    return {
        "divisions": [
            {
                "models": str(arm),
                "updates": shared(
                    size.training, arm.num_models, size.less if size.ablations_at_less else 1.0
                ).num_steps,
                **measured.perplexity(one),
                "paper, table 8": in_paper.get(one),
            }
            for one in (dense, main, *map(System, [*fewer, *others]), metadata)
            if (arm := one.arm)
        ],
        "numbers": [
            {"made": division, "clusters": number, **measured.perplexity(System(arm), with_novel=False)}
            for division in _DIVISIONS
            for number, arm in (
                (1, subject.dense_reference),
                *((number, subject.ablated(division, number)) for number in sorted({first, *more})),
            )
        ],
        "terms": [
            {"cluster": number, "documents": int(documents), "words": ", ".join(words)}
            for number, (documents, words) in enumerate(
                zip(grouping.counted.table.sum(0), grouping.terms, strict=True) if grouping else ()
            )
        ],
    }


def held_out(measured: CbtmMeasurements) -> list[Counted]:
    """The held-out documents of each seed by balanced and unbalanced cluster [B, U]."""
    balanced_ones, unbalanced = (
        measured.groupings_of(measured.subject.ablated(division)) for division in _DIVISIONS[::2]
    )
    tables = []
    for seed in sorted(balanced_ones.keys() & unbalanced.keys()):
        one, other = balanced_ones[seed], unbalanced[seed]
        cells_D = one.clusters_D * other.num_clusters + other.clusters_D
        held_out_D, shape = one.is_held_out_D, (one.num_clusters, other.num_clusters)
        tables.append(Counted(cells_D[held_out_D], one.wholes_D[held_out_D], shape))
    return tables


def pictures(measured: CbtmMeasurements) -> dict[str, Any]:
    """The matrices behind figures 15, 16 and 18: of the first seed, since each seed has clusters of its own.

    Ratios are those of each expert's perplexity on each cluster over that of the cluster's own expert.
    """
    arm, tables = measured.subject.main, [one.table for one in held_out(measured)]
    experts, runs = [System(arm, "alone", expert=number) for number in range(arm.num_models)], measured.subject.runs
    by_seed = (ratios_of(measured, n, experts, runs[n].domains(arm, ())) for n in measured.resampled.seeds)
    return {
        "ratios": next((table for table in by_seed if table), None),
        "labels": _labels(measured),
        "sizes": {
            "balanced": [table.sum(1).astype(int).tolist() for table in tables],
            "unbalanced": [table.sum(0).astype(int).tolist() for table in tables],
        },
    }


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
        "information": [grouping.information for grouping in groupings],
    }
