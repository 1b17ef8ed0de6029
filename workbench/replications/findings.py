"""Everything a replication found, as JSON: what its report, its page and other programs read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.replication.bootstrap import Change, Ints
from engine.replication.curves import Curve, crossing, mean_curve
from engine.replication.estimates import Estimate
from workbench.replications import paper
from workbench.replications.affinity import beliefs_on, moved, naive_against_dense, ratios
from workbench.replications.claims import judge, judge_read
from workbench.replications.demix import METHODS, PAPER, READINGS, Mode, Reading, System, demix_dapt, dense_dapt, system
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
    seconds: float | None  # of its last attempt
    tokens: int | None = None  # of a training
    is_own: bool = True  # asked for by this replication, not by another one before


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
        "texts": _texts(evidence),
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


def _texts(evidence: Evidence) -> list[Row]:
    """How much of each domain's text was scored, and of how many documents."""
    rows: list[Row] = []
    for domain in evidence.subject.everywhere:
        tests = [loss for (_, _, text), loss in evidence.measured.losses.items() if text == domain]
        beliefs = beliefs_on(evidence, domain)
        rows.append({
            "text": domain,
            "test tokens": max((int(loss.tokens_N.sum()) for loss in tests), default=None),
            "test documents": max((_num_documents(loss.documents_N) for loss in tests), default=None),
            "blocks behind a cached prior": evidence.measured.prior_blocks.get(domain),
            "dev documents": max((_num_documents(one.documents_N) for one in beliefs), default=None),
        })  # fmt: skip
    return rows


def _num_documents(documents_N: Ints) -> int:
    return len(np.unique(documents_N))


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
    """Table 4: every training domain, since names differ from the paper's, of which the last row has the average."""
    change = naive_against_dense(evidence)
    rows: list[Row] = [
        {
            "domain": domain,
            **{WORDS[mode]: _perplexity(evidence, system(mode, PAPER), domain) for mode in _TABLE_4},
            **_shown(change.get(domain), "naive against dense, %"),
        }
        for domain in evidence.subject.domains
    ]  # fmt: skip
    printed = zip(_TABLE_4, paper.TABLE_4["Average"], strict=True)
    return [*rows, {"domain": "paper, average (1.3B)", **{WORDS[mode]: number for mode, number in printed}}]


_TABLE_4: tuple[Mode, ...] = ("dense", "naive", "cached")


def _perplexity(evidence: Evidence, name: System, domain: str) -> float | None:
    found = evidence.resampled.average(name, [domain])
    return None if found is None else found.value


def _modes(evidence: Evidence, reading: Reading) -> list[Row]:
    """The modes of table 5 under one reading."""
    modes: tuple[Mode, ...] = ("naive", "average", "uniform", "updating", "cached")
    found = {mode: evidence.resampled.average(system(mode, reading), evidence.subject.novel) for mode in modes}
    return [{"reading": str(reading), "system": WORDS[mode], **_shown(one)} for mode, one in found.items()]


def _sizes_of_mixture(evidence: Evidence) -> list[Row]:
    subject = evidence.subject
    both: tuple[tuple[Mode, int, int], ...] = (
        ("cached", len(subject.domains), 8), ("grown", len(subject.domains) + len(subject.novel), 16)
    )  # fmt: skip
    return [
        {
            "domains": text, "experts": number, **dict(zip(paper.SIZES, paper.TABLE_6[text, printed], strict=True)),
            **_shown(evidence.resampled.average(system(mode, PAPER), domains)),
        }
        for text, domains in (("training", subject.domains), ("novel", subject.novel))
        for mode, number, printed in both
    ]  # fmt: skip


def _removal(evidence: Evidence) -> list[Row]:
    columns: dict[str, Mode] = {"+Expert": "cached", "–Expert": "minus expert", "–Domain": "minus domain"}
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
    """Table 13 by target, dense-DAPT and DEMix-DAPT side by side; the last row is the paper's average."""
    rows: list[Row] = [
        {
            "target": novel, "method": method,
            **_changed(evidence, after, before, [novel], "target, %"),
            **_changed(evidence, after, before, evidence.subject.domains, "training domains, %"),
            "perplexity on the target": _perplexity(evidence, after, novel),
        }
        for novel in evidence.subject.novel
        for method, after, before in (
            ("dense-DAPT", dense_dapt(novel), System("dense")),
            ("DEMix-DAPT", demix_dapt(novel, PAPER), system("cached", PAPER)),
        )
    ]  # fmt: skip
    on_target, on_training = (paper.TABLE_13[role][0] for role in ("novel", "training"))
    printed = {"target, %": on_target, "training domains, %": on_training}
    return [*rows, {"target": "paper, average", "method": "dense-DAPT", **printed}]


def _changed(evidence: Evidence, after: System, before: System, domains: Sequence[str], name: str) -> Row:
    found = evidence.resampled.changes([Change(after, before, domain) for domain in domains])
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
    found = beliefs_on(evidence, domain)
    if not found:
        return None
    first = found[0]
    means_EN = first.posterior_EN.cumsum(1) / np.arange(1, first.posterior_EN.shape[1] + 1)
    return {
        "mean": np.mean([one.posterior_EN.mean(1) for one in found], axis=0).tolist(),
        "updating": np.mean([one.updating_EN[:, -1] for one in found], axis=0).tolist(),
        "course": means_EN.round(4).tolist(),
        "moved": [moved(one) for one in found],
    }


def summary(findings: Mapping[str, Any]) -> str:
    """`9 of 24 claims reproduced, 8 not reproduced, 7 not testable here. 3 jobs are not done: 1 failed, 2 queued.`"""
    marks = findings["marks"]
    rest = ", ".join(f"{marks[mark]} {mark}" for mark in MARKS[1:])
    told = f"{marks[REPRODUCED]} of {sum(marks.values())} claims {REPRODUCED}, {rest}."
    open_jobs = not_done(findings)
    if not open_jobs:
        return told
    states = Counter(job["state"] for job in open_jobs)
    how = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return f"{told} {len(open_jobs)} job{' is' if len(open_jobs) == 1 else 's are'} not done: {how}."


def not_done(findings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The jobs, the report's own left out, that had not been done when the report was written."""
    return [job for job in findings["jobs"] if job["state"] != "done" and job["kind"] != "replicate"]
