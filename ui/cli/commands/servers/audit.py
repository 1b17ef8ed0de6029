"""The audit log: who submitted, added, changed and deleted what. No entry can be changed or deleted."""

from __future__ import annotations

from ui.cli.verbs import Column, CommandGroup, lists, read
from ui.present.text.formatting import clock
from workbench.answers.cards import AuditCard

app = CommandGroup(__doc__)

_COLUMNS = (
    Column("Time", lambda entry: entry.at, clock),
    Column("User", lambda entry: entry.user),
    Column("Action", lambda entry: entry.action),
    Column("Kind", lambda entry: entry.kind),
    Column("Name", lambda entry: entry.name),
    Column("Details", lambda entry: entry.details),
)
_MOST = 1_000_000


@app.command("list")
@lists(_COLUMNS, empty="The audit log has no entry yet.", noun="entry")
def list_all() -> list[AuditCard]:
    """List the entries of the audit log, the newest first."""
    from workbench.access.audit import list_entries

    return read(list_entries, limit=_MOST)
