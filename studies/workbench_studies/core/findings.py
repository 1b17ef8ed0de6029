"""The findings common to all replications, as JSON: claims, text, jobs and machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.statistics.estimates import Ints
from workbench_studies.core.averages import Row
from workbench_studies.core.measurements import Measurements
from workbench_studies.core.study import Study
from workbench_studies.core.verdicts import CONTRADICTED, IMPLIED, MARKS, ONE_SEED, REPRODUCED, WEAKER, Verdict

Findings = Mapping[str, Any]
# The kinds that write reports, for findings that were stored before `JobFacts.writes_report`. A new kind sets that.
_OLD_REPORT_KINDS = ("replicate", "replicate-demix", "replicate-cbtm", "replicate-mode")


@dataclass(frozen=True)
class JobFacts:
    """One job of a replication: its title, final state and duration."""

    title: str
    kind: str
    state: str
    seconds: float | None  # of its last attempt
    tokens: int | None = None  # of a training
    is_own: bool = True  # submitted by this replication, not by an earlier one
    writes_report: bool = False


@dataclass(frozen=True)
class Circumstances:
    """The machine, versions, budget and jobs of a replication."""

    paper: str
    machine: str
    versions: Mapping[str, str]
    size: str
    budget: Mapping[str, Any]
    jobs: Sequence[JobFacts]
    corpus: str = ""  # what its text is called
    date: str = ""  # when it was written: `2026-01-31`
    command: str = ""  # runs it again
    samples: Sequence[Mapping[str, Any]] = ()  # the size of each domain, and some lines of it


def common_findings(
    measured: Measurements, verdicts: Sequence[Verdict], circumstances: Circumstances, study: Study
) -> Row:
    """The findings common to all papers; a paper adds its tables and charts."""
    claims = [verdict.as_dict() for verdict in verdicts]
    counted = Counter(claim["mark"] for claim in claims)
    subject = measured.subject
    return {
        **asdict(circumstances),
        "name": subject.name,
        "seeds": subject.seeds,
        "domains": list(subject.domains),
        "novel": list(subject.novel),
        "texts": text_rows(measured),
        "claims": claims,
        "sentences": study.list_sentences(verdicts),
        "marks": {mark: counted[mark] for mark in MARKS},
    }


def text_rows(measured: Measurements) -> list[Row]:
    """How much of each domain's text was scored, and of how many documents."""
    return [
        {
            "text": domain,
            "test tokens": max((int(loss.tokens_N.sum()) for loss in tests), default=None),
            "test documents": max((num_documents(loss.documents_N) for loss in tests), default=None),
            "blocks behind a cached prior": measured.prior_blocks.get(domain),
        }
        for domain in measured.subject.everywhere
        for tests in [[loss for (_, _, text), loss in measured.losses.items() if text == domain]]
    ]


def num_documents(documents_N: Ints) -> int:
    return len(np.unique(documents_N))


def summary(findings: Findings) -> str:
    """`9 of 24 claims reproduced, 5 contradicted, 3 undecided, 7 not testable here. 3 jobs are not done: 1 failed, …`

    Between them stands how many came out only as a weaker claim and how many could not have come out otherwise, where
    some did; after them how many rest on one seed.
    """
    marks = findings["marks"]
    rest = ", ".join(f"{marks.get(mark, 0)} {mark}" for mark in MARKS[1:] if mark not in _RARE or marks.get(mark))
    sentence = f"{marks[REPRODUCED]} of {sum(marks.values())} claims {REPRODUCED}, {rest}."
    if single := sum(claim.get("is_one_seed", False) for claim in findings["claims"]):
        sentence += f" {single} rest{'s' if single == 1 else ''} on {ONE_SEED}."
    if open_jobs := not_done(findings):
        states = Counter(job["state"] for job in open_jobs)
        how = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        sentence += f" {len(open_jobs)} job{' is' if len(open_jobs) == 1 else 's are'} not done: {how}."
    return sentence


_RARE = (WEAKER, IMPLIED)


def cautions(findings: Findings) -> list[str]:
    """What a reader of the marks must know: how the posterior is read, and where a setting is not the paper's.

    `24 of these claims depend on how the posterior is read: with prefix, …, 5 reproduced, 9 contradicted; …`
    """
    read = [both for claim in findings["claims"] if len(both := claim.get("by_evidence", {})) > 1]
    settings = [words] if (words := findings.get("setting")) else []
    if not read:
        return settings
    counts = {name: Counter(marks[name] for marks in read) for name in read[0]}
    shown = {
        name: [f"{of[mark]} {mark}" for mark in (REPRODUCED, IMPLIED, CONTRADICTED) if of[mark] or mark != IMPLIED]
        for name, of in counts.items()
    }
    listed, (first, second) = [f"with {name} {', '.join(marks)}" for name, marks in shown.items()], counts
    sentence = (
        f"{len(read)} of these claims depend on how the posterior is read, by the paper's text ({first}) or as its "
        f"released code does ({second}): {'; '.join(listed)}."
    )
    return [sentence, *settings]


def not_done(findings: Findings) -> list[Mapping[str, Any]]:
    """The jobs that were not done when the report was written, without the report's own."""
    return [
        job
        for job in findings["jobs"]
        if job["state"] != "done" and not job.get("writes_report", job["kind"] in _OLD_REPORT_KINDS)
    ]
