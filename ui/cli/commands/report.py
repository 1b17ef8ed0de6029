"""Reports: list, show and delete the certificates and measurements that jobs made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from ui.cli.options import naming_argument
from ui.cli.output import day, print_json, print_rows, say
from ui.cli.verbs import CREATED, Column, CommandGroup, Outcome, get_card, lists, read, write
from ui.errors import BadUsageError
from ui.reports.report_type import report_picture, report_sentence, report_type
from workbench.answers.cards import ReportCard

app = CommandGroup(__doc__)

ReportId = Annotated[str, naming_argument("Id of a report, or its first digits.", "report")]


_PASSED = {True: "yes", False: "NO", None: ""}
_COLUMNS = (
    Column("ID", lambda report: report.id, lambda id: id[:8]),
    Column("Kind", lambda report: report.kind),
    Column("Report", lambda report: report.title),
    Column("Passed", lambda report: report.findings.get("ok"), _PASSED.get),
    CREATED,
    Column("Summary", report_sentence),
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

    return read(list_reports, kind=kind or None)


@app.verb()
def show(
    report: ReportId,
    svg: Annotated[bool, typer.Option("--svg", help="Print a certificate as a picture to share (SVG).")] = False,
) -> Outcome:
    """Show a report with its numbers, or as a picture."""
    card = get_card("report", report)
    if not svg:
        return Outcome(card, print_report)
    if (picture := report_picture(card)) is None:
        raise BadUsageError(f"“{card.title}” has no picture: certificates have one.", "Leave --svg out.")
    drawn, sentence = picture
    return Outcome({"svg": drawn, "sentence": sentence}, drawn)


def print_report(card: ReportCard) -> None:
    """Prints a report's title, its sentence and what its sort describes."""
    report = report_type(card)
    say(f"{card.title} ({day(card.created_at)}, report {card.id[:8]})")
    if sentence := report.sentence(card.findings):
        say(sentence)
    for part in report.describe(card.findings):
        if isinstance(part, str):
            say(part)
        elif isinstance(part, Mapping):
            print_json(part)
        else:
            print_rows(part, empty="No rows.")


@app.verb()
def delete(report: ReportId) -> Outcome:
    """Delete a report with its pages; the experts and mixtures it is about are kept."""
    from workbench.registry.resources import RESOURCES

    card = write(RESOURCES["report"].delete_one, report)
    return Outcome({"deleted": card.id}, f"“{card.title}” ({card.id[:8]}) is deleted.")
