"""A thread that uploads a job's checkpoints to the shared store while the training goes on.

What is uploaded is a snapshot of the job's folder, made of hard links: the training may replace its checkpoints
meanwhile. Of several snapshots that wait, only the newest is uploaded.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.events import Saved
from engine.files import aside_of, aside_pattern
from workbench.store.stored_checkpoints import StoredCheckpoints

_SNAPSHOT = "upload"  # written aside in the job's folder, with which it goes; no backup copies it


class _StoppedError(Exception):
    """Nothing more may be uploaded."""


class CheckpointUpload:
    """Uploads in a thread of its own. `may_upload` is asked before each file: false after the lease was lost.

    After each checkpoint, `on_uploaded` is called there.
    """

    def __init__(
        self,
        checkpoints: StoredCheckpoints,
        folder: Path,
        may_upload: Callable[[], bool],
        on_uploaded: Callable[[], object] = lambda: None,
    ) -> None:
        self._checkpoints, self._folder = checkpoints, folder
        self._may_upload, self._on_uploaded = may_upload, on_uploaded
        self._changed = threading.Condition()
        self._waiting: tuple[Saved, Path] | None = None
        self._uploaded: list[Saved] = []
        self._error: Exception | None = None
        self._is_busy = self._is_over = False
        self._number = 0
        for left in folder.glob(aside_pattern(_SNAPSHOT)):  # of a killed process
            shutil.rmtree(left, ignore_errors=True)
        self._thread = threading.Thread(target=self._run, name="checkpoint upload", daemon=True)
        self._thread.start()

    def add(self, saved: Saved) -> None:
        """Uploads the job's folder as it is now, in a while; a snapshot that still waits is superseded."""
        self._number += 1
        snapshot = aside_of(self._folder / _SNAPSHOT, str(self._number))
        _link_files(self._folder, snapshot)
        with self._changed:
            superseded, self._waiting = self._waiting, (saved, snapshot)
            self._changed.notify_all()
        if superseded is not None:
            shutil.rmtree(superseded[1], ignore_errors=True)

    def uploaded(self) -> list[Saved]:
        """The checkpoints that were uploaded since the last call; raises the error of an upload that failed."""
        with self._changed:
            uploaded, self._uploaded = self._uploaded, []
            error, self._error = self._error, None
        if error is not None:
            raise error
        return uploaded

    def wait(self) -> list[Saved]:
        """The same, once nothing waits to be uploaded."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or not (self._waiting or self._is_busy))
        return self.uploaded()

    def stop(self) -> None:
        """Uploads nothing more; returns when the file that is being uploaded is done."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()
        if self._waiting is not None:
            shutil.rmtree(self._waiting[1], ignore_errors=True)

    def _run(self) -> None:
        while (next_one := self._take()) is not None:
            saved, snapshot = next_one
            try:
                self._checkpoints.save(snapshot, self._folder, self._require_lease)
                self._end(saved, None)
                self._on_uploaded()
            except _StoppedError:
                self._end(None, None)
            except Exception as error:  # the training's thread raises it
                self._end(None, error)
            finally:
                shutil.rmtree(snapshot, ignore_errors=True)

    def _take(self) -> tuple[Saved, Path] | None:
        """Waits for a snapshot; None when it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_over)
            if self._is_over:
                return None
            taken, self._waiting, self._is_busy = self._waiting, None, True
            return taken

    def _end(self, saved: Saved | None, error: Exception | None) -> None:
        with self._changed:
            self._is_busy, self._error = False, error or self._error
            if saved is not None:
                self._uploaded.append(saved)
            self._changed.notify_all()

    def _require_lease(self) -> None:
        if self._is_over or not self._may_upload():
            raise _StoppedError


def _link_files(folder: Path, snapshot: Path) -> None:
    """Links the files of a folder into another one, without those that are being written; copies where links fail."""
    for parent, folders, files in os.walk(folder):
        # Hidden folders are not entered: the thread removes snapshots meanwhile.
        folders[:] = [name for name in folders if not name.startswith(".")]
        place = snapshot / Path(parent).relative_to(folder)
        for name in files:
            if name.startswith("."):
                continue
            place.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process of the training has just replaced it
                _link(Path(parent, name), place / name)
    snapshot.mkdir(parents=True, exist_ok=True)


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links, such as exFAT
        shutil.copy2(path, target)
