"""workbench selfcheck: do the engine's laws hold here, on this machine and with these versions?"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from ui.cli.options import Json
from ui.cli.output import print_json, print_table, say
from ui.present.text.verdicts import number, place, result, summary

if TYPE_CHECKING:
    from engine.selfcheck.law import Checked


def selfcheck(as_json: Json = False) -> None:
    """Check the laws of mixing, caching and resuming on a tiny model here; it takes less than a minute."""
    from engine.device import prepare_process
    from engine.selfcheck.report import report
    from workbench.settings import get_settings

    settings = get_settings()
    prepare_process(settings.threads)
    found = report(_checked(settings.device, quiet=as_json), settings.device)
    _keep(found)
    if as_json:
        print_json(found)
    else:
        _show(found)
    raise typer.Exit(0 if found["ok"] else 1)


def _keep(found: dict[str, Any]) -> None:
    """Puts the verdicts where the page Self-check finds them; nowhere without a registry, which no law needs."""
    from jobs.queue.submit import keep_done
    from workbench.errors import NoRegistry
    from workbench.kinds.analysis.selfcheck import SelfCheck

    with suppress(NoRegistry):
        keep_done(SelfCheck(), found)


def _checked(device: str, quiet: bool) -> list[Checked]:
    """The verdicts, with a bar on stderr while they come."""
    from rich.console import Console
    from rich.progress import Progress

    found: list[Checked] = []
    with Progress(console=Console(stderr=True), disable=quiet) as progress:
        bar = progress.add_task("Waking PyTorch", total=None)
        from engine.selfcheck.laws import LAWS, run_laws

        for one in run_laws(device):
            found.append(one)
            progress.update(bar, description=f"{one.law} {result(one.passed)}", completed=len(found), total=len(LAWS))
    return found


def _show(found: dict[str, Any]) -> None:
    columns = ["Law", "Sentence", "Tolerance", "Measured", "Result"]
    rows = [
        [law["law"], law["sentence"], law["tolerance"], number(law["measured"]), result(law["passed"])]
        for law in found["laws"]
    ]
    print_table(columns, rows, empty="There is no law to check.")
    for law in found["laws"]:
        if not law["passed"]:
            say(f"{law['law']}: {law['message']}")
    say(f"{summary(found)} {place(found)}")
