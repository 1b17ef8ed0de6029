"""workbench restore: restores a workbench from a backup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ui.cli.commands.servers.verify import print_store_check, store_progress
from ui.cli.job_progress import progress_bar
from ui.cli.options import Json
from ui.cli.output import day, say
from ui.cli.verbs import Outcome, prints
from ui.present.terminal import harmless
from workbench.formatting.number_format import pluralize

if TYPE_CHECKING:
    from workbench.answers.integrity import RestoredWorkbench

MOST_NAMES = 10  # of what is left out


@prints
def restore(
    backup: Annotated[Path, typer.Argument(help="Folder that `workbench backup` made.")],
    keep_damaged: Annotated[
        bool, typer.Option("--keep-damaged", help="Restore a damaged backup as far as it goes.")
    ] = False,
    users: Annotated[bool, typer.Option("--users", help="Restore the users of a team and their tokens, too.")] = False,
    jobs: Annotated[bool, typer.Option("--jobs", help="Let unfinished jobs go on, instead of pausing them.")] = False,
    as_json: Json = False,
) -> Outcome:
    """Restore a workbench from a backup into an empty home, and compare every file.

    Without --users its users have no access, and without --jobs its unfinished jobs are paused: they may be anybody's.

    Where WORKBENCH_DATABASE_URL names a database of PostgreSQL, which must be empty, the rows go there.
    The exit code is 1 if an artifact is damaged.
    """
    from jobs.restore import restore as restore_home
    from workbench.settings import get_settings

    options = {"keep_damaged": keep_damaged, "with_users": users, "with_jobs": jobs}
    with progress_bar(as_json) as draw:
        result = restore_home(get_settings(), backup, **options, see=store_progress(draw))
    return Outcome(result, _print, result.check.ok)


def _print(result: RestoredWorkbench) -> None:
    print_store_check(result.check)
    for title in result.requeued:
        say(f"Queued again: {title}")
    for sentence in _left_out(result):
        say(sentence)
    say(f"The workbench of {day(result.made_at)} is restored in {result.home}. Start it with `workbench up`.")


def _left_out(result: RestoredWorkbench) -> Iterator[str]:
    for title in result.paused:
        yield f"Paused: {title}"
    if result.paused:
        yield f"{pluralize(len(result.paused), 'job')} paused: `workbench job resume` continues one, and --jobs all."
    if result.num_users_left_out:
        yield f"{pluralize(result.num_users_left_out, 'user')} left out: add them again, or restore with --users."
    if result.left_out:
        names = ", ".join(harmless(name) for name in result.left_out[:MOST_NAMES])
        others = f" and {len(result.left_out) - MOST_NAMES} more" if len(result.left_out) > MOST_NAMES else ""
        count = pluralize(len(result.left_out), "file or folder", "files and folders")
        yield f"{count} left out, since no backup writes it or no row names it: {names}{others}."
