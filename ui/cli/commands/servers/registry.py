"""The registry: back it up, rebuild lost rows, restore artifacts from the trash."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from engine.errors import Problem
from jobs import garbage_collection
from ui.cli.output import say
from ui.cli.verbs import Column, CommandGroup, Outcome, lists, read, write
from ui.errors import BadUsageError
from ui.present.text.formatting import clock, pluralize, size
from workbench.registry.backups import back_up, is_copied
from workbench.settings import Settings, get_settings
from workbench.store.artifacts import known_ids
from workbench.store.ownership import adopt as adopt_store
from workbench.store.rebuild import Rebuilt, name_of
from workbench.store.rebuild import rebuild as rebuild_rows
from workbench.store.storage import get_storage
from workbench.store.trash import Trashed, find_entries

app = CommandGroup(__doc__)
trash = CommandGroup("The trash: list, restore or delete artifacts that nothing refers to.")
app.add_typer(trash, name="trash")

_MOST_DAYS = 36_500


@app.verb()
def backup() -> Outcome:
    """Back up the registry now. The scheduler does so daily and keeps the backups of seven days."""
    settings = get_settings()
    if not is_copied(settings):
        raise Problem("Daily copies are made of SQLite only, not of PostgreSQL.", "Use `workbench backup FOLDER`.")
    made = back_up(settings)
    return Outcome(made, f"The registry is backed up in {made.path}.")


@app.verb()
def rebuild(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be rebuilt; change nothing.")] = False,
) -> Outcome:
    """Create rows for artifacts that the registry does not know; existing rows stay unchanged.

    Run it after registry.db was lost or replaced by an older backup. If the registry then knows most of the
    artifacts, it becomes their owner. With a shared store run it on every machine: each one rebuilds what
    it recorded.
    """
    report = write(rebuild_rows, get_storage(), dry_run=dry_run)
    return Outcome(report, partial(_print_rebuilt, done="Would be rebuilt" if dry_run else "Rebuilt"))


@app.verb()
def adopt() -> Outcome:
    """Make this registry the owner of the artifacts. Garbage collection then moves unknown artifacts to the trash.

    Use it only where the former registry was abandoned on purpose: `workbench registry rebuild` loses less.
    """
    storage = get_storage()
    stored = storage.stored_ids() if storage.shared else None
    unknown = write(adopt_store, storage, stored)
    sentence = f"The artifacts in {storage.folder} belong to this registry now."
    if unknown:
        sentence += f" It does not know {unknown:,} of them: garbage collection moves these to the trash"
        sentence += ", and removes them from the store after 30 days." if stored else "."
    return Outcome({"folder": storage.folder, "num_unknown": unknown}, sentence)


@app.verb()
def sweep() -> Outcome:
    """Remove now what killed processes left behind, and move files that nothing refers to to the trash.

    The scheduler does so unasked: leftovers of ended jobs within a minute, and every hour files without a row that
    have not changed for a day. Of a shared store, what nothing needs any more is removed.
    """
    settings = get_settings()
    leftovers = garbage_collection.remove_all_leftovers(settings)
    moved = garbage_collection.sweep(settings)
    removed = [*map(str, leftovers), *garbage_collection.sweep_store(settings)]
    sentence = f"Removed {pluralize(len(removed), 'leftover')}; moved {pluralize(len(moved), 'folder')} to the trash."
    return Outcome({"removed": removed, "moved": moved}, sentence)


@app.verb()
def upload() -> Outcome:
    """Upload this machine's artifacts that the shared store lacks, after WORKBENCH_STORE was set for the first time."""
    storage = get_storage()
    if storage.shared is None:
        raise Problem("There is no shared store.", "Set WORKBENCH_STORE, such as s3://bucket/prefix.")
    uploaded = list(storage.upload_missing(read(known_ids)))
    sentence = f"Uploaded {pluralize(len(uploaded), 'artifact')} to {storage.shared.url}."
    return Outcome({"uploaded": uploaded, "store": storage.shared.url}, sentence)


# the trash -------------------------------------------------------------------------------------------


_TRASH_COLUMNS = (
    Column("ID", lambda entry: entry["id"], lambda id: id[:12]),
    Column("Kind", lambda entry: entry["kind"]),
    Column("Name", lambda entry: entry["name"]),
    Column("Size", lambda entry: entry["size_bytes"], size),
    Column("Deleted", lambda entry: entry["trashed_at"], clock),
)


@trash.command("list")
@lists(_TRASH_COLUMNS, empty="The trash is empty.", noun="entry")
def list_trash() -> list[dict[str, Any]]:
    """List deleted artifacts, which can be restored for 30 days."""
    return [
        {"id": entry.id, "kind": entry.kind, "size_bytes": entry.size_bytes, "trashed_at": entry.at, "name": name}
        for entry, name in _entries(get_settings())
    ]


@trash.verb("restore")
def restore_trash(
    id: Annotated[str, typer.Argument(help="Id in the trash, or its first digits.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Restore all entries.")] = False,
) -> Outcome:
    """Restore an artifact from the trash, with its rows as far as they are known."""
    if bool(id) == all_:
        raise BadUsageError("Give an id, or --all.", "See `workbench registry trash list`.")
    settings = get_settings()
    entries = [entry for entry, _ in _entries(settings)]
    report = garbage_collection.restore(settings, entries if all_ else find_entries(entries, id))
    if not entries:
        return Outcome(report, "The trash is empty: there is nothing to restore.")
    return Outcome(report, partial(_print_rebuilt, done="Restored, with rows of"))


@trash.verb("empty")
def empty_trash(
    older_than: Annotated[float, typer.Option(help="Delete only entries older than this many days.")] = 0.0,
) -> Outcome:
    """Delete the entries of the trash permanently, to free disk space; with a shared store, there as well."""
    if not 0 <= older_than <= _MOST_DAYS:  # NaN is neither
        raise BadUsageError(f"--older-than must be 0 to {_MOST_DAYS:,} days; got {older_than:g}.")
    gone, freed = garbage_collection.empty_trashes(get_settings(), older_than * 24 * 3600)
    garbage_collection.sweep_store(get_settings(), older_than * 24 * 3600)
    sentence = f"{pluralize(gone, 'folder')} deleted permanently; {size(freed)} freed."
    return Outcome({"deleted": gone, "freed_bytes": freed}, sentence)


def _entries(settings: Settings) -> list[tuple[Trashed, str]]:
    """The entries of both trashes, the oldest first, each with the name that it had in the registry."""
    return [(entry, name_of(get_storage(settings), entry.id)) for entry in garbage_collection.trash_entries(settings)]


def _print_rebuilt(report: Rebuilt, done: str) -> None:
    made = ", ".join(pluralize(number, thing, _MANY.get(thing, "")) for thing, number in report.made.items() if number)
    say(f"{done}: {made or 'nothing'}. The registry knows {pluralize(report.num_known, 'artifact')}.")
    for skipped in report.left:
        say(f"  {skipped.thing} {skipped.name}: {skipped.why}")


_MANY = {"corpus": "corpora", "member of a mixture": "members of mixtures"}
