"""workbench doctor: is this machine ready?"""

from __future__ import annotations

import typer

from ui.cli.options import Json
from ui.cli.output import print_json, say


def doctor(as_json: Json = False) -> None:
    """Check Python, PyTorch, disk, registry, queue, worker, ports and browser; say what to do about each."""
    from ui.serving.doctor import examine, is_well
    from workbench.settings import get_settings

    findings = examine(get_settings())
    if as_json:
        print_json({"ok": is_well(findings), "checks": findings})
    else:
        for one in findings:
            mark = "ok" if one.ok else "problem" if one.needed else "missing"
            say(f"{mark:<8} {one.name:<18} {one.finding}{' ' + one.next_step if not one.ok else ''}".rstrip())
    raise typer.Exit(0 if is_well(findings) else 1)
