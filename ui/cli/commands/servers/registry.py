"""The registry: back it up, rebuild lost rows, restore artifacts from the trash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.listing import Column, lists
from ui.cli.options import Json
from ui.cli.output import print_done, print_json, say
from ui.present.text.formatting import clock, pluralize, size

if TYPE_CHECKING:
    from workbench.settings import Settings
    from workbench.store.rebuild import Rebuilt
    from workbench.store.trash import Trashed

app = typer.Typer(no_args_is_help=True, help=__doc__)
trash = typer.Typer(no_args_is_help=True, help="The trash: list, restore or delete artifacts that nothing refers to.")
app.add_typer(trash, name="trash")

_MOST_DAYS = 36_500


@app.command("backup")
def backup(as_json: Json = False) -> None:
    """Back up the registry now. The scheduler does so daily and keeps the backups of seven days."""
    from engine.errors import Problem
    from workbench.registry.backups import back_up, is_copied
    from workbench.settings import get_settings

    settings = get_settings()
    if not is_copied(settings):
        raise Problem("Daily copies are made of SQLite only, not of PostgreSQL.", "Use `workbench backup FOLDER`.")
    made = back_up(settings)
    print_done(made, f"The registry is backed up in {made.path}.", as_json)


@app.command("rebuild")
def rebuild(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be rebuilt; change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Create rows for artifacts that the registry does not know; existing rows stay unchanged.

    Run it after registry.db was lost or replaced by an older backup. If the registry then knows most of the
    artifacts, it becomes their owner. With a shared store run it on every machine: each one rebuilds what
    it recorded.
    """
    from workbench.registry.database import transaction
    from workbench.store.rebuild import rebuild as rebuild_rows
    from workbench.store.storage import get_storage

    with transaction() as session:
        report = rebuild_rows(session, get_storage(), dry_run=dry_run)
    _print_rebuilt(report, as_json, "Would be rebuilt" if dry_run else "Rebuilt")


@app.command("adopt")
def adopt(as_json: Json = False) -> None:
    """Make this registry the owner of the artifacts. Garbage collection then moves unknown artifacts to the trash.

    Use it only where the former registry was abandoned on purpose: `workbench registry rebuild` loses less.
    """
    from workbench.registry.database import transaction
    from workbench.store.ownership import adopt as adopt_store
    from workbench.store.storage import get_storage

    storage = get_storage()
    stored = storage.stored_ids() if storage.shared else None
    with transaction() as session:
        unknown = adopt_store(session, storage, stored)
    sentence = f"The artifacts in {storage.folder} belong to this registry now."
    if unknown:
        sentence += f" It does not know {unknown:,} of them: garbage collection moves these to the trash"
        sentence += ", and removes them from the store after 30 days." if stored else "."
    print_done({"folder": storage.folder, "num_unknown": unknown}, sentence, as_json)


@app.command("sweep")
def sweep(as_json: Json = False) -> None:
    """Remove now what killed processes left behind, and move files that nothing refers to to the trash.

    The scheduler does so by itself: leftovers of ended jobs within a minute, and every hour files without a row that
    have not changed for a day. Of a shared store, what nothing needs any more is removed.
    """
    from jobs.garbage_collection import remove_all_leftovers, sweep_store
    from jobs.garbage_collection import sweep as sweep_files
    from workbench.settings import get_settings

    settings = get_settings()
    leftovers = remove_all_leftovers(settings)
    moved = sweep_files(settings)
    removed = [*map(str, leftovers), *sweep_store(settings)]
    sentence = f"Removed {pluralize(len(removed), 'leftover')}; moved {pluralize(len(moved), 'folder')} to the trash."
    print_done({"removed": removed, "moved": moved}, sentence, as_json)


@app.command("upload")
def upload(as_json: Json = False) -> None:
    """Upload this machine's artifacts that the shared store lacks, after WORKBENCH_STORE was set for the first time."""
    from engine.errors import Problem
    from workbench.registry.database import reading
    from workbench.store.artifacts import known_ids
    from workbench.store.storage import get_storage

    storage = get_storage()
    if storage.shared is None:
        raise Problem("There is no shared store.", "Set WORKBENCH_STORE, such as s3://bucket/prefix.")
    with reading() as session:
        known = known_ids(session)
    uploaded = list(storage.upload_missing(known))
    sentence = f"Uploaded {pluralize(len(uploaded), 'artifact')} to {storage.shared.url}."
    print_done({"uploaded": uploaded, "store": storage.shared.url}, sentence, as_json)


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
    from workbench.settings import get_settings

    return [
        {"id": entry.id, "kind": entry.kind, "size_bytes": entry.size_bytes, "trashed_at": entry.at, "name": name}
        for entry, name in _entries(get_settings())
    ]


@trash.command("restore")
def restore_trash(
    id: Annotated[str, typer.Argument(help="Id in the trash, or its first digits.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Restore all entries.")] = False,
    as_json: Json = False,
) -> None:
    """Restore an artifact from the trash, with its rows as far as they are known."""
    from jobs.garbage_collection import restore
    from ui.errors import BadUsageError
    from workbench.settings import get_settings
    from workbench.store.trash import find_entries

    if bool(id) == all_:
        raise BadUsageError("Give an id, or --all.", "See `workbench registry trash list`.")
    settings = get_settings()
    entries = [entry for entry, _ in _entries(settings)]
    if not entries and all_ and not as_json:
        say("The trash is empty: there is nothing to restore.")
        return
    report = restore(settings, entries if all_ else find_entries(entries, id))
    _print_rebuilt(report, as_json, "Restored, with rows of")


@trash.command("empty")
def empty_trash(
    older_than: Annotated[float, typer.Option(help="Delete only entries older than this many days.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Delete the entries of the trash permanently, to free disk space; with a shared store, there as well."""
    from jobs.garbage_collection import empty_trashes, sweep_store
    from ui.errors import BadUsageError
    from workbench.settings import get_settings

    if not 0 <= older_than <= _MOST_DAYS:  # no number at all, too
        raise BadUsageError(f"--older-than is {older_than:g}, but must be 0 to {_MOST_DAYS:,} days.")
    gone, freed = empty_trashes(get_settings(), older_than * 24 * 3600)
    sweep_store(get_settings(), older_than * 24 * 3600)
    sentence = f"{pluralize(gone, 'folder')} deleted permanently; {size(freed)} freed."
    print_done({"deleted": gone, "freed_bytes": freed}, sentence, as_json)


def _entries(settings: Settings) -> list[tuple[Trashed, str]]:
    """The entries of both trashes, the oldest first, each with the name that it had in the registry."""
    from jobs.garbage_collection import trashed
    from workbench.store.rebuild import name_of
    from workbench.store.storage import get_storage

    return [(entry, name_of(get_storage(settings), entry.id)) for entry in trashed(settings)]


def _print_rebuilt(report: Rebuilt, as_json: bool, title: str) -> None:
    if as_json:
        print_json(report)
        return
    made = ", ".join(pluralize(number, thing, _MANY.get(thing, "")) for thing, number in report.made.items() if number)
    say(f"{title}: {made or 'nothing'}. The registry knows {pluralize(report.num_known, 'artifact')}.")
    for skipped in report.left:
        say(f"  {skipped.thing} {skipped.name}: {skipped.why}")


_MANY = {"corpus": "corpora", "member of a mixture": "members of mixtures"}
