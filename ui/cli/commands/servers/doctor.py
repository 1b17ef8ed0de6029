"""workbench doctor: checks whether this machine is ready."""

from __future__ import annotations

from ui.cli.verbs import Outcome, prints


@prints
def doctor() -> Outcome:
    """Check Python, PyTorch, disk, store, registry, queue, worker, ports and browser, and print how to fix problems."""
    from ui.serving.doctor import examine, is_well
    from workbench.settings import get_settings

    findings = examine(get_settings())
    lines = []
    for check in findings:
        status = "ok" if check.ok else "problem" if check.needed else "missing"
        step = "" if check.ok else f" {check.next_step}"
        lines.append(f"{status:<8} {check.name:<18} {check.finding}{step}".rstrip())
    is_ready = is_well(findings)
    return Outcome({"ok": is_ready, "checks": findings}, "\n".join(lines), is_ready)
