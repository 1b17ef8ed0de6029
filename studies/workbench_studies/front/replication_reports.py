"""The reports of replications from the command line: where they are, what they hold, how they are kept in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ui.errors import BadUsageError

if TYPE_CHECKING:
    from workbench.answers.cards import ReportCard
    from workbench_studies.core.findings import Findings


def overview() -> Iterator[dict[str, Any]]:
    """A row for each replication: its progress and the state of its claims."""
    from workbench.registry.database import reading
    from workbench_studies.core.findings import summary
    from workbench_studies.papers.catalog import plan
    from workbench_studies.running.stored_results import newest_report
    from workbench_studies.running.submission import jobs_of, replications

    with reading() as session:
        for spec in replications(session):
            jobs, card = jobs_of(session, spec), newest_report(session, spec.name)
            yield {
                "name": spec.name,
                "paper": spec.paper,
                "size": spec.size,
                "seeds": spec.seeds,
                "jobs": len(plan(spec)),
                "done": sum(job.state == "done" for job in jobs.values()),
                "report": card and card.id,
                "summary": summary(card.findings) if card else "",
            }


def newest(name: str) -> ReportCard | None:
    """The newest report of a replication; None while there is none."""
    from workbench.registry.database import reading
    from workbench_studies.running.stored_results import newest_report

    with reading() as session:
        return newest_report(session, name)


def files_of(card: ReportCard) -> dict[str, str]:
    """The paths of a report's pages, by format."""
    from workbench.settings import get_settings
    from workbench.store.storage import get_storage

    folder = get_storage(get_settings()).path(str(card.artifact_id))
    return {"html": str(folder / "report.html"), "markdown": str(folder / "report.md")}


@dataclass(frozen=True)
class Keeping:
    """The folder that reports are kept in, and what is written there."""

    folder: str  # empty: none
    without_text: bool = False
    charts: bool = True
    readme: str = ""  # a page whose sentences on replications are written again; empty: none

    def __post_init__(self) -> None:
        if not self.folder and self.without_text:
            raise BadUsageError("--without-text is about the files in a folder.", "Add --out FOLDER.")
        if self.readme and not self.folder:
            raise BadUsageError("--readme is about the reports in a folder.", "Add --out FOLDER.")
        if self.readme and not Path(self.readme).expanduser().is_file():
            raise BadUsageError(f"{self.readme} is not a file.", "Give a Markdown page that exists.")

    def keep(self, names: Sequence[str]) -> list[Path]:
        """Writes the newest reports of these replications into the folder, if there is one; returns their files."""
        from workbench_studies.papers.kept import keep

        cards = [card for name in names if self.folder and (card := newest(name))]
        folder, with_text = Path(self.folder).expanduser(), not self.without_text
        readme = Path(self.readme).expanduser() if self.readme else None
        return [
            path
            for card in cards
            for path in keep(card.findings, folder, with_text=with_text, with_charts=self.charts, readme=readme)
        ]


def findings_of(report: str) -> Findings:
    """The findings of a replication's newest report, of a report with this id, or of a JSON file."""
    from workbench.registry.database import reading
    from workbench.registry.reports import get_report
    from workbench_studies.papers.todays_rule import in_todays_words
    from workbench_studies.running.stored_results import REPORT

    if report.endswith(".json"):
        return _read_findings(Path(report).expanduser())
    card = newest(report)
    if card is None:
        with reading() as session:
            card = get_report(session, report)
    if card.kind != REPORT:
        raise BadUsageError(f"The report {report} is not about a replication.", "See: workbench replicate list")
    return in_todays_words(card.findings)


def _read_findings(path: Path) -> Findings:
    from workbench_studies.papers.kept import is_kept
    from workbench_studies.papers.todays_rule import in_todays_words

    try:
        findings: Findings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        findings = {}
    if not is_kept(findings):
        raise BadUsageError(f"{path} holds no findings of a replication.", "Give the JSON file of a report.")
    return in_todays_words(findings)
