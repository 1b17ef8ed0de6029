"""The findings of a replication of DEMix, as JSON for its report, its page and other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from engine.statistics.bootstrap import Change
from engine.statistics.curves import Curve, crossing, mean_curve
from workbench_studies.core.findings import (
    Circumstances,
    Row,
    common_findings,
    interval_columns,
    num_documents,
    text_rows,
)
from workbench_studies.demix import paper
from workbench_studies.demix.affinity import beliefs_on, moved, naive_against_dense, ratios
from workbench_studies.demix.calibrated import calibrated_findings
from workbench_studies.demix.claims import STUDY, judge_all, judge_read
from workbench_studies.demix.evidence import DemixEvidence
from workbench_studies.demix.interleaving import by_domain
from workbench_studies.demix.names import (
    CALIBRATED,
    METHODS,
    PAPER,
    READINGS,
    Reading,
    System,
    Variant,
    demix_dapt,
    dense_dapt,
    system,
)
from workbench_studies.demix.orders import WORDS, averages, by_lambda
from workbench_studies.demix.specifications import SplitWords, TrainedModel, model_rows, word_rows


def findings_of(
    evidence: DemixEvidence,
    curves: Sequence[Curve],
    circumstances: Circumstances,
    *,
    models: Sequence[TrainedModel] = (),
    words: Mapping[str, SplitWords] | None = None,
) -> Row:
    """The findings behind the report, computed from the measurements; `words` are those of each imported domain."""
    return {
        **common_findings(evidence, judge_all(evidence, PAPER), circumstances, STUDY),
        "removed": list(evidence.subject.removed),
        "texts": _texts(evidence),
        "readings": _readings(evidence),
        "calibrated": calibrated_findings(evidence),
        "tables": {
            "interleaving": by_domain(evidence),
            "1": word_rows(evidence.subject, words or {}),
            "2": model_rows(models),
            **_tables(evidence),
        },
        "curves": _curves(evidence, curves),
        "crossing": _crossing(evidence, curves),
        "forgetting": _forgetting(evidence, curves),
        "pictures": _pictures(evidence),
    }


def _readings(evidence: DemixEvidence) -> list[Row]:
    """The claims that depend on how the posterior is read, under every reading of the paper or its code."""
    return [
        {"reading": str(reading), **verdict.as_dict()}
        for reading in READINGS
        for verdict in judge_read(evidence, reading)
    ]


def _texts(evidence: DemixEvidence) -> list[Row]:
    """With the documents of the development text that posteriors were read from."""
    results = {domain: beliefs_on(evidence, domain) for domain in evidence.subject.everywhere}
    documents = {
        d: max((num_documents(one.documents_N) for one in beliefs), default=None) for d, beliefs in results.items()
    }
    return [row | {"dev documents": documents[row["text"]]} for row in text_rows(evidence)]


# tables -------------------------------------------------------------------------------------------


def _tables(evidence: DemixEvidence) -> dict[str, list[Row]]:
    return {
        "3": averages(evidence, 3),
        "4": _by_domain(evidence),
        "5": averages(evidence, 5),
        "5 by domain": _by_novel_domain(evidence),
        "5 by λ": by_lambda(evidence),
        "5 by reading": [row for reading in (*READINGS, CALIBRATED) for row in _modes(evidence, reading)],
        "6": _sizes_of_mixture(evidence),
        "7": _removal(evidence),
        "13": _dapt(evidence),
    }


def _by_domain(evidence: DemixEvidence) -> list[Row]:
    """Table 4: every training domain, since names differ from the paper's, of which the last row has the average."""
    change = naive_against_dense(evidence)
    rows: list[Row] = [
        {
            "domain": domain,
            **{WORDS[mode]: _perplexity(evidence, system(mode, PAPER), domain) for mode in _TABLE_4},
            **interval_columns(change.get(domain), "naive against dense, %"),
        }
        for domain in evidence.subject.domains
    ]
    printed = zip(_TABLE_4, paper.TABLE_4["Average"], strict=True)
    return [*rows, {"domain": "paper, average (1.3B)", **{WORDS[mode]: number for mode, number in printed}}]


_TABLE_4: tuple[Variant, ...] = ("dense", "naive", "cached")


def _by_novel_domain(evidence: DemixEvidence) -> list[Row]:
    """Table 5 by domain: every novel domain under every way to mix, and under the baselines."""
    return [
        {"domain": novel, **{WORDS[mode]: _perplexity(evidence, system(mode, PAPER), novel) for mode in paper.TABLE_5}}
        for novel in evidence.subject.novel
    ]


def _perplexity(evidence: DemixEvidence, name: System, domain: str) -> float | None:
    results = evidence.resampled.average(name, [domain])
    return None if results is None else results.value


def _modes(evidence: DemixEvidence, reading: Reading) -> list[Row]:
    """The inference modes of table 5 under one reading."""
    modes: tuple[Variant, ...] = ("naive", "average", "uniform", "updating", "cached")
    results = {mode: evidence.resampled.average(system(mode, reading), evidence.subject.novel) for mode in modes}
    return [{"reading": str(reading), "system": WORDS[mode], **interval_columns(one)} for mode, one in results.items()]


