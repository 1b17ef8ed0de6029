"""A thread that uploads a job's checkpoints to the shared store while the training goes on.

What is uploaded is a snapshot of the job's folder, made of hard links: the training may replace its checkpoints
meanwhile. Of several snapshots that wait, only the newest is uploaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import count
from pathlib import Path

from engine.events import Saved
from engine.files import aside_of, aside_pattern
from workbench.store.stored_checkpoints import StoredCheckpoints

_SNAPSHOT = "upload"  # written aside in the job's folder, with which it goes; no backup copies it


class _UploadStoppedError(Exception):
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
        self._numbers, self._is_over = count(1), False
        self._uploads: list[Future[Saved | None]] = []  # those that `take_uploaded` has not told of, in their order
        for left in folder.glob(aside_pattern(_SNAPSHOT)):  # of a killed process
            shutil.rmtree(left, ignore_errors=True)
        self._executor = ThreadPoolExecutor(1, "checkpoint upload")

    def add(self, saved: Saved) -> None:
        """Uploads the job's folder as it is now, in a while; a snapshot that still waits is superseded."""
        snapshot = aside_of(self._folder / _SNAPSHOT, str(next(self._numbers)))
        _link_files(self._folder, snapshot)
        if self._uploads:
            self._uploads[-1].cancel()  # unless it has begun
        upload = self._executor.submit(self._upload, saved, snapshot)
        upload.add_done_callback(lambda _: shutil.rmtree(snapshot, ignore_errors=True))
        self._uploads.append(upload)

    def take_uploaded(self) -> list[Saved]:
        """The checkpoints that were uploaded since the last call; raises the error of an upload that failed."""
        ended = [upload for upload in self._uploads if upload.done()]
        self._uploads = [upload for upload in self._uploads if upload not in ended]
        results = [upload.result() for upload in ended if not upload.cancelled()]
        return [saved for saved in results if saved is not None]

    def wait(self) -> list[Saved]:
        """The same, once nothing waits to be uploaded."""
        wait(self._uploads, return_when=FIRST_EXCEPTION)
        return self.take_uploaded()

    def stop(self) -> None:
        """Uploads nothing more; returns when the file that is being uploaded is done."""
        self._is_over = True
        self._executor.shutdown(cancel_futures=True)

    def _upload(self, saved: Saved, snapshot: Path) -> Saved | None:
        try:
            self._checkpoints.save(snapshot, self._folder, self._require_lease)
        except _UploadStoppedError:
            return None
        self._on_uploaded()
        return saved

    def _require_lease(self) -> None:
        if self._is_over or not self._may_upload():
            raise _UploadStoppedError


def _link_files(folder: Path, snapshot: Path) -> None:
    """Links the files of a folder into another one, without those that are being written; copies where links fail."""
    for parent, folders, files in os.walk(folder):
        # Hidden folders are not entered: the thread removes snapshots meanwhile.
        folders[:] = [name for name in folders if not name.startswith(".")]
        target = snapshot / Path(parent).relative_to(folder)
        for name in files:
            if name.startswith("."):
                continue
            target.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process of the training has just replaced it
                _link(Path(parent, name), target / name)
    snapshot.mkdir(parents=True, exist_ok=True)


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links, such as exFAT
        shutil.copy2(path, target)
