"""Atomic folders and files: written aside, synced, renamed; folders are hashed and verified before use."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.device import is_shapes_only
from engine.errors import DamagedFileError

MANIFEST = "manifest.json"
_RESTORE = "Restore it from a copy, or run the job that made it again."
EXPERT_CARD = "expert.json"  # in the folder of an expert of any method: which one, and whose base


@dataclass(frozen=True)
class ArtifactRef:
    """A folder, and the SHA-256 that its manifest must have; without one any manifest is accepted."""

    folder: Path
    sha256: str | None = None
    record: Path | None = field(default=None, compare=False)  # of what was verified before; None: nothing is remembered

    def check(self) -> str:
        """Verifies every file and returns the manifest's SHA-256; raises DamagedFileError.

        With a `record` only files that changed since they were last verified.
        """
        if is_shapes_only():
            return sha256_of(self.folder / MANIFEST)
        if self.record is None:
            return verify_folder(self.folder, self.sha256)
        try:
            sha256 = sha256_of(self.folder / MANIFEST)
            seen = {name: (self.folder / name).stat() for name in (MANIFEST, *_listed(self.folder / MANIFEST))}
        except (OSError, ValueError):
            return verify_folder(self.folder, self.sha256)  # which names what is wrong
        stats = {name: [one.st_size, one.st_ino, one.st_mtime_ns, one.st_ctime_ns] for name, one in seen.items()}
        if self.sha256 in (None, sha256) and was_verified(self.record, sha256, stats):
            return sha256
        verified = verify_folder(self.folder, self.sha256)
        remember(self.record, verified, stats)  # as it was before: a file that changed meanwhile is hashed again
        return verified

    def num_files(self) -> int:
        """The number of files that its manifest lists."""
        return len(_listed(self.folder / MANIFEST))


@contextmanager
def reading_own(what: str, next_step: str = _RESTORE) -> Iterator[None]:
    """Raises DamagedFileError for whatever a damaged file raises that this program wrote: cut, or without a key."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        cause = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedFileError(f"{what} cannot be read ({cause}).", next_step) from error


def read_own(file: Path, keys: Collection[str] = (), next_step: str = _RESTORE) -> dict[str, Any]:
    """The JSON object in a file that this program wrote, which has these keys; raises DamagedFileError."""
    with reading_own(str(file), next_step):
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        for key in keys:
            _ = content[key]
        return content


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def new_folder(
    path: Path,
    *,
    replace: bool = True,
    mark: str = "",
    hashes: Mapping[str, str] | None = None,
    complete: Callable[[Path], object] = lambda _: None,
) -> Iterator[Path]:
    """Yields a folder next to `path` to fill; when the block succeeds it becomes `path`, with a manifest.

    An existing `path` is replaced only then, or raises FileExistsError without `replace`. When the block fails, the new
    folder is deleted. What a killed process left goes with the next call of the same `mark` (default: the process).
    `hashes` are the SHA-256 of files that others wrote and synced, by name; the block may fill them in.
    `complete` is called with the new folder just before it gets its name.
    """
    aside = aside_of(path, mark or str(os.getpid()))
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        write_manifest(aside, hashes)
        mode = (aside / MANIFEST).stat().st_mode & 0o777
        for file in aside.rglob("*.safetensors"):  # created for their owner only; whoever reads the manifest may too
            file.chmod(mode)
        for file in [*aside.rglob("*"), aside]:
            sync(file)
        complete(aside)
        _put(aside, path, replace)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def aside_of(path: Path, mark: str) -> Path:
    """The temporary path at which a file or folder is written before it gets its name."""
    return path.with_name(f".{path.name}.{mark}.new")


def former_of(path: Path, mark: str) -> Path:
    """The temporary path to which a file or folder is moved before it is deleted."""
    return path.with_name(f".{path.name}.{mark}.old")


def aside_pattern(name: str = "*") -> str:
    """The glob pattern of what is written before it gets this name."""
    return f".{name}.*.new"


def former_pattern(name: str = "*") -> str:
    """The glob pattern of what had this name and is being deleted."""
    return f".{name}.*.old"


def read_temporary(path: Path) -> tuple[str, bool] | None:
    """The name that a temporary path will have or had, and whether it had it; None for any other path."""
    parts = re.fullmatch(r"\.(.+)\.[^.]+\.(new|old)", path.name)
    return (parts[1], parts[2] == "old") if parts else None


