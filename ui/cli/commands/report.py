"""Reports: list, show and delete the certificates and measurements that jobs made."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.completion import names_of
from ui.cli.listing import Column, created_column, lists
from ui.cli.output import day
from ui.cli.printing.report import print_report
from ui.cli.verbs import Outcome, get_card, read, verb, write
from workbench.registry.cards import ReportCard

app = typer.Typer(no_args_is_help=True, help=__doc__)

ReportId = Annotated[
    str, typer.Argument(help="Id of a report, or its first digits.", autocompletion=names_of("report"))
]


def _summary(report: ReportCard) -> str:
    from ui.reports.catalog import report_sentence

    return report_sentence(report)


_PASSED = {True: "yes", False: "NO", None: ""}
_COLUMNS = (
    Column("ID", lambda report: report.id, lambda id: id[:8]),
    Column("Kind", lambda report: report.kind),
    Column("Report", lambda report: report.title),
    Column("Passed", lambda report: report.findings.get("ok"), _PASSED.get),
    created_column(day),
    Column("Summary", _summary),
)


@app.command("list")
@lists(
    _COLUMNS,
    empty="There is no report. These commands make one: workbench expert certify, workbench expert certify-removal",
    noun="report",
)
def list_all(
    kind: Annotated[str, typer.Option(help="Only reports of this kind, as the column Kind names it.")] = "",
) -> list[ReportCard]:
    """List reports, the newest first."""
    from workbench.registry.reports import list_reports

    cards: list[ReportCard] = read(list_reports, kind=kind or None)
    return cards


@verb(app)
def show(report: ReportId) -> Outcome:
    """Show a report with its numbers."""
    return Outcome(get_card("report", report), print_report)


@verb(app)
def delete(report: ReportId) -> Outcome:
    """Delete a report with its pages; the experts and mixtures it is about are kept."""
    from workbench.registry.things import THINGS

    card = write(THINGS["report"].delete_one, report)
    return Outcome({"deleted": card.id}, f"“{card.title}” ({card.id[:8]}) is deleted.")
