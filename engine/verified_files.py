"""What was verified byte for byte before, by what a file system says of the files: hashing gigabytes takes a while.

A record holds the size, inode and times of change of every file when its hash was right. One that differs in any of
them is hashed again. Bits that rot on a disk change none: a full verification always hashes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

Stats = dict[str, list[int]]


def stats_of(folder: Path, names: Iterable[str]) -> Stats:
    """Size, inode and times of the files in a folder; raises OSError where one is missing."""
    seen = {name: (folder / name).stat() for name in names}
    return {name: [one.st_size, one.st_ino, one.st_mtime_ns, one.st_ctime_ns] for name, one in seen.items()}


def was_verified(record: Path, sha256: str, stats: Stats) -> bool:
    """Whether the files with this manifest were right when they were as they are now."""
    try:
        return bool(json.loads(record.read_text(encoding="utf-8")) == {"manifest": sha256, "files": stats})
    except (OSError, ValueError, RecursionError):
        return False


def remember(record: Path, sha256: str, stats: Stats) -> None:
    """Writes the record, readable by its owner alone; a disk that takes none is no fault of the files."""
    aside = record.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        record.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"manifest": sha256, "files": stats}, file)
        aside.replace(record)
