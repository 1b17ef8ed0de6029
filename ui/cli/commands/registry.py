"""workbench registry: backups, rebuilding rows that were lost, and the trash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.options import Json
from ui.cli.output import print_done, print_json, print_table, say
from ui.present.text.formatting import clock, pluralize, size

if TYPE_CHECKING:
    from workbench.settings import Settings
    from workbench.store.rebuild import Rebuilt
    from workbench.store.trash import Trashed

app = typer.Typer(no_args_is_help=True, help="The registry: back it up, rebuild what was lost, restore from the trash.")
trash = typer.Typer(no_args_is_help=True, help="What sweeps removed: list it, restore it, empty it.")
app.add_typer(trash, name="trash")

_MOST_DAYS = 36_500


@app.command("backup")
def backup(as_json: Json = False) -> None:
    """Back the registry up now; the scheduler does it daily, and keeps backups of the last seven days."""
    from engine.errors import Problem
    from workbench.settings import get_settings
    from workbench.store.backups import back_up, is_copied

    settings = get_settings()
    if not is_copied(settings):
        raise Problem("The workbench backs up SQLite only, not PostgreSQL.", "Use `pg_dump`.")
    made = back_up(settings)
    print_done(made, f"The registry is backed up in {made.path}.", as_json)


@app.command("rebuild")
def rebuild(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be rebuilt.")] = False,
    as_json: Json = False,
) -> None:
    """Make the rows of artifacts again that the registry does not know; no row that is there changes.

    Run it after registry.db was lost, or replaced by an older backup. If this registry then knows most of the
    artifacts, they belong to it.
    """
    from workbench.registry.database import transaction
    from workbench.store.rebuild import rebuild as rebuild_rows
    from workbench.store.storage import get_storage

    with transaction() as session:
        report = rebuild_rows(session, get_storage(), dry_run=dry_run)
    _tell_rebuilt(report, as_json, "Would be rebuilt" if dry_run else "Rebuilt")


@app.command("adopt")
def adopt(as_json: Json = False) -> None:
    """Make this registry the owner of the artifacts; those that it does not know go to the trash with the next sweeps.

    Only for a registry that was given up on purpose: `workbench registry rebuild` loses less.
    """
    from workbench.registry.database import transaction
    from workbench.store.storage import get_storage
    from workbench.store.stores import adopt as adopt_store

    storage = get_storage()
    with transaction() as session:
        unknown = adopt_store(session, storage)
    told = f"The artifacts in {storage.folder} belong to this registry now."
    if unknown:
        told += f" It does not know {unknown:,} of them: the next sweeps move these to the trash."
    print_done({"folder": storage.folder, "num_unknown": unknown}, told, as_json)


# the trash -------------------------------------------------------------------------------------------


@trash.command("list")
def list_trash(as_json: Json = False) -> None:
    """List what sweeps removed; it can be restored for 30 days."""
    from workbench.settings import get_settings

    rows: list[dict[str, Any]] = [
        {"id": one.id, "kind": one.kind, "size_bytes": one.size_bytes, "trashed_at": one.at, "name": name}
        for one, name in _entries(get_settings())
    ]
    if as_json:
        print_json(rows)
        return
    shown = [
        [row["id"][:12], row["kind"], row["name"], size(row["size_bytes"]), clock(row["trashed_at"])] for row in rows
    ]
    print_table(["ID", "Kind", "Name", "Size", "Trashed"], shown, empty="The trash is empty.")


@trash.command("restore")
def restore_trash(
    id: Annotated[str, typer.Argument(help="Id in the trash, or its beginning.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Restore everything.")] = False,
    as_json: Json = False,
) -> None:
    """Move something from the trash back to its place, and make its rows again as far as is known."""
    from jobs.garbage_collection import restore
    from ui.errors import BadUsage
    from workbench.settings import get_settings
    from workbench.store.trash import find_entries

    if bool(id) == all_:
        raise BadUsage("Give an id, or --all.", "See `workbench registry trash list`.")
    settings = get_settings()
    entries = [one for one, _ in _entries(settings)]
    if not entries and all_ and not as_json:
        say("The trash is empty: there is nothing to restore.")
        return
    report = restore(settings, entries if all_ else find_entries(entries, id))
    _tell_rebuilt(report, as_json, "Restored, with rows of")


@trash.command("empty")
def empty_trash(
    older_than: Annotated[float, typer.Option(help="Only what has been in the trash for so many days.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Delete what is in the trash for good, to free disk space."""
    from jobs.garbage_collection import empty_trashes
    from ui.errors import BadUsage
    from workbench.settings import get_settings

    if not 0 <= older_than <= _MOST_DAYS:  # no number at all, too
        raise BadUsage(f"--older-than must be 0 to {_MOST_DAYS:,} days, but is {older_than:g} instead.")
    gone, freed = empty_trashes(get_settings(), older_than * 24 * 3600)
    told = f"{pluralize(gone, 'folder')} deleted for good; {size(freed)} freed."
    print_done({"deleted": gone, "freed_bytes": freed}, told, as_json)


def _entries(settings: Settings) -> list[tuple[Trashed, str]]:
    """What is in both trashes, the oldest first, with the name that the registry had for it."""
    from jobs.garbage_collection import trashed
    from workbench.store.rebuild import name_of
    from workbench.store.storage import get_storage

    return [(one, name_of(get_storage(settings), one.id)) for one in trashed(settings)]


def _tell_rebuilt(report: Rebuilt, as_json: bool, said: str) -> None:
    if as_json:
        print_json(report)
        return
    made = ", ".join(pluralize(number, thing, _MANY.get(thing, "")) for thing, number in report.made.items() if number)
    say(f"{said}: {made or 'nothing'}. The registry knows {pluralize(report.num_known, 'artifact')}.")
    for one in report.left:
        say(f"  {one.thing} {one.name}: {one.why}")


_MANY = {"corpus": "corpora", "member of a mixture": "members of mixtures"}
