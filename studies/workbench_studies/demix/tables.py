"""The findings of a replication of DEMix, as JSON for its report, its page and other programs: tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from workbench_studies.core.averages import SystemChange
from workbench_studies.core.calibration import comparison, fit_row
from workbench_studies.core.curves import Curve, crossing, mean_curve
from workbench_studies.core.findings import Row, interval_columns, num_documents, text_rows
from workbench_studies.core.shapes import changes_by_domain, ratios_of
from workbench_studies.demix.measurements import Belief, DemixMeasurements
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
    demix_dapt,
    dense_dapt,
    single_expert,
    system,
)
from workbench_studies.demix.specifications import SplitWords, TrainedModel, model_rows, word_rows

STABLE_AFTER = 50  # blocks, “usually” (§A.6)
SETTLED = 0.05  # a mean posterior is stable when no share moves further than this
TRAINING, NOVEL = "training domains", "novel domains"
_DENSE, _NAIVE, _INTERLEAVED = System("dense"), System("naive"), System("interleaved")


def findings_of(
    measured: DemixMeasurements,
    readings: Sequence[Row],
    curves: Sequence[Curve] = (),
    models: Sequence[TrainedModel] = (),
    words: Mapping[str, SplitWords] | None = None,
) -> Row:
    """What only this paper's findings have; `words` are those of each imported domain."""
    specifications = {"1": word_rows(measured.subject, words or {}), "2": model_rows(models)}
    return {
        "removed": list(measured.subject.removed),
        "texts": _texts(measured),
        "readings": readings,
        "calibrated": _calibrated_findings(measured),
        "tables": {"interleaving": by_domain(measured), **specifications, **_tables(measured)},
        "curves": _curves(measured, curves),
        "crossing": _crossing(measured, curves),
        "forgetting": _forgetting(measured, curves),
        "pictures": _pictures(measured),
    }


def _texts(measured: DemixMeasurements) -> list[Row]:
    """With the documents of the development text that posteriors were read from."""
    return [
        row
        | {
            "dev documents": max(
                (num_documents(one.documents_N) for one in measured.beliefs_on(row["text"])), default=None
            )
        }
        for row in text_rows(measured)
    ]


# our own reading ----------------------------------------------------------------------------------


def _calibrated_findings(measured: DemixMeasurements) -> Row:
    """The fit of each seed, and how the reading compares on test text of both kinds and on each domain."""
    readings = {str(one): system("cached", one) for one in (PAPER, CODE, CALIBRATED)}
    return {
        "fits": [fit_row(seed, fit) for seed, fit in sorted(measured.fits.items())],
        "against": list(_against(measured)),
        "by domain": [
            {
                "domain": domain,
                "role": measured.subject.role_of(domain),
                **_values(measured, {WORDS["dense"]: _DENSE} | readings, domain),
            }
            for domain in measured.subject.everywhere
        ],
    }


def _against(measured: DemixMeasurements) -> Iterator[Row]:
    """The difference of each mode from Dense and from the same mode under the paper's readings."""
    for text, domains in ((TRAINING, measured.subject.domains), (NOVEL, measured.subject.novel)):
        for mode in READ_MODES:
            others = {WORDS["dense"]: _DENSE} | {str(one): system(mode, one) for one in (PAPER, CODE)}
            for name, other in others.items():
                if compared := comparison(measured.resampled, system(mode, CALIBRATED), other, domains):
                    yield {"text": text, "mode": mode, "against": name, **compared}


# tables -------------------------------------------------------------------------------------------


def _tables(measured: DemixMeasurements) -> dict[str, list[Row]]:
    return {
        "3": _averages(measured, "table_3", measured.subject.domains),
        "4": _by_domain(measured),
        "5": _averages(measured, "table_5", measured.subject.novel),
        "5 by domain": [
            {"domain": novel, **_values(measured, {WORDS[mode]: system(mode, PAPER) for mode in _IN_TABLE_5}, novel)}
            for novel in measured.subject.novel
        ],
        "5 by λ": _by_lambda(measured),
        "5 by reading": [
            {
                "reading": str(reading),
                "system": WORDS[mode],
                **interval_columns(measured.resampled.average(system(mode, reading), measured.subject.novel)),
            }
            for reading in (*READINGS, CALIBRATED)
            for mode in ("naive", "average", *READ_MODES)
        ],
        "6": _sizes_of_mixture(measured),
        "7": _removal(measured),
        "13": _dapt(measured),
    }


