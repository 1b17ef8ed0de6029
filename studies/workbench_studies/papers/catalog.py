"""The papers that can be reproduced: what each is called, its plan and its report.

A further paper is a folder next to `demix`, `cbtm` and `mode`, a kind of job that judges it, and an entry here and in
`charts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.specs.requests import PlanStep
from workbench_studies.cbtm import sizes as cbtm
from workbench_studies.cbtm.calibrated import where_it_holds as cbtm_ours
from workbench_studies.cbtm.claims import STUDY as CBTM_STUDY
from workbench_studies.cbtm.report import sections as cbtm_sections
from workbench_studies.core.findings import Findings
from workbench_studies.core.report import Section, seeds_words
from workbench_studies.core.sizes import Size, SizeName
from workbench_studies.core.study import Study
from workbench_studies.demix import sizes as demix
from workbench_studies.demix.calibrated import where_it_holds as demix_ours
from workbench_studies.demix.claims import STUDY as DEMIX_STUDY
from workbench_studies.demix.report import sections as demix_sections
from workbench_studies.demix.sizes import DemixSize
from workbench_studies.mode import sizes as mode
from workbench_studies.mode.claims import STUDY as MODE_STUDY
from workbench_studies.mode.names import roles
from workbench_studies.mode.report import sections as mode_sections
from workbench_studies.papers.cbtm_plan import steps as cbtm_steps
from workbench_studies.papers.demix_plan import steps as demix_steps
from workbench_studies.papers.mode_plan import steps as mode_steps


@dataclass(frozen=True)
class Paper:
    """One paper: its name in commands, title, authors, sizes, plan and report."""

    name: str
    title: str
    source: str
    kind: str  # of the job that judges it
    sizes: Mapping[SizeName, Size]
    defaults: Callable[[Any, Sequence[str]], dict[str, Any]]  # its own fields of a spec, from budget and domains
    steps: Callable[[Any], Sequence[PlanStep]]  # all jobs of a spec but its report
    sections: Callable[[Findings], Sequence[Section]]
    study: Study
    main_claims: Sequence[str] = ()  # patterns (`*`) of what the paper is known for, as `Table 3: DEMix …`
    ours: Callable[[Findings], str] = lambda _: ""  # what a report says of our own reading; empty of one without it
    roles: str = ""  # the roles of its training domains, if they differ

    def report_title(self, findings: Findings) -> str:
        """The title of a report."""
        return f"{self.title} replicated: {findings['name']} ({findings['size']}, {seeds_words(findings)})"


def _first_removed(budget: DemixSize, domains: Sequence[str]) -> dict[str, Any]:
    return {"removed": list(domains)[: budget.retrained_domains]}


def _roles(_budget: Size, domains: Sequence[str]) -> dict[str, Any]:
    return roles(domains)


def _nothing_more(_budget: Size, _domains: Sequence[str]) -> dict[str, Any]:
    return {}


DEMIX = Paper(
    "demix",
    "DEMix",
    "Gururangan et al., 2021",
    "replicate-demix",
    demix.SIZES,
    _first_removed,
    demix_steps,
    demix_sections,
    DEMIX_STUDY,
    main_claims=(
        "Table 3: DEMix (*) has less perplexity than Dense on*",
        "Table 5: DEMix (cached) has less perplexity than Dense on*",
        "Table 6: an expert for each novel domain*",
        "Figure 6: DEMix-DAPT *",
        "Table 7: *",
    ),
    ours=demix_ours,
)
CBTM = Paper(
    "cbtm",
    "C-BTM",
    "Gururangan et al., 2023",
    "replicate-cbtm",
    cbtm.SIZES,
    _nothing_more,
    cbtm_steps,
    cbtm_sections,
    CBTM_STUDY,
    main_claims=(
        "Figure 5: * have less perplexity than one, at equal tokens",
        "Figure 9: the nearest of * alone has less perplexity than Dense",
        "Figure 12: *",
        "Figure 13: *",
    ),
    ours=cbtm_ours,
)
MODE = Paper(
    "mode",
    "MoDE",
    "Schafhalter et al., 2024",
    "replicate-mode",
    mode.SIZES,
    _roles,
    mode_steps,
    mode_sections,
    MODE_STUDY,
    main_claims=(
        "Table 1: MoDE with 2 trained experts is above * on average",
        "Table 1: MoDE with 1 fresh expert is above full fine-tuning on average",
        "Table 1: MoDE with 2 trained experts is above full fine-tuning in retention*",
        "Table 1: MoDE with 2 trained experts is above LoRA of rank 16 in retention*",
        "§3.2, §4.1: MoDE with 2 trained experts is above full fine-tuning *",
    ),
    roles="Of the training domains, the first is what must be retained, the next two are adapted to, and the backbone "
    "is trained on all but these two. On the command line --targets and --retention choose others.",
)
PAPERS: Mapping[str, Paper] = {paper.name: paper for paper in (DEMIX, CBTM, MODE)}


def paper_of(findings: Findings) -> Paper:
    """The paper that a report is about."""
    return PAPERS[findings["paper"]]
