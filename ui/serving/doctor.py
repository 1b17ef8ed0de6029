"""Checks whether this machine is ready: each check reports its result and how to fix a problem."""

from __future__ import annotations

import platform
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import Problem
from ui.addresses import api_address, require_free_port, require_safe_address, studio_address
from ui.errors import ServerDownError
from ui.present.text.formatting import ago, clock, pluralize, size

if TYPE_CHECKING:
    from workbench.settings import Settings
    from workbench.store.storage import Storage


ENOUGH_BYTES = 2_000_000_000  # for the demo with its checkpoints, and a margin


def least_free(settings: Settings) -> tuple[int, Path]:
    """The free bytes of the home's and the artifacts' disk, whichever has less, and the folder on it."""
    from workbench.store.storage import free_bytes

    return min((free_bytes(folder), folder) for folder in (settings.artifacts_folder, settings.root))


def trashed_bytes(settings: Settings) -> int:
    """The size of the trash."""
    from jobs.garbage_collection import trash_entries

    return sum(one.size_bytes for one in trash_entries(settings))


NEWEST_TESTED = (3, 14)
OLDEST = (3, 11)


@dataclass(frozen=True)
class Finding:
    """The result of a check; `needed` is False if the workbench works without it."""

    name: str = field(default="", kw_only=True)
    ok: bool
    finding: str
    next_step: str = ""
    needed: bool = True


def examine(settings: Settings) -> list[Finding]:
    """Runs every check; a Problem that it raises becomes its finding."""
    return [run_check(name, settings) for name in CHECKS]


def is_well(findings: list[Finding]) -> bool:
    """Whether every needed check is ok."""
    return all(check.ok for check in findings if check.needed)


def run_check(name: str, settings: Settings) -> Finding:
    """The result of the check of this name."""
    try:
        return replace(CHECKS[name](settings), name=name)
    except Problem as problem:
        return Finding(False, problem.problem, problem.next_step, name=name)


def _python(_: Settings) -> Finding:
    installed, version = sys.version_info[:2], platform.python_version()
    if installed < OLDEST:
        return Finding(False, f"{version} is too old.", "Install Python 3.11 or newer.")
    new = " (newer than the tested versions)" if installed > NEWEST_TESTED else ""
    return Finding(True, version + new)


def _torch(settings: Settings) -> Finding:
    from importlib.metadata import version

    from engine.device import choose_device, prepare_process

    prepare_process(settings.threads)
    return Finding(True, f"{version('torch')}, device {choose_device(settings.device)}")


def _disk(settings: Settings) -> Finding:
    free, folder = least_free(settings)
    finding = f"{size(free)} free at {folder}"
    if free < ENOUGH_BYTES:
        trash = trashed_bytes(settings)
        finding += f", {size(trash)} in the trash" if trash else ""
        variable = "WORKBENCH_ARTIFACTS" if folder == settings.artifacts_folder else "WORKBENCH_HOME"
        empty = "Run `workbench registry trash empty`. " if trash else ""
        return Finding(False, f"Only {finding}.", f"{empty}Free disk space, or set {variable} to a larger disk.")
    return Finding(True, finding)


def _store(settings: Settings) -> Finding:
    from workbench.store.object_store import object_store

    store = object_store(settings.store)
    if store is None:
        return Finding(True, "none shared: artifacts are on this machine")
    store.require_writable()
    return Finding(True, f"{settings.store} can be read and written")


def _registry(settings: Settings) -> Finding:
    from workbench.registry.database import VERSION, require_registry

    require_registry(settings)
    return Finding(True, f"version {VERSION} in {settings.root}")


def _artifacts(settings: Settings) -> Finding:
    """Checks that the artifacts belong to this registry and that it has a row for each."""
    from workbench.registry.database import has_registry, reading
    from workbench.store.ownership import refusal, state_of
    from workbench.store.storage import get_storage

    storage = get_storage(settings)
    if not has_registry(settings):
        return _without_registry(storage)
    with reading(settings) as session:
        state = state_of(session, storage)
    if (refused := refusal(state, storage)) is not None:
        raise refused
    if state.missing:
        finding = f"The registry has no rows for {pluralize(len(state.missing), 'artifact')}; the files exist."
        return Finding(False, finding, "Run `workbench registry rebuild`.", needed=False)
    return Finding(True, f"{len(state.known):,} in {storage.folder}")


def _without_registry(storage: Storage) -> Finding:
    if not (num := len(storage.ids())):
        return Finding(True, "none yet")
    finding = f"There is no registry for the {pluralize(num, 'artifact')} in {storage.folder}."
    step = "Restore a backup, or run `workbench migrate` and `workbench registry rebuild`."
    return Finding(False, finding, step)