def _values(measured: DemixMeasurements, systems: Mapping[str, System], *domains: str) -> Row:
    """The perplexity of each system, averaged over domains."""
    return {name: measured.value(one, domains) for name, one in systems.items()}


def _averages(measured: DemixMeasurements, table: str, domains: Sequence[str]) -> list[Row]:
    """The rows of table 3 or 5: the paper's averages by model size, and ours with its interval.

    The paper's rows have its reading of the posterior. What a reading touches follows under that of the released code,
    and calibrated, which is ours: the paper has no numbers for these.
    """
    rows: list[Row] = []
    for reading in (PAPER, CODE, CALIBRATED):
        for mode, printed in PRINTED[table].items():
            if reading == PAPER or mode in READ_MODES:
                results = measured.resampled.average(system(mode, reading), domains)
                numbers = printed if reading == PAPER else [None] * len(printed)
                rows.append(
                    {
                        "system": WORDS[mode],
                        "reading": str(reading) if mode in READ_MODES else "",
                        **dict(zip(PRINTED["sizes"], numbers, strict=True)),
                        **(interval_columns(results) if results else {}),
                    }
                )
    return rows


def _by_domain(measured: DemixMeasurements) -> list[Row]:
    """Table 4: every training domain, since names differ from the paper's; the last row has the paper's average."""
    change = changes_by_domain(measured, _NAIVE, _DENSE, measured.subject.domains)
    systems = {WORDS[mode]: system(mode, PAPER) for mode in PRINTED["table_4"]}
    rows: list[Row] = [
        {
            "domain": domain,
            **_values(measured, systems, domain),
            **interval_columns(change.get(domain), "naive against dense, %"),
        }
        for domain in measured.subject.domains
    ]
    printed = {WORDS[mode]: number for mode, number in PRINTED["table_4"].items()}
    return [*rows, {"domain": "paper, average (1.3B)", **printed}]


_IN_TABLE_5: Sequence[Variant] = list(PRINTED["table_5"])


def _by_lambda(measured: DemixMeasurements) -> list[Row]:
    """DEMix (updating) under every λ of the paper's grid, by the paper's reading: averages over domains."""
    texts = {"training": measured.subject.domains, "novel": measured.subject.novel}
    rows: list[Row] = []
    for value, reading in GRID.items():
        rows.append({"λ": value, "share of the newest block": reading.newest_weight})
        for text, domains in texts.items():
            average = measured.resampled.average(system("updating", reading), domains)
            rows[-1] |= interval_columns(average, text, f"{text}, ")
    return rows


def _sizes_of_mixture(measured: DemixMeasurements) -> list[Row]:
    subject = measured.subject
    both: tuple[tuple[Variant, int, str], ...] = (
        ("cached", len(subject.domains), "8"),
        ("grown", len(subject.everywhere), "16"),
    )
    return [
        {
            "domains": text,
            "experts": number,
            **dict(zip(PRINTED["sizes"], PRINTED["table_6"][text][printed], strict=True)),
            **interval_columns(measured.resampled.average(system(mode, PAPER), domains)),
        }
        for text, domains in (("training", subject.domains), ("novel", subject.novel))
        for mode, number, printed in both
    ]


def _removal(measured: DemixMeasurements) -> list[Row]:
    modes: tuple[Variant, ...] = ("cached", "minus expert", "minus domain")
    columns = {name: system(mode, PAPER) for name, mode in zip(PRINTED["table_7"], modes, strict=True)}
    texts = {one: [one] for one in measured.subject.domains}
    texts |= {"average": [*measured.subject.domains], "retrained, average": [*measured.subject.removed]}
    rows: list[Row] = [{"domain": name, **_values(measured, columns, *domains)} for name, domains in texts.items()]
    return [*rows, {"domain": "paper, average", **PRINTED["table_7"]}]


def _dapt(measured: DemixMeasurements) -> list[Row]:
    """Table 13 by target, dense-DAPT and DEMix-DAPT side by side; the last row is the paper's average."""

    def change(after: System, before: System, domains: Sequence[str]) -> float | None:
        results = measured.resampled.changes([SystemChange(after, before, domain) for domain in domains])
        return results.value if results else None

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
            ("dense-DAPT", dense_dapt(novel), _DENSE),
            ("DEMix-DAPT", demix_dapt(novel, PAPER), system("cached", PAPER)),
        )
    ]
    printed = {"target, %": PRINTED["table_13"]["novel"], "training domains, %": PRINTED["table_13"]["training"]}
    return [*rows, {"target": "paper, average", "method": "dense-DAPT", **printed}]