@contextmanager
def new_file(
    path: Path, *, replace: bool = True, mark: str = "", private: bool = False, synced: bool = True
) -> Iterator[Path]:
    """Yields the path of a file next to `path` to write; when the block succeeds it becomes `path`.

    An existing `path` is replaced only then, or raises FileExistsError without `replace`, also where another process
    was first. When the block fails, the new file is deleted. What a killed process left goes with the next call of the
    same `mark` (default: a new one). A `private` file is readable by its owner only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = aside_of(path, mark or uuid.uuid4().hex)
    aside.unlink(missing_ok=True)
    try:
        if private:
            os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield aside
        if synced:
            sync(aside)
        if replace:
            aside.replace(path)
        else:
            _put_first(aside, path)
        if synced:
            sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def write_manifest(folder: Path, hashes: Mapping[str, str] | None = None) -> str:
    """Writes the size and SHA-256 of every file; returns the SHA-256 of the manifest.

    `hashes` are those of files that other machines may have written: they need not be listed in the folder yet.
    """
    known = dict(hashes or {})
    seen = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST}
    files = {
        name: {"sha256": known.get(name) or sha256_of(folder / name), "size_bytes": (folder / name).stat().st_size}
        for name in sorted(seen | known.keys())
    }
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"files": files}, indent=1, sort_keys=True), encoding="utf-8")
    return sha256_of(manifest)


def verify_folder(folder: Path, sha256: str | None = None) -> str:
    """Checks every byte against the manifest (and the manifest against `sha256`); returns the manifest's SHA-256.

    Raises DamagedFileError that names the first file which is missing, cut short or changed.
    """
    for name, fault in faults_in(folder, sha256):
        raise DamagedFileError(f"{folder / name} {fault}", _RESTORE)
    return sha256_of(folder / MANIFEST)


def faults_in(folder: Path, sha256: str | None = None) -> Iterator[tuple[str, str]]:
    """Yields the name of every missing or changed file with the problem."""
    manifest = folder / MANIFEST
    try:
        actual, files = sha256_of(manifest), _listed(manifest)
    except (OSError, ValueError) as error:
        yield MANIFEST, f"cannot be read ({error})."
        return
    if sha256 is not None and actual != sha256:
        yield MANIFEST, "is not the one that was recorded."
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            yield name, "is missing."
        elif file.stat().st_size != expected["size_bytes"] or sha256_of(file) != expected["sha256"]:
            yield name, "is not the file that was written: its bytes changed."


def weights_sha256(folder: Path) -> str:
    """The SHA-256 of a folder's safetensors as its manifest lists them; of several, that of their joined hashes."""
    listed = sorted(_listed(folder / MANIFEST).items())
    hashes = [file["sha256"] for name, file in listed if name.endswith(".safetensors")]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _listed(manifest: Path) -> dict[str, dict[str, Any]]:
    """The files that a manifest lists; raises ValueError where it is not a manifest."""
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        is_list = all(map(_is_listed, files, files.values()))
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise ValueError("it is not a list of files") from None
    if not is_list:
        raise ValueError("it lists a file without its size and hash, or outside its folder")
    return dict(files)


def _is_listed(name: str, file: Any) -> bool:
    """Whether this is a name inside the folder, with a size and a hash."""
    if type(file["size_bytes"]) is not int or not isinstance(file["sha256"], str):
        return False
    parts = Path(name).parts
    is_writable = "\0" not in name and name.encode(errors="replace").decode() == name
    return bool(parts) and is_writable and not Path(name).is_absolute() and ".." not in parts


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def sync(path: Path) -> None:
    """Syncs a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(aside: Path, path: Path, replace: bool) -> None:
    if not replace and os.path.lexists(path):
        raise FileExistsError(path)
    if path.exists():
        old = former_of(path, str(os.getpid()))
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
        aside.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    else:
        aside.rename(path)
    sync(path.parent)


def _put_first(aside: Path, path: Path) -> None:
    """Gives a file its name; raises FileExistsError where the name is taken, which a rename would write over."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, such as exFAT
        path.touch(exist_ok=False)  # takes the name; a kill before the next line leaves an empty file
        try:
            aside.replace(path)
        except OSError:
            path.unlink(missing_ok=True)
            raise


Stats = dict[str, list[int]]


def was_verified(record: Path, sha256: str, stats: Stats) -> bool:
    """Whether the files with this manifest were right when they were as they are now."""
    try:
        return bool(json.loads(record.read_text(encoding="utf-8")) == {"manifest": sha256, "files": stats})
    except (OSError, ValueError, RecursionError):
        return False


def remember(record: Path, sha256: str, stats: Stats) -> None:
    """Writes the record, readable by its owner only; a disk that takes none says nothing against the files."""
    aside = record.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        record.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"manifest": sha256, "files": stats}, file)
        aside.replace(record)
