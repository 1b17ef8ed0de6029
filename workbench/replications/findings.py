"""Everything a replication found, as JSON: what its report, its page and other programs read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workbench.replications import paper
from workbench.replications.affinity import naive_against_dense, ratios, settled_after
from workbench.replications.bootstrap import Estimate, Step
from workbench.replications.claims import judge, judge_read
from workbench.replications.curves import Curve, crossing, mean_curve
from workbench.replications.demix import METHODS, PAPER, READINGS, Reading, demix_dapt, dense_dapt, system
from workbench.replications.evidence import Evidence
from workbench.replications.orders import WORDS, averages
from workbench.replications.verdicts import MARKS, REPRODUCED

Row = dict[str, Any]


@dataclass(frozen=True)
class JobFacts:
    """One job of a replication: what it was, how it ended, how long it ran."""

    title: str
    kind: str
    state: str
    seconds: float | None
    tokens: int | None = None  # of a training


@dataclass(frozen=True)
class Circumstances:
    """Where, with what and for how long a replication ran."""

    machine: str
    versions: Mapping[str, str]
    size: str
    budget: Mapping[str, Any]
    jobs: Sequence[JobFacts]


def findings_of(evidence: Evidence, curves: Sequence[Curve], told: Circumstances) -> Row:
    """All that the report says, from numbers alone."""
    claims = [verdict.as_dict() for verdict in judge(evidence, PAPER)]
    return {
        "paper": "demix", "name": evidence.subject.name, "size": told.size, "seeds": evidence.subject.seeds,
        "domains": list(evidence.subject.domains), "novel": list(evidence.subject.novel),
        "removed": list(evidence.subject.removed), "machine": told.machine, "versions": dict(told.versions),
        "budget": dict(told.budget), "jobs": [asdict(job) for job in told.jobs],
        "unfinished": [job.title for job in told.jobs if job.state != "done" and job.kind != "replicate"],
        "claims": claims, "marks": _marks(claims), "readings": _readings(evidence), "tables": _tables(evidence),
        "curves": _curves(evidence, curves), "crossing": _crossing(evidence, curves),
        "forgetting": _forgetting(evidence, curves), "pictures": _pictures(evidence),
    }  # fmt: skip


def _marks(claims: Sequence[Row]) -> dict[str, int]:
    counted = Counter(claim["mark"] for claim in claims)
    return {mark: counted[mark] for mark in MARKS}


def _readings(evidence: Evidence) -> list[Row]:
    """The claims that depend on how the posterior is read, under every reading."""
    return [
        {"reading": str(reading), **verdict.as_dict()}
        for reading in READINGS
        for verdict in judge_read(evidence, reading)
    ]


# tables -------------------------------------------------------------------------------------------


def _tables(evidence: Evidence) -> dict[str, list[Row]]:
    return {
        "3": averages(evidence, 3, PAPER),
        "4": _by_domain(evidence),
        "5": averages(evidence, 5, PAPER),
        "5 by reading": [row for reading in READINGS for row in _modes(evidence, reading)],
        "6": _sizes_of_mixture(evidence),
        "7": _removal(evidence),
        "13": _dapt(evidence),
    }


def _shown(found: Estimate | None, name: str = "ours") -> Row:
    if found is None:
        return {name: None, "low": None, "high": None}
    return {name: found.value, "low": found.low, "high": found.high}


def _by_domain(evidence: Evidence) -> list[Row]:
    """Table 4: every training domain, since names differ from the paper's."""
    change = naive_against_dense(evidence)
    return [
        {
            "domain": domain,
            **{WORDS[mode]: _perplexity(evidence, system(mode, PAPER), domain) for mode in _TABLE_4},
            **_shown(change.get(domain), "naive against dense, %"),
        }
        for domain in evidence.subject.domains
    ]  # fmt: skip


_TABLE_4 = ("dense", "naive", "cached")


def _perplexity(evidence: Evidence, name: str, domain: str) -> float | None:
    found = evidence.resampled.average(name, [domain])
    return None if found is None else found.value


def _modes(evidence: Evidence, reading: Reading) -> list[Row]:
    """The modes of table 5 under one reading."""
    modes = ("naive", "average", "uniform", "updating", "cached")
    found = {mode: evidence.resampled.average(system(mode, reading), evidence.subject.novel) for mode in modes}
    return [{"reading": str(reading), "system": WORDS[mode], **_shown(one)} for mode, one in found.items()]


def _sizes_of_mixture(evidence: Evidence) -> list[Row]:
    subject = evidence.subject
    few, many = len(subject.domains), len(subject.domains) + len(subject.novel)
    return [
        {
            "domains": text, "experts": number, **dict(zip(paper.SIZES, paper.TABLE_6[text, printed], strict=True)),
            **_shown(evidence.resampled.average(system(mode, PAPER), domains)),
        }
        for text, domains in (("training", subject.domains), ("novel", subject.novel))
        for mode, number, printed in (("cached", few, 8), ("grown", many, 16))
    ]  # fmt: skip


