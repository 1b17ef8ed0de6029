"""workbench restore: restores a workbench from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ui.cli.options import Json
from ui.cli.output import day, print_json, say
from ui.cli.progress_bar import progress_bar


def restore(
    backup: Annotated[Path, typer.Argument(help="Folder that `workbench backup` made.")],
    keep_damaged: Annotated[
        bool, typer.Option("--keep-damaged", help="Restore a damaged backup as far as it goes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore a workbench from a backup into an empty home, and compare every file; jobs that ran are queued again.

    Where WORKBENCH_DATABASE_URL names a database of PostgreSQL, which must be empty, the rows go there.
    The exit code is 1 if an artifact is damaged.
    """
    from jobs.restore import restore as restore_home
    from ui.cli.commands.servers.verify import print_store_check, store_progress
    from workbench.settings import get_settings

    with progress_bar(as_json) as draw:
        result = restore_home(get_settings(), backup, keep_damaged=keep_damaged, see=store_progress(draw))
    if as_json:
        print_json(result)
    else:
        print_store_check(result.check)
        for title in result.requeued:
            say(f"Queued again: {title}")
        say(f"The workbench of {day(result.made_at)} is restored in {result.home}. Start it with `workbench up`.")
    raise typer.Exit(0 if result.check.ok else 1)
