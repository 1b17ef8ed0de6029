"""workbench backup: copies a workbench into a folder while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ui.cli.commands.servers.verify import print_faulty, store_progress
from ui.cli.job_progress import progress_bar
from ui.cli.options import Json
from ui.cli.output import say
from ui.cli.verbs import Outcome, prints
from ui.present.text.formatting import pluralize, size
from workbench.formatting.shell_command import shell_command

if TYPE_CHECKING:
    from workbench.answers.integrity import WorkbenchBackup


@prints
def backup(
    folder: Annotated[Path, typer.Argument(help="New folder for the copy, outside the workbench.")],
    as_json: Json = False,
) -> Outcome:
    """Copy the workbench into a folder while it runs: registry, artifacts, checkpoints and logs of jobs, uploads.

    The exit code is 1 if artifacts were damaged already; they are named, and all else is in the backup.
    """
    from jobs.backup import back_up
    from workbench.settings import get_settings

    with progress_bar(as_json) as draw:
        made = back_up(get_settings(), folder, store_progress(draw, "copied"))
    return Outcome(made, _print, ok=not made.faulty)


def _print(made: WorkbenchBackup) -> None:
    for fault in made.faulty:
        print_faulty(fault)
    copied = f"{pluralize(made.num_artifacts - len(made.faulty), 'artifact')}, {size(made.num_bytes)}"
    say(f"The workbench is backed up in {made.folder}: {copied}, each compared with its hash.")
    say(f"Restore it into an empty home: WORKBENCH_HOME=FOLDER {shell_command('restore', str(made.folder))}")