def _removal(evidence: Evidence) -> list[Row]:
    columns = {"+Expert": "cached", "–Expert": "minus expert", "–Domain": "minus domain"}
    rows: list[Row] = [
        {"domain": domain, **{c: _perplexity(evidence, system(mode, PAPER), domain) for c, mode in columns.items()}}
        for domain in evidence.subject.domains
    ]
    for words, domains in (("average", evidence.subject.domains), ("retrained, average", evidence.subject.removed)):
        means = {c: evidence.resampled.average(system(m, PAPER), domains) for c, m in columns.items()}
        rows.append({"domain": words, **{column: one.value if one else None for column, one in means.items()}})
    rows.append({"domain": "paper, average", **dict(zip(columns, paper.TABLE_7["Average"], strict=True))})
    return rows


def _dapt(evidence: Evidence) -> list[Row]:
    """Table 13 by target, dense-DAPT and DEMix-DAPT side by side."""
    return [
        {
            "target": novel, "method": method,
            **_changed(evidence, after, before, [novel], "target, %"),
            **_changed(evidence, after, before, evidence.subject.domains, "training domains, %"),
            "perplexity on the target": _perplexity(evidence, after, novel),
        }
        for novel in evidence.subject.novel
        for method, after, before in (
            ("dense-DAPT", dense_dapt(novel), "dense"),
            ("DEMix-DAPT", demix_dapt(novel, PAPER), system("cached", PAPER)),
        )
    ]  # fmt: skip


def _changed(evidence: Evidence, after: str, before: str, domains: Sequence[str], name: str) -> Row:
    found = evidence.resampled.changes([Step(after, before, domain) for domain in domains])
    return {name: found.value if found else None}


# curves and pictures ------------------------------------------------------------------------------


def _curves(evidence: Evidence, curves: Sequence[Curve]) -> list[Row]:
    return [
        {"system": curve.system, "seed": curve.seed, "tokens": tokens, "perplexity": value}
        for curve in curves
        if curve.system in METHODS
        for tokens, value in curve.mean(evidence.subject.domains).items()
    ]


def _crossing(evidence: Evidence, curves: Sequence[Curve]) -> dict[str, Row | None]:
    """Where DEMix overtakes each baseline on the training domains, by the mean over seeds."""
    means = {
        method: mean_curve([one for one in curves if one.system == method], evidence.subject.domains)
        for method in METHODS
    }
    found = {method: crossing(means["demix"], means[method]) for method in METHODS if method != "demix"}
    return {method: asdict(one) if one else None for method, one in found.items()}


def _forgetting(evidence: Evidence, curves: Sequence[Curve]) -> list[Row]:
    """Figure 6: the target and the mean of the training domains while a model is adapted."""
    return [
        {"method": curve.system, "target": curve.target, "seed": curve.seed, "text": text, "tokens": tokens,
         "perplexity": value}
        for curve in curves
        if curve.target
        for text, domains in (("target", [curve.target]), ("training domains", evidence.subject.domains))
        for tokens, value in curve.mean(domains).items()
    ]  # fmt: skip


def _pictures(evidence: Evidence) -> dict[str, Any]:
    """The matrices behind figures 2, 4, 7 and 8, averaged over seeds."""
    tables = [table for seed in evidence.resampled.seeds if (table := ratios(evidence, seed))]
    return {
        "ratios": np.mean(tables, axis=0).tolist() if tables else None,
        "overlap": _overlap(evidence),
        "posteriors": {domain: one for domain in evidence.subject.everywhere if (one := _belief(evidence, domain))},
    }


def _overlap(evidence: Evidence) -> list[list[float]] | None:
    domains, overlap = evidence.subject.domains, evidence.overlap
    return None if overlap is None else [[overlap[one, other] for other in domains] for one in domains]


def _belief(evidence: Evidence, domain: str) -> Row | None:
    """A domain's mean posterior, where the updating prior ends, and the course of the mean in the first seed."""
    found = [one for (_, name), one in sorted(evidence.measured.beliefs.items()) if name == domain]
    if not found:
        return None
    first = found[0]
    means_EN = first.posterior_EN.cumsum(1) / np.arange(1, first.posterior_EN.shape[1] + 1)
    return {
        "mean": np.mean([one.posterior_EN.mean(1) for one in found], axis=0).tolist(),
        "updating": np.mean([one.updating_EN[:, -1] for one in found], axis=0).tolist(),
        "course": means_EN.round(4).tolist(),
        "settled_after": [settled_after(one.posterior_EN) for one in found],
    }


def summary(findings: Mapping[str, Any]) -> str:
    """`9 of 24 claims reproduced, 8 not reproduced, 7 not testable here.`"""
    marks = findings["marks"]
    rest = ", ".join(f"{marks[mark]} {mark}" for mark in MARKS[1:])
    told = f"{marks[REPRODUCED]} of {sum(marks.values())} claims {REPRODUCED}, {rest}."
    unfinished = len(findings["unfinished"])
    return told + (f" {unfinished} jobs have not ended yet." if unfinished else "")