def _trash(settings: Settings) -> Finding:
    from jobs.garbage_collection import trash_entries

    if not (entries := trash_entries(settings)):
        return Finding(True, "empty")
    total, oldest = size(trashed_bytes(settings)), clock(entries[0].at)
    return Finding(True, f"{pluralize(len(entries), 'folder')}, {total}, the oldest from {oldest}")


def _backup(settings: Settings) -> Finding:
    from workbench.registry.backups import EVERY_SECONDS, backups_folder, is_copied, list_backups
    from workbench.registry.database import has_registry, reading
    from workbench.store.ownership import find_registry_id
    from workbench.store.storage import get_storage

    if not is_copied(settings):
        return Finding(True, "no daily ones for PostgreSQL: use `workbench backup FOLDER`")
    made = list_backups(settings)
    if has_registry(settings):  # without one, any backup may help
        with reading(settings) as session:
            registry_id = find_registry_id(session)
        others, made = len(made), [backup for backup in made if backup.registry_id == registry_id]
        if others and not made:
            foreign = f"{pluralize(others, 'backup')} of another registry in {backups_folder(settings)}"
            finding = f"There is no backup of this registry, but {foreign}."
            step = "If that registry was yours, see docs/how_to/backups_and_trash.md."
            return Finding(False, finding, step, needed=False)
    newest = next(iter(made), None)
    if newest is None and not get_storage(settings).ids():
        return Finding(True, "none yet, and nothing to back up")
    step = "Start the scheduler with `workbench up`, or run `workbench registry backup`."
    if newest is None:
        return Finding(False, "There is no backup.", step, needed=False)
    if time.time() - newest.at > 2 * EVERY_SECONDS:
        return Finding(False, f"The newest backup was made {ago(newest.at)}.", step, needed=False)
    return Finding(True, f"made {ago(newest.at)}: {newest.path}")


def _broker(settings: Settings) -> Finding:
    from jobs.queue.app import make_app

    where = settings.broker_url.partition("://")[0] or "a folder in the home folder"
    connection = make_app(settings).connection_for_write()
    try:
        with connection:
            connection.connect()
    except (OSError, *connection.connection_errors) as error:
        step = "Start the broker, or leave WORKBENCH_BROKER_URL empty."
        return Finding(False, f"{where} does not respond ({error}).", step)
    return Finding(True, where)


def _worker(settings: Settings) -> Finding:
    from ui.serving.processes import SCHEDULER, WORKER, runs
    from workbench.job_records.jobs import count_by_state
    from workbench.registry.database import reading

    missing = [name for name in (WORKER, SCHEDULER) if not runs(name, settings)]
    if not missing:
        return Finding(True, f"worker and scheduler run on this machine for {settings.root}")
    with reading(settings) as session:
        counts = count_by_state(session)
    waiting = counts.get("queued", 0) + counts.get("interrupted", 0)
    start = "Start all servers with `workbench up`."
    if waiting:
        return Finding(
            False,
            f"{pluralize(waiting, 'job')} in the queue, but {' and '.join(missing)} not running on this machine.",
            start,
        )
    return Finding(True, f"not running, and the queue is empty. {start}")


def _api(settings: Settings) -> Finding:
    from ui.client import Client

    require_safe_address(settings)
    with Client(settings) as client, suppress(ServerDownError):
        client.health()
        return Finding(True, f"running at {api_address(settings)}")
    require_free_port(settings.api_port, "WORKBENCH_API_PORT", settings.host)
    return Finding(True, f"not running; port {settings.api_port} is free")


def _studio(settings: Settings) -> Finding:
    from ui.serving.browser import studio_answers

    if studio_answers(settings):
        return Finding(True, f"running at {studio_address(settings)}")
    require_free_port(settings.studio_port, "WORKBENCH_STUDIO_PORT")
    return Finding(True, f"not running; port {settings.studio_port} is free")


def _browser(_: Settings) -> Finding:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path:
        return Finding(True, path, needed=False)
    return Finding(False, "not installed.", "Install chromium if you run the browser tests.", needed=False)


CHECKS: dict[str, Callable[[Settings], Finding]] = {
    "Python": _python,
    "PyTorch": _torch,
    "Disk": _disk,
    "Store": _store,
    "Registry": _registry,
    "Artifacts": _artifacts,
    "Trash": _trash,
    "Backup": _backup,
    "Queue": _broker,
    "Worker": _worker,
    "API": _api,
    "Studio": _studio,
    "Browser for tests": _browser,
}