def _sizes_of_mixture(evidence: DemixEvidence) -> list[Row]:
    subject = evidence.subject
    both: tuple[tuple[Variant, int, int], ...] = (
        ("cached", len(subject.domains), 8),
        ("grown", len(subject.domains) + len(subject.novel), 16),
    )
    return [
        {
            "domains": text,
            "experts": number,
            **dict(zip(paper.SIZES, paper.TABLE_6[text, printed], strict=True)),
            **interval_columns(evidence.resampled.average(system(mode, PAPER), domains)),
        }
        for text, domains in (("training", subject.domains), ("novel", subject.novel))
        for mode, number, printed in both
    ]


def _removal(evidence: DemixEvidence) -> list[Row]:
    columns: dict[str, Variant] = {"+Expert": "cached", "–Expert": "minus expert", "–Domain": "minus domain"}
    rows: list[Row] = [
        {"domain": domain, **{c: _perplexity(evidence, system(mode, PAPER), domain) for c, mode in columns.items()}}
        for domain in evidence.subject.domains
    ]
    for words, domains in (("average", evidence.subject.domains), ("retrained, average", evidence.subject.removed)):
        means = {c: evidence.resampled.average(system(m, PAPER), domains) for c, m in columns.items()}
        rows.append({"domain": words, **{column: one.value if one else None for column, one in means.items()}})
    rows.append({"domain": "paper, average", **dict(zip(columns, paper.TABLE_7["Average"], strict=True))})
    return rows


def _dapt(evidence: DemixEvidence) -> list[Row]:
    """Table 13 by target, dense-DAPT and DEMix-DAPT side by side; the last row is the paper's average."""
    rows: list[Row] = [
        {
            "target": novel,
            "method": method,
            **_changed(evidence, after, before, [novel], "target, %"),
            **_changed(evidence, after, before, evidence.subject.domains, "training domains, %"),
            "perplexity on the target": _perplexity(evidence, after, novel),
        }
        for novel in evidence.subject.novel
        for method, after, before in (
            ("dense-DAPT", dense_dapt(novel), System("dense")),
            ("DEMix-DAPT", demix_dapt(novel, PAPER), system("cached", PAPER)),
        )
    ]
    on_target, on_training = (paper.TABLE_13[role][0] for role in ("novel", "training"))
    printed = {"target, %": on_target, "training domains, %": on_training}
    return [*rows, {"target": "paper, average", "method": "dense-DAPT", **printed}]


def _changed(evidence: DemixEvidence, after: System, before: System, domains: Sequence[str], name: str) -> Row:
    results = evidence.resampled.changes([Change(after, before, domain) for domain in domains])
    return {name: results.value if results else None}


# curves and pictures ------------------------------------------------------------------------------


def _curves(evidence: DemixEvidence, curves: Sequence[Curve]) -> list[Row]:
    return [
        {"system": curve.system, "seed": curve.seed, "tokens": tokens, "perplexity": value}
        for curve in curves
        if curve.system in METHODS
        for tokens, value in curve.mean(evidence.subject.domains).items()
    ]


def _crossing(evidence: DemixEvidence, curves: Sequence[Curve]) -> dict[str, Row | None]:
    """Where DEMix overtakes each baseline on the training domains, by the mean over seeds."""
    means = {
        method: mean_curve([one for one in curves if one.system == method], evidence.subject.domains)
        for method in METHODS
    }
    results = {method: crossing(means["demix"], means[method]) for method in METHODS if method != "demix"}
    return {method: asdict(one) if one else None for method, one in results.items()}


def _forgetting(evidence: DemixEvidence, curves: Sequence[Curve]) -> list[Row]:
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
        for text, domains in (("target", [curve.target]), ("training domains", evidence.subject.domains))
        for tokens, value in curve.mean(domains).items()
    ]


def _pictures(evidence: DemixEvidence) -> dict[str, Any]:
    """The matrices behind figures 2, 4, 7 and 8, averaged over seeds."""
    tables = [table for seed in evidence.resampled.seeds if (table := ratios(evidence, seed))]
    return {
        "ratios": np.mean(tables, axis=0).tolist() if tables else None,
        "overlap": _overlap(evidence),
        "posteriors": {domain: one for domain in evidence.subject.everywhere if (one := _belief(evidence, domain))},
    }


def _overlap(evidence: DemixEvidence) -> list[list[float]] | None:
    domains, overlap = evidence.subject.domains, evidence.overlap
    return None if overlap is None else [[overlap[one, other] for other in domains] for one in domains]


def _belief(evidence: DemixEvidence, domain: str) -> Row | None:
    """A domain's mean posterior, where the updating prior ends, and the course of the mean in the first seed."""
    results = beliefs_on(evidence, domain)
    if not results:
        return None
    first = results[0]
    means_EN = first.posterior_EN.cumsum(1) / np.arange(1, first.posterior_EN.shape[1] + 1)
    return {
        "mean": np.mean([one.posterior_EN.mean(1) for one in results], axis=0).tolist(),
        "updating": np.mean([one.updating_EN[:, -1] for one in results], axis=0).tolist(),
        "course": means_EN.round(4).tolist(),  # stored name
        "moved": [moved(one) for one in results],
    }
