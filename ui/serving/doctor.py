"""Is this machine ready? Each check looks at one thing and says what it found and what to do."""

from __future__ import annotations

import platform
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import Problem
from ui.errors import ServerDown
from ui.present.text.formatting import ago, clock, pluralize, size
from ui.serving.addresses import api_address, require_free_port, require_safe_address, studio_address
from ui.serving.disks import ENOUGH_BYTES, least_room, trashed_bytes

if TYPE_CHECKING:
    from workbench.settings import Settings
    from workbench.store.storage import Storage

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
        trash = trashed_bytes(settings)
        found += f", {size(trash)} in the trash" if trash else ""
        variable = "WORKBENCH_ARTIFACTS" if folder == settings.artifacts_folder else "WORKBENCH_HOME"
        empty = "Run `workbench registry trash empty`. " if trash else ""
        return Finding("Disk", False, f"Only {found}.", f"{empty}Free some space, or set {variable} to a larger disk.")
    return Finding("Disk", True, found)


def _registry(settings: Settings) -> Finding:
    from workbench.registry.database import VERSION, require_registry

    require_registry(settings)
    return Finding("Registry", True, f"version {VERSION} in {settings.root}")


def check_artifacts(settings: Settings) -> Finding:
    """Whether these artifacts belong to this registry, which knows them."""
    from workbench.errors import NoRegistry, StorageError
    from workbench.registry.database import has_registry, reading
    from workbench.store.storage import get_storage
    from workbench.store.stores import refusal, state_of

    storage = get_storage(settings)
    try:
        if not has_registry(settings):
            return _of_no_registry(storage)
        with reading(settings) as session:
            state = state_of(session, storage)
    except (NoRegistry, StorageError) as problem:
        return Finding("Artifacts", False, problem.problem, problem.next_step)
    if (refused := refusal(state, storage)) is not None:
        return Finding("Artifacts", False, refused.problem, refused.next_step)
    if state.missing:
        found = f"This registry has lost the rows of {pluralize(len(state.missing), 'artifact')}; the files are kept."
        return Finding("Artifacts", False, found, "Make the rows again: `workbench registry rebuild`.", needed=False)
    return Finding("Artifacts", True, f"{len(state.known):,} in {storage.folder}")


def _of_no_registry(storage: Storage) -> Finding:
    if not (num := len(storage.ids())):
        return Finding("Artifacts", True, "none yet")
    found = f"No registry knows the {pluralize(num, 'artifact')} in {storage.folder}."
    step = "Restore a backup, or run `workbench migrate` and `workbench registry rebuild`."
    return Finding("Artifacts", False, found, step)


def _trash(settings: Settings) -> Finding:
    from jobs.garbage_collection import trashed

    entries = trashed(settings)
    if not entries:
        return Finding("Trash", True, "empty")
    total = size(sum(one.size_bytes for one in entries))
    return Finding("Trash", True, f"{pluralize(len(entries), 'folder')}, {total}, the oldest of {clock(entries[0].at)}")


def _backup(settings: Settings) -> Finding:
    from workbench.registry.database import has_registry, reading
    from workbench.store.backups import EVERY_SECONDS, backups_folder, is_copied, list_backups
    from workbench.store.storage import get_storage
    from workbench.store.stores import find_registry_id

    if not is_copied(settings):
        return Finding("Backup", True, "none is made of PostgreSQL: use `pg_dump`")
    made = list_backups(settings)
    if has_registry(settings):  # else any may help
        with reading(settings) as session:
            registry_id = find_registry_id(session)
        others, made = len(made), [one for one in made if one.registry_id == registry_id]
        if others and not made:
            there = f"{pluralize(others, 'backup')} of another in {backups_folder(settings)}"
            told = f"There is none of this registry, but {there}."
            return Finding("Backup", False, told, "If that was yours: docs/how_to/backups_and_trash.md.", needed=False)
    newest = next(iter(made), None)
    if newest is None and not get_storage(settings).ids():
        return Finding("Backup", True, "none yet, and nothing to back up")
    step = "Start the scheduler with `workbench up`, or run `workbench registry backup`."
    if newest is None:
        return Finding("Backup", False, "There is none.", step, needed=False)
    if time.time() - newest.at > 2 * EVERY_SECONDS:
        return Finding("Backup", False, f"The newest was made {ago(newest.at)}.", step, needed=False)
    return Finding("Backup", True, f"made {ago(newest.at)}: {newest.path}")


def _broker(settings: Settings) -> Finding:
    from jobs.queue.app import make_app

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
    from ui.serving.processes import CLOCK, WORKER, runs
    from workbench.job_records.jobs import count_by_state
    from workbench.registry.database import reading

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
    from ui.serving.browser import studio_answers

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
    "Artifacts": check_artifacts,
    "Trash": _trash,
    "Backup": _backup,
    "Queue": _broker,
    "Worker": _worker,
    "API": _api,
    "Studio": _studio,
    "Browser for tests": _browser,
}
