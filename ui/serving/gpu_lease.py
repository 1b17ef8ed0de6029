"""One API server a GPU: each holds its models in memory, and two that count for themselves run out of it together.

A file for each GPU, in a folder of the user outside every home, is locked for as long as the server runs; the lock goes
with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.device import has_driver, python_command
from ui.addresses import api_address
from ui.errors import GpuTakenError, UiError

if TYPE_CHECKING:
    from workbench.settings import Settings

_WITHOUT_GPU = ("cpu", "mps", "meta")
_SECONDS = 120.0  # for torch to name a GPU


@contextmanager
def gpu_lease(settings: Settings, uuid_of: Callable[[str], str] | None = None) -> Iterator[str]:
    """Leases the GPU of these settings while the block lasts and yields its UUID; empty without a GPU.

    Raises GpuTakenError where another server has it, unless the settings allow to share one.
    """
    uuid = (uuid_of or find_uuid)(settings.device)
    if not uuid or settings.share_gpu:
        yield uuid
        return
    path = _folder() / f"gpu-{re.sub(r'[^0-9A-Za-z-]', '', uuid)}.lock"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise GpuTakenError(uuid, file.read().strip()) from error
        file.truncate()
        file.write(f"{api_address(settings)}, home folder {settings.root}")
        file.flush()
        yield uuid


def find_uuid(device: str) -> str:
    """The UUID of the GPU of this name; empty without one. Another process finds it; this one takes no memory."""
    kind = device.partition(":")[0]
    if kind in _WITHOUT_GPU or (kind == "auto" and not has_driver()):
        return ""
    command = python_command("engine.device", device)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        print(done.stderr, file=sys.stderr)  # the first request names what is wrong with the device
    return done.stdout.strip()


def _folder() -> Path:
    """The folder of locks of all homes of this user, which nobody else may open or could have made."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(cache) if cache else Path("~/.cache").expanduser()) / "expert-workbench"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise UiError(
            f"The folder {folder} cannot be made ({error.strerror}), so it cannot keep two servers from one GPU.",
            "Set XDG_CACHE_HOME to a folder of yours, or WORKBENCH_SHARE_GPU=true.",
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UiError(
            f"The folder {folder} is not private to you, so it cannot keep two servers from one GPU.",
            "Delete it, or set WORKBENCH_SHARE_GPU=true.",
        )
    return folder
