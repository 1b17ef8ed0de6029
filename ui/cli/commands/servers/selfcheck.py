"""workbench selfcheck: checks the laws of the engine on this machine and these versions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ui.cli.job_progress import progress_bar
from ui.cli.options import Json
from ui.cli.output import print_table, say
from ui.cli.verbs import Outcome, prints
from ui.present.text.verdicts import number, place, result
from workbench.kinds.analysis import SelfCheck, summary

if TYPE_CHECKING:
    from engine.selfcheck.law import LawVerdict


@prints
def selfcheck(as_json: Json = False) -> Outcome:
    """Check the laws of mixing, caching and resuming on a tiny model, in less than a minute."""
    from engine.device import prepare_process
    from engine.selfcheck.law import report
    from workbench.settings import get_settings

    settings = get_settings()
    prepare_process(settings.threads)
    outcome = asdict(report(_run_checks(settings.device, quiet=as_json), settings.device))
    _store(outcome)
    return Outcome(outcome, _print, outcome["ok"])


def _store(outcome: dict[str, Any]) -> None:
    """Stores the verdicts for the page Self-check; without a registry, which no law needs, stores nothing."""
    from jobs.queue.submit import keep_done
    from workbench.errors import NoRegistryError

    with suppress(NoRegistryError):
        keep_done(SelfCheck(), outcome)


def _run_checks(device: str, quiet: bool) -> list[LawVerdict]:
    """The verdicts, with a progress bar on stderr."""
    checks: list[LawVerdict] = []
    with progress_bar(quiet) as draw:
        draw("Loading PyTorch", 0.0)
        from engine.selfcheck.laws import LAWS, run_laws

        for check in run_laws(device):
            checks.append(check)
            draw(f"{check.law} {result(check.passed)}", len(checks) / len(LAWS))
    return checks


def _print(outcome: dict[str, Any]) -> None:
    columns = ["Law", "Statement", "Tolerance", "Measured", "Result"]
    rows = [
        [law["law"], law["sentence"], law["tolerance"], number(law["measured"]), result(law["passed"])]
        for law in outcome["laws"]
    ]
    print_table(columns, rows, empty="There are no laws to check.")
    for law in outcome["laws"]:
        if not law["passed"]:
            say(f"{law['law']}: {law['message']}")
    say(f"{summary(outcome)} {place(outcome)}")
