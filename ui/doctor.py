"""Is this machine ready? Each check looks at one thing and says what it found and what to do."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import Problem
from ui.addresses import api_address, require_free_port, require_safe_address, studio_address
from ui.disks import ENOUGH_BYTES, least_room
from ui.errors import ServerDown
from ui.parts.words import size

if TYPE_CHECKING:
    from workbench.settings import Settings

NEWEST_TESTED = (3, 14)
OLDEST = (3, 11)


@dataclass(frozen=True)
class Finding:
    """What one check found; `needed` is False for what only some people miss."""

    name: str
    ok: bool
    finding: str
    next_step: str = ""
    needed: bool = True


def examine(settings: Settings) -> list[Finding]:
    """Every check in turn; one that meets a Problem tells it as its finding."""
    return [_guarded(name, check, settings) for name, check in CHECKS.items()]


def is_well(findings: list[Finding]) -> bool:
    """Whether everything that is needed is there."""
    return all(one.ok for one in findings if one.needed)


def _guarded(name: str, check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    try:
        return check(settings)
    except Problem as problem:
        return Finding(name, False, problem.problem, problem.next_step)


def _python(_: Settings) -> Finding:
    found, version = sys.version_info[:2], platform.python_version()
    if found < OLDEST:
        return Finding("Python", False, f"{version} is too old.", "Install Python 3.11 or newer.")
    new = " (newer than what was tested)" if found > NEWEST_TESTED else ""
    return Finding("Python", True, version + new)


def _torch(settings: Settings) -> Finding:
    from importlib.metadata import version

    from engine.device import choose_device, prepare_process

    prepare_process(settings.threads)
    return Finding("PyTorch", True, f"{version('torch')}, computing on {choose_device(settings.device)}")


def _disk(settings: Settings) -> Finding:
    free, folder = least_room(settings)
    found = f"{size(free)} free at {folder}"
    if free < ENOUGH_BYTES:
        variable = "WORKBENCH_ARTIFACTS" if folder == settings.artifacts_folder else "WORKBENCH_HOME"
        return Finding("Disk", False, f"Only {found}.", f"Free some space, or set {variable} to a larger disk.")
    return Finding("Disk", True, found)


def _registry(settings: Settings) -> Finding:
    from workbench.database import VERSION, require_registry

    require_registry(settings)
    return Finding("Registry", True, f"version {VERSION} in {settings.root}")


def _broker(settings: Settings) -> Finding:
    from jobs.app import make_app

    where = settings.broker_url.partition("://")[0] or "a folder in the home folder"
    connection = make_app(settings).connection_for_write()
    try:
        with connection:
            connection.connect()
    except (OSError, *connection.connection_errors) as error:
        step = "Start the broker, or leave WORKBENCH_BROKER_URL empty."
        return Finding("Queue", False, f"{where} does not answer ({error}).", step)
    return Finding("Queue", True, where)


def _worker(settings: Settings) -> Finding:
    from ui.processes import CLOCK, WORKER, runs
    from workbench.database import reading
    from workbench.services.jobs import count_by_state

    missing = [name for name in (WORKER, CLOCK) if not runs(name, settings)]
    if not missing:
        return Finding("Worker", True, f"worker and clock run on this machine for {settings.root}")
    with reading(settings) as session:
        counts = count_by_state(session)
    waiting = counts.get("queued", 0) + counts.get("interrupted", 0)
    start = "Start everything with `workbench up`."
    if waiting:
        return Finding(
            "Worker",
            False,
            f"{waiting} jobs wait, but {' and '.join(missing)} do not run here.",
            start,
        )
    return Finding("Worker", True, f"not running, and no job waits. {start}")


def _api(settings: Settings) -> Finding:
    from ui.client import Client

    require_safe_address(settings)
    with Client(settings) as client, suppress(ServerDown):
        client.health()
        return Finding("API", True, f"answers at {api_address(settings)}")
    require_free_port(settings.api_port, "WORKBENCH_API_PORT", settings.host)
    return Finding("API", True, f"not running; port {settings.api_port} is free")


def _studio(settings: Settings) -> Finding:
    from ui.browser import studio_answers

    if studio_answers(settings):
        return Finding("Studio", True, f"answers at {studio_address(settings)}")
    require_free_port(settings.studio_port, "WORKBENCH_STUDIO_PORT")
    return Finding("Studio", True, f"not running; port {settings.studio_port} is free")


def _browser(_: Settings) -> Finding:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found:
        return Finding("Browser for tests", True, found, needed=False)
    return Finding(
        "Browser for tests", False, "none found.", "Only the browser tests need one: install chromium.", needed=False
    )


CHECKS: dict[str, Callable[[Settings], Finding]] = {
    "Python": _python,
    "PyTorch": _torch,
    "Disk": _disk,
    "Registry": _registry,
    "Queue": _broker,
    "Worker": _worker,
    "API": _api,
    "Studio": _studio,
    "Browser for tests": _browser,
}
