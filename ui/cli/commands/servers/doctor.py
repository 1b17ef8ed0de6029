"""workbench doctor: checks whether this machine is ready."""

from __future__ import annotations

import typer

from ui.cli.options import Json
from ui.cli.output import print_json, say


def doctor(as_json: Json = False) -> None:
    """Check Python, PyTorch, disk, store, registry, queue, worker, ports and browser, and print how to fix problems."""
    from ui.serving.doctor import examine, is_well
    from workbench.settings import get_settings

    findings = examine(get_settings())
    if as_json:
        print_json({"ok": is_well(findings), "checks": findings})
    else:
        for check in findings:
            status = "ok" if check.ok else "problem" if check.needed else "missing"
            say(f"{status:<8} {check.name:<18} {check.finding}{' ' + check.next_step if not check.ok else ''}".rstrip())
    raise typer.Exit(0 if is_well(findings) else 1)
