"""The findings of a replication of DEMix, as JSON for its report, its page and other programs: tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from workbench_studies.core.averages import Row, interval_columns
from workbench_studies.core.measurements import comparison, fit_row, num_documents
from workbench_studies.demix.claims import judge
from workbench_studies.demix.measurements import (
    Belief,
    Curve,
    DemixMeasurements,
    SplitWords,
    TrainedModel,
    crossing,
    drift_of,
    mean_curve,
    model_rows,
    ratios_by_seed,
    word_rows,
)
from workbench_studies.demix.names import (
    CALIBRATED,
    CODE,
    GRID,
    METHODS,
    PAPER,
    PRINTED,
    READ_MODES,
    READINGS,
    WORDS,
    System,
    Variant,
    system,
)

TRAINING, NOVEL = "training domains", "novel domains"
_DENSE, _NAIVE, _INTERLEAVED = System("dense"), System("naive"), System("interleaved")


def findings_of(
    measured: DemixMeasurements,
    curves: Sequence[Curve] = (),
    models: Sequence[TrainedModel] = (),
    words: Mapping[str, SplitWords] | None = None,
) -> Row:
    """What only this paper's findings have, with the claims on which the posterior's reading bears under every one.

    `words` are those of each imported domain.
    """
    return {
        "removed": list(measured.subject.removed),
        "texts": [
            row | {"dev documents": max((num_documents(one.documents_N) for one in beliefs), default=None)}
            for row in measured.text_rows()
            for beliefs in [measured.beliefs_on(row["text"])]
        ],
        "readings": [
            {"reading": str(reading), **verdict.as_dict()}
            for reading in READINGS
            for verdict in judge(measured, reading, lambda claim: claim.is_read)
        ],
        "calibrated": _ours(measured),
        "tables": {
            "interleaving": _by_overlap(measured),
            "1": word_rows(measured.subject, words or {}),
            "2": model_rows(models),
            **_averages(measured),
            **_by_domain(measured),
        },
        "curves": [
            {"system": curve.system, "seed": curve.seed, "tokens": tokens, "perplexity": value}
            for curve in curves
            if curve.system in METHODS
            for tokens, value in curve.mean(measured.subject.domains).items()
        ],
        "crossing": _crossing(measured, curves),
        "forgetting": list(_forgetting(measured, curves)),
        "pictures": _pictures(measured),
    }


def _ours(measured: DemixMeasurements) -> Row:
    """The fit of each seed, and how the reading compares on test text of both kinds and on each domain.

    Each mode is compared with Dense and with the same mode under the paper's readings.
    """
    subject = measured.subject
    cached = {str(one): system("cached", one) for one in (PAPER, CODE, CALIBRATED)}
    against = [
        {"text": text, "mode": mode, "against": name, **compared}
        for text, domains in ((TRAINING, subject.domains), (NOVEL, subject.novel))
        for mode in READ_MODES
        for name, other in ({WORDS["dense"]: _DENSE} | {str(one): system(mode, one) for one in (PAPER, CODE)}).items()
        if (compared := comparison(measured, system(mode, CALIBRATED), other, domains))
    ]
    return {
        "fits": [fit_row(seed, fit) for seed, fit in sorted(measured.fits.items())],
        "against": against,
        "by domain": measured.by_domain(subject.everywhere, {WORDS["dense"]: _DENSE} | cached, with_role=True),
    }


def _averages(measured: DemixMeasurements) -> dict[str, list[Row]]:
    """Tables of averages over domains, with their intervals; the paper's are by the size of its models."""
    subject, average, sizes = measured.subject, measured.average, PRINTED["sizes"]
    texts = {"training": subject.domains, "novel": subject.novel}
    both: dict[Variant, tuple[int, str]] = {
        "cached": (len(subject.domains), "8"),
        "grown": (len(subject.everywhere), "16"),
    }
    return {
        "3": list(_by_reading(measured, "table_3", subject.domains)),
        "5": list(_by_reading(measured, "table_5", subject.novel)),
        "5 by λ": [
            {"λ": value, "share of the newest block": reading.newest_weight}
            | interval_columns(average(system("updating", reading), subject.domains), "training", "training, ")
            | interval_columns(average(system("updating", reading), subject.novel), "novel", "novel, ")
            for value, reading in GRID.items()
        ],
        "5 by reading": [
            {
                "reading": str(reading),
                "system": WORDS[mode],
                **interval_columns(average(system(mode, reading), subject.novel)),
            }
            for reading in (*READINGS, CALIBRATED)
            for mode in ("naive", "average", *READ_MODES)
        ],
        "6": [
            {
                "domains": text,
                "experts": number,
                **dict(zip(sizes, PRINTED["table_6"][text][printed], strict=True)),
                **interval_columns(average(system(mode, PAPER), domains)),
            }
            for text, domains in texts.items()
            for mode, (number, printed) in both.items()
        ],
    }


def _by_reading(measured: DemixMeasurements, table: str, domains: Sequence[str]) -> Iterator[Row]:
    """The rows of table 3 or 5: the paper's averages by model size, and ours with its interval.

    The paper's rows have its reading of the posterior. What a reading touches follows under that of the released code,
    and calibrated, which is ours: the paper has no numbers for these.
    """
    for reading in (PAPER, CODE, CALIBRATED):
        for mode, printed in PRINTED[table].items():
            if reading == PAPER or mode in READ_MODES:
                result = measured.average(system(mode, reading), domains)
                yield {
                    "system": WORDS[mode],
                    "reading": str(reading) if mode in READ_MODES else "",
                    **(dict(zip(PRINTED["sizes"], printed, strict=True)) if reading == PAPER else _NOT_PRINTED),
                    **(interval_columns(result) if result else {}),
                }


