"""The papers that can be reproduced: what each is called, its plan and its report.

A further paper is a folder next to `demix`, `cbtm` and `mode`, a kind of job that judges it, and an entry here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from workbench.job_records.preconditions import kind_of
from workbench.specs.base import RegistryObject
from workbench.specs.requests import PlanStep
from workbench_studies.cbtm import claims as cbtm
from workbench_studies.cbtm import report as cbtm_report
from workbench_studies.cbtm import tables as cbtm_tables
from workbench_studies.cbtm.measurements import CbtmMeasurements
from workbench_studies.cbtm.names import SIZES as CBTM_SIZES
from workbench_studies.core.averages import Row
from workbench_studies.core.report import Report, count_seeds
from workbench_studies.core.spec import Replicate, Size, SizeName
from workbench_studies.core.study import Study
from workbench_studies.core.verdicts import MARKS, Findings, Verdict
from workbench_studies.demix import claims as demix
from workbench_studies.demix import report as demix_report
from workbench_studies.demix import tables as demix_tables
from workbench_studies.demix.measurements import DemixMeasurements
from workbench_studies.demix.names import SIZES as DEMIX_SIZES
from workbench_studies.mode import claims as mode
from workbench_studies.mode import report as mode_report
from workbench_studies.mode.arms import SIZES as MODE_SIZES
from workbench_studies.mode.arms import roles
from workbench_studies.mode.claims import ModeMeasurements
from workbench_studies.papers.cbtm_plan import steps as cbtm_steps
from workbench_studies.papers.demix_plan import steps as demix_steps
from workbench_studies.papers.mode_plan import steps as mode_steps


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


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One paper: its name in commands, title, authors, sizes, plan, claims and report."""

    name: str
    title: str
    source: str
    sizes: Mapping[SizeName, Size]
    steps: Callable[[Any], Iterable[PlanStep]]  # all jobs of a spec but its report
    measurements: Callable[[Any], Any]  # of a spec, before anything is measured
    study: Study
    judge: Callable[[Any], list[Verdict]]  # the measurements
    tables: Callable[..., Row]  # what only its findings have
    report: Report
    defaults: Callable[[Any, Sequence[str]], dict[str, Any]] = lambda _budget, _domains: {}  # its own fields of a spec
    ours: Callable[[Findings], str] = lambda _: ""  # what a report says of our own reading; empty of one without it
    roles: str = ""  # the roles of its training domains, if they differ

    @property
    def kind(self) -> str:
        """The kind of the job that judges it."""
        return f"replicate-{self.name}"

    def findings(self, measured: Any, circumstances: Circumstances, **more: Any) -> Row:
        """The findings behind a report, as JSON for its page and other programs."""
        subject, verdicts = measured.subject, self.judge(measured)
        claims = [verdict.as_dict() for verdict in verdicts]
        counted = Counter(claim["mark"] for claim in claims)
        return {
            **asdict(circumstances),
            "name": subject.name,
            "seeds": subject.seeds,
            "domains": list(subject.domains),
            "novel": list(subject.novel),
            "texts": measured.text_rows(),
            "claims": claims,
            "sentences": self.study.list_sentences(verdicts),
            "marks": {mark: counted[mark] for mark in MARKS},
            **self.tables(measured, **more),
        }

    def report_title(self, findings: Findings) -> str:
        """The title of a report."""
        return f"{self.title} replicated: {findings['name']} ({findings['size']}, {count_seeds(findings)})"


DEMIX = Paper(
    name="demix",
    title="DEMix",
    source="Gururangan et al., 2021",
    sizes=DEMIX_SIZES,
    steps=demix_steps,
    measurements=DemixMeasurements,
    study=demix.STUDY,
    judge=demix.judge,
    tables=demix_tables.findings_of,
    report=demix_report.REPORT,
    defaults=lambda budget, domains: {"removed": list(domains)[: budget.retrained_domains]},
    ours=demix_report.where_it_holds,
)
CBTM = Paper(
    name="cbtm",
    title="C-BTM",
    source="Gururangan et al., 2023",
    sizes=CBTM_SIZES,
    steps=cbtm_steps,
    measurements=CbtmMeasurements,
    study=cbtm.STUDY,
    judge=cbtm.judge,
    tables=cbtm_tables.findings_of,
    report=cbtm_report.REPORT,
    ours=cbtm_report.where_it_holds,
)
MODE = Paper(
    name="mode",
    title="MoDE",
    source="Schafhalter et al., 2024",
    sizes=MODE_SIZES,
    steps=mode_steps,
    measurements=ModeMeasurements,
    study=mode.STUDY,
    judge=mode.judge,
    tables=mode_report.findings_of,
    report=mode_report.REPORT,
    defaults=lambda _budget, domains: roles(domains),
    roles="Of the training domains, the first is what must be retained, the next two are adapted to, and the backbone "
    "is trained on all but these two. On the command line --targets and --retention choose others.",
)
PAPERS: Mapping[str, Paper] = {paper.name: paper for paper in (DEMIX, CBTM, MODE)}


def paper_of(findings: Findings) -> Paper:
    """The paper that a report is about."""
    return PAPERS[findings["paper"]]


def plan(spec: Replicate) -> list[PlanStep]:
    """Every job of a replication in the order in which they should start; the last one writes the report.

    A step waits for those that create what its kind of job requires.
    """
    steps: list[PlanStep] = []
    makers: dict[RegistryObject, str] = {}  # the step that creates each thing
    for step in PAPERS[spec.paper].steps(spec):
        kind = kind_of(step.spec)
        after = dict.fromkeys(makers[thing] for thing in kind.requires(step.spec) if thing in makers)
        steps.append(replace(step, after=tuple(after)))
        makers |= dict.fromkeys(kind.creates(step.spec), step.key)
    return [*steps, PlanStep("report", spec, f"{spec.name}: report", tuple(step.key for step in steps))]