def by_domain(measured: DemixMeasurements) -> list[Row]:
    """§3.3: each training domain's change by interleaving, with its overlap; empty where no arm interleaves."""
    if measured.subject.budget.interleaved_every is None:
        return []
    return [
        {
            "domain": domain,
            "overlap with the others": overlap,
            **_values(measured, {"experts in every layer": _NAIVE, "in some layers": _INTERLEAVED}, domain),
            **interval_columns(measured.resampled.changes([SystemChange(_INTERLEAVED, _NAIVE, domain)]), "change, %"),
        }
        for domain, overlap in measured.overlap_with_others(measured.subject.domains).items()
    ]


# curves and pictures ------------------------------------------------------------------------------


def _curves(measured: DemixMeasurements, curves: Sequence[Curve]) -> list[Row]:
    return [
        {"system": curve.system, "seed": curve.seed, "tokens": tokens, "perplexity": value}
        for curve in curves
        if curve.system in METHODS
        for tokens, value in curve.mean(measured.subject.domains).items()
    ]


def _crossing(measured: DemixMeasurements, curves: Sequence[Curve]) -> dict[str, Row | None]:
    """Where DEMix overtakes each baseline on the training domains, by the mean over seeds."""
    means = {
        method: mean_curve([one for one in curves if one.system == method], measured.subject.domains)
        for method in METHODS
    }
    results = {method: crossing(means["demix"], means[method]) for method in METHODS if method != "demix"}
    return {method: asdict(one) if one else None for method, one in results.items()}


def _forgetting(measured: DemixMeasurements, curves: Sequence[Curve]) -> list[Row]:
    """Figure 6: the target and the mean of the training domains while a model is adapted."""
    return [
        {
            "method": curve.system,
            "target": curve.target,
            "seed": curve.seed,
            "text": text,
            "tokens": tokens,
            "perplexity": value,
        }
        for curve in curves
        if curve.target
        for text, domains in (("target", [curve.target]), (TRAINING, measured.subject.domains))
        for tokens, value in curve.mean(domains).items()
    ]


def _pictures(measured: DemixMeasurements) -> dict[str, Any]:
    """The matrices behind figures 2, 4, 7 and 8, averaged over seeds."""
    domains, overlap = measured.subject.domains, measured.overlap
    tables = [table for seed in measured.resampled.seeds if (table := ratios(measured, seed))]
    beliefs = {domain: measured.beliefs_on(domain) for domain in measured.subject.everywhere}
    return {
        "ratios": np.mean(tables, axis=0).tolist() if tables else None,
        "overlap": None if overlap is None else [[overlap[one, other] for other in domains] for one in domains],
        "posteriors": {domain: _posterior(results) for domain, results in beliefs.items() if results},
    }


def ratios(measured: DemixMeasurements, seed: int) -> list[list[float]] | None:
    """Figure 2 in one seed: each expert's perplexity on each domain over that of the domain's own expert."""
    domains = measured.subject.domains
    return ratios_of(measured, seed, [single_expert(domain) for domain in domains], domains)


def _posterior(beliefs: Sequence[Belief]) -> Row:
    """A domain's mean posterior, where the updating prior ends, and the course of the mean in the first seed."""
    first = beliefs[0]
    means_EN = first.posterior_EN.cumsum(1) / np.arange(1, first.posterior_EN.shape[1] + 1)
    return {
        "mean": np.mean([one.posterior_EN.mean(1) for one in beliefs], axis=0).tolist(),
        "updating": np.mean([one.updating_EN[:, -1] for one in beliefs], axis=0).tolist(),
        "course": means_EN.round(4).tolist(),  # stored name
        "moved": [drift_of(one) for one in beliefs],
    }


def drift_of(belief: Belief) -> float | None:
    """How far any share moves from the first STABLE_AFTER blocks to as many others; None where there are too few.

    Means of different blocks: a mean that is held against its own end comes close to it whatever the text is.
    """
    if belief.posterior_EN.shape[1] < 2 * STABLE_AFTER:
        return None
    first_E, next_E = (belief.posterior_EN[:, at : at + STABLE_AFTER].mean(1) for at in (0, STABLE_AFTER))
    return float(np.abs(first_E - next_E).max())