_NOT_PRINTED = dict.fromkeys(PRINTED["sizes"])


def _by_domain(measured: DemixMeasurements) -> dict[str, list[Row]]:
    """Tables by domain; where names differ from the paper's, the last row has its average."""
    subject = measured.subject
    change = measured.change_by_domain(_NAIVE, _DENSE, subject.domains)
    removal: tuple[Variant, ...] = ("cached", "minus expert", "minus domain")
    without = {name: system(mode, PAPER) for name, mode in zip(PRINTED["table_7"], removal, strict=True)}
    averages = {"average": subject.domains, "retrained, average": subject.removed}
    return {
        "4": [
            row | interval_columns(change.get(row["domain"]), "naive against dense, %")
            for row in measured.by_domain(subject.domains, _as_printed("table_4"))
        ]
        + [{"domain": "paper, average (1.3B)", **{WORDS[mode]: one for mode, one in PRINTED["table_4"].items()}}],
        "5 by domain": measured.by_domain(subject.novel, _as_printed("table_5")),
        "7": [
            *measured.by_domain(subject.domains, without),
            *(
                {"domain": text, **{name: measured.value(one, domains) for name, one in without.items()}}
                for text, domains in averages.items()
            ),
            {"domain": "paper, average", **PRINTED["table_7"]},
        ],
        "13": _adapting(measured),
    }


def _as_printed(table: str) -> dict[str, System]:
    """The systems of a table of the paper, in its order and under its reading."""
    return {WORDS[mode]: system(mode, PAPER) for mode in PRINTED[table]}


def _adapting(measured: DemixMeasurements) -> list[Row]:
    """Table 13 by target, dense-DAPT and DEMix-DAPT side by side; the last row is the paper's average."""

    def change(after: System, before: System, domains: Sequence[str]) -> float | None:
        result = measured.change(after, before, domains)
        return result.value if result else None

    rows: list[Row] = [
        {
            "target": novel,
            "method": method,
            "target, %": change(after, before, [novel]),
            "training domains, %": change(after, before, measured.subject.domains),
            "perplexity on the target": measured.value(after, [novel]),
        }
        for novel in measured.subject.novel
        for method, after, before in (
            ("dense-DAPT", System("dense-dapt", domain=novel), _DENSE),
            ("DEMix-DAPT", system("demix-dapt", PAPER, novel), system("cached", PAPER)),
        )
    ]
    printed = {"target, %": PRINTED["table_13"]["novel"], "training domains, %": PRINTED["table_13"]["training"]}
    return [*rows, {"target": "paper, average", "method": "dense-DAPT", **printed}]


def _by_overlap(measured: DemixMeasurements) -> list[Row]:
    """§3.3: each training domain's change by interleaving, with its overlap; empty where no arm interleaves."""
    if measured.subject.budget.interleaved_every is None:
        return []
    overlaps = measured.overlap_with_others(measured.subject.domains)
    systems = {"experts in every layer": _NAIVE, "in some layers": _INTERLEAVED}
    return [
        {"domain": row.pop("domain"), "overlap with the others": overlap, **row}
        | interval_columns(measured.change(_INTERLEAVED, _NAIVE, [domain]), "change, %")
        for (domain, overlap), row in zip(overlaps.items(), measured.by_domain(list(overlaps), systems), strict=True)
    ]


# curves and pictures ------------------------------------------------------------------------------


def _crossing(measured: DemixMeasurements, curves: Sequence[Curve]) -> dict[str, Row | None]:
    """Where DEMix overtakes each baseline on the training domains, by the mean over seeds."""
    means = {
        method: mean_curve([curve for curve in curves if curve.system == method], measured.subject.domains)
        for method in METHODS
    }
    return {method: crossing(means["demix"], means[method]) for method in METHODS if method != "demix"}


def _forgetting(measured: DemixMeasurements, curves: Sequence[Curve]) -> Iterator[Row]:
    """Figure 6: the target and the mean of the training domains while a model is adapted."""
    for curve in curves:
        if curve.target:
            for text, domains in (("target", [curve.target]), (TRAINING, measured.subject.domains)):
                for tokens, value in curve.mean(domains).items():
                    row = {"method": curve.system, "target": curve.target, "seed": curve.seed, "text": text}
                    yield row | {"tokens": tokens, "perplexity": value}


def _pictures(measured: DemixMeasurements) -> dict[str, Any]:
    """The matrices behind figures 2, 4, 7 and 8, averaged over seeds."""
    domains, overlap, tables = measured.subject.domains, measured.overlap, ratios_by_seed(measured)
    beliefs = {domain: measured.beliefs_on(domain) for domain in measured.subject.everywhere}
    return {
        "ratios": np.mean(tables, axis=0).tolist() if tables else None,
        "overlap": None if overlap is None else [[overlap[one, other] for other in domains] for one in domains],
        "posteriors": {domain: _posterior(results) for domain, results in beliefs.items() if results},
    }


def _posterior(beliefs: Sequence[Belief]) -> Row:
    """A domain's mean posterior, where the updating prior ends, and the course of the mean in the first seed."""
    first = beliefs[0]
    means_EN = first.posterior_EN.cumsum(1) / np.arange(1, first.posterior_EN.shape[1] + 1)
    return {
        "mean": np.mean([belief.posterior_EN.mean(1) for belief in beliefs], axis=0).tolist(),
        "updating": np.mean([belief.updating_EN[:, -1] for belief in beliefs], axis=0).tolist(),
        "course": means_EN.round(4).tolist(),  # stored name
        "moved": [drift_of(belief) for belief in beliefs],
    }
