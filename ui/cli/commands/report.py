"""Reports: list, show and delete the certificates and measurements that jobs made."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.completion import names_of
from ui.cli.listing import Column, created_column, lists
from ui.cli.options import Json
from ui.cli.output import day, print_done, print_json
from ui.cli.printing.report import print_report
from ui.cli.things import get_card
from workbench.answers.cards import ReportCard

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
    from workbench.registry.database import reading
    from workbench.registry.reports import list_reports

    with reading() as session:
        return list_reports(session, kind=kind or None)


@app.command("show")
def show(report: ReportId, as_json: Json = False) -> None:
    """Show a report with its numbers."""
    card = get_card("report", report)
    if as_json:
        print_json(card)
    else:
        print_report(card)


@app.command("delete")
def delete(report: ReportId, as_json: Json = False) -> None:
    """Delete a report with its pages; the experts and mixtures it is about are kept."""
    from workbench.registry.database import transaction
    from workbench.registry.things import THINGS

    with transaction() as session:
        card = THINGS["report"].delete_one(session, report)
    print_done({"deleted": card.id}, f"“{card.title}” ({card.id[:8]}) is deleted.", as_json)
