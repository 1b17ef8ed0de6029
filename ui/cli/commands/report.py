"""workbench report: what jobs established, read again and deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ui.cli.options import Json
from ui.cli.output import day, print_done, print_json, print_table, say
from ui.cli.printing.addition import print_addition
from ui.cli.printing.classification import print_classification
from ui.cli.printing.removal import print_certificate
from ui.present.text.reports import read_words, report_row
from workbench.registry.cards import ReportCard

app = typer.Typer(no_args_is_help=True, help="Reports: certificates and measurements that jobs left.")

ReportId = Annotated[str, typer.Argument(help="Id of a report, or the beginning of one.")]
_PRINTERS: dict[str, Callable[[ReportCard], None]] = {
    "addition": print_addition,
    "removal": print_certificate,
    "classification": print_classification,
}


@app.command("list")
def list_all(
    kind: Annotated[
        str, typer.Option(help="addition, removal, classification, overlap or replication; empty: all.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Every report, the newest first; they outlive what they speak of."""
    from workbench.registry.database import reading
    from workbench.registry.reports import list_reports

    with reading() as session:
        cards = list_reports(session, kind=kind or None)
    if as_json:
        print_json(cards)
        return
    rows = [report_row(card) for card in cards]
    columns = [name[:1].upper() + name[1:] for name in (rows[0] if rows else ())]
    empty = "There is no report. Certificates leave one: workbench expert certify, workbench expert certify-removal"
    print_table(columns, [list(row.values()) for row in rows], empty=empty)


@app.command("show")
def show(report: ReportId, as_json: Json = False) -> None:
    """One report with its numbers."""
    card = _card(report)
    if as_json:
        print_json(card)
    elif card.kind in _PRINTERS:
        _PRINTERS[card.kind](card)
    else:
        say(f"{card.title} ({day(card.created_at)}, report {card.id[:8]})\n{read_words(card)}".rstrip())


@app.command("delete")
def delete(report: ReportId, as_json: Json = False) -> None:
    """Delete a report with its pages; what it speaks of stays."""
    from workbench.registry.database import transaction
    from workbench.registry.reports import delete_report

    card = _card(report)
    with transaction() as session:
        delete_report(session, card.id)
    print_done({"deleted": card.id}, f"“{card.title}” ({card.id[:8]}) is deleted.", as_json)


def _card(report: str) -> ReportCard:
    from workbench.registry.database import reading
    from workbench.registry.reports import get_report

    with reading() as session:
        return get_report(session, report)
