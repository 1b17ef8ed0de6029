"""A store that several machines share: folders of files below a URL, such as s3://bucket/prefix, by fsspec.

A folder is there once its manifest is, which is uploaded last. Every file that arrives is compared with the SHA-256
that is recorded for it, and fetched a second time if it differs.
"""

from __future__ import annotations

import errno
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from engine.files import MANIFEST, aside_pattern, new_file, new_folder, sha256_of
from engine.plugins import require_extras
from workbench.errors import StorageError, StoreFailedError

ARTIFACTS = "artifacts"  # in a store: folders named by artifacts
CHECKPOINTS, LOGS = "checkpoints", "logs"  # and by jobs

_ID = re.compile(r"[0-9a-f]{32}")
_TRIES = 2  # of a file that arrives changed
_S3_OPTIONS = {
    "skip_instance_cache": True,  # the endpoint and the credentials are those of the environment now
    "use_listings_cache": False,  # other machines also write
    "config_kwargs": {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 3}},
}
_FULL = ("StorageFull", "QuotaExceeded", "InsufficientStorage", "No space left")
_DENIED = ("AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoCredentials", "ExpiredToken")
_WRONG_CLOCK = "RequestTimeTooSkewed"  # S3 refuses a request that was signed a quarter of an hour ago, or will be
_RESUME = "then try again: a job that was paused for it resumes from its last checkpoint."


class ObjectStore:
    """Folders and small files below a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._is_s3 = url.startswith("s3:")
        self._fetching = threading.Lock()

    @cached_property
    def _fs(self) -> Any:
        if self._is_s3:
            require_extras("s3")
        import fsspec

        with self._store_errors():
            return fsspec.filesystem(self.url.partition(":")[0], **(_S3_OPTIONS if self._is_s3 else {}))

    def _place(self, name: str) -> str:
        return f"{self.url.partition('://')[2]}/{name}"

    def require_writable(self) -> None:
        """Raises StoreFailedError unless a small file can be written, which is removed again."""
        name = f"write-check-{uuid.uuid4().hex}"
        try:
            self.write(name, b"")
        except FileNotFoundError as error:
            raise self._failure(error) from None
        self.remove(name)

    def upload(self, folder: Path, name: str, before_each: Callable[[], object] = lambda: None) -> None:
        """Uploads a folder with a manifest; it is there for others when the last file, the manifest, is.

        `before_each` is called before each file, and may raise.
        """
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
        for path in [*files, folder / MANIFEST]:
            before_each()
            self.put(path, f"{name}/{path.relative_to(folder).as_posix()}")

    def fetch(self, name: str, folder: Path, *, replace: bool = False) -> bool:
        """Fetches a folder, file by file against its manifest; False if it is not there.

        Raises StorageError if a file is changed in the store itself.
        """
        manifest = self.read(f"{name}/{MANIFEST}")
        if manifest is None:
            return False

        def keep(folder: Path) -> None:  # the manifest as it was written, not the one made for the same files
            (folder / MANIFEST).write_bytes(manifest)

        with self._fetching, suppress(FileExistsError):  # another process was faster
            if not replace and folder.exists():
                return True
            with new_folder(folder, replace=replace, complete=keep) as aside:
                for file, listed in _files_in(manifest, f"{self.url}/{name}").items():
                    self.get_verified(f"{name}/{file}", aside / file, listed["sha256"])
        return True

    def get_verified(self, name: str, path: Path, sha256: str) -> None:
        """Fetches one file; raises StorageError if it is missing or not the one that was recorded."""
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):
            try:
                with self._store_errors(to_local_disk=True):
                    self._fs.get_file(self._place(name), str(path))
            except FileNotFoundError:
                raise StorageError(f"The store {self.url} lacks {name}.", _RESTORE) from None
            if sha256_of(path) == sha256:
                return
        path.unlink()
        raise StorageError(
            f"{name} in the store {self.url} is not the file that was written: its bytes changed.", _RESTORE
        )

    def put(self, path: Path, name: str) -> None:
        """Uploads one file."""
        with self._writing(name) as place:
            self._fs.put_file(str(path), place)

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file; None if it is not there."""
        try:
            with self._store_errors():
                return bytes(self._fs.cat_file(self._place(name)))
        except FileNotFoundError:
            self._require_root()
            return None

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file."""
        with self._writing(name) as place:
            self._fs.pipe_file(place, content)

    def names(self, folder: str) -> set[str]:
        """The names of the files in a folder."""
        try:
            with self._store_errors():
                return {
                    path.rpartition("/")[2] for path in self._fs.ls(self._place(folder), detail=False, refresh=True)
                }
        except FileNotFoundError:
            self._require_root()
            return set()

    def ids(self, folder: str) -> set[str]:
        """The names in a folder that are ids of artifacts or jobs."""
        return {name for name in self.names(folder) if _ID.fullmatch(name)}

    def remove(self, name: str) -> None:
        """Removes a file, or a folder with all that is in it; one that is not there is no error."""
        with self._store_errors(), suppress(FileNotFoundError):  # another machine was faster
            if self._fs.exists(self._place(name)):
                self._fs.rm(self._place(name), recursive=True)

    def remove_unfinished(self, older_than_seconds: float) -> list[str]:
        """Removes what killed uploads left, after that many seconds without a change; returns their names.

        On S3 these are the parts of uploads that were never completed, in a folder temporary files.
        """
        before = time.time() - older_than_seconds
        with self._store_errors():
            return self._remove_parts(before) if self._is_s3 else self._remove_temporary_files(before)

    def _remove_parts(self, before: float) -> list[str]:
        bucket, _, prefix = self._place("").partition("/")
        removed, marks = list[str](), dict[str, str]()
        while True:
            page = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **marks)
            for upload in page.get("Uploads", ()):
                if upload["Initiated"].timestamp() < before:
                    with suppress(FileNotFoundError):  # another machine was faster, or it is complete by now
                        self._fs.call_s3(
                            "abort_multipart_upload", Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
                        removed.append(str(upload["Key"]).removeprefix(prefix))
            if not page.get("IsTruncated"):
                return removed
            marks = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def _remove_temporary_files(self, before: float) -> list[str]:
        removed, root = [], Path(self._place(""))
        for path in root.rglob(aside_pattern()):
            with suppress(FileNotFoundError):
                if path.is_file() and path.stat().st_mtime < before:
                    path.unlink()
                    removed.append(path.relative_to(root).as_posix())
        return removed

    @contextmanager
    def _writing(self, name: str) -> Iterator[str]:
        """Yields the path at which the block writes a file: others see all of it, or nothing."""
        path = self._place(name)
        if not self._is_s3:
            self._require_root()  # else a folder that is not mounted would be created
        try:
            with self._store_errors():
                if self._is_s3:
                    yield path
                else:
                    with new_file(Path(path)) as aside:
                        yield str(aside)
        except FileNotFoundError:
            self._require_root()
            raise

    def _require_root(self) -> None:
        """Raises StoreFailedError if not even the bucket, or the folder, is there."""
        root = self.url.partition("://")[2]
        root = root.partition("/")[0] if self._is_s3 else root
        with self._store_errors():
            if not self._fs.exists(root):
                what = "bucket" if self._is_s3 else "folder"
                raise StoreFailedError(
                    f"There is no {what} “{root}”.", f"Create it, or correct WORKBENCH_STORE; {_RESUME}"
                )

    @contextmanager
    def _store_errors(self, *, to_local_disk: bool = False) -> Iterator[None]:
        """Turns the errors of libraries into StoreFailedError; their texts may name credentials and are left out."""
        try:
            yield
        except (FileNotFoundError, StorageError):
            raise
        except Exception as error:
            if not _is_of_store(error) or (to_local_disk and _is_full(error)):
                raise
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> StoreFailedError:
        words = f"{type(error).__name__} {_code(error)} {error}"
        if _is_full(error) or any(word in words for word in _FULL):
            return StoreFailedError(f"The store {self.url} is full.", f"Free some space there, {_RESUME}")
        if not self._is_s3:
            return self._failure_of_folder(error)
        if _WRONG_CLOCK in words:
            return StoreFailedError(
                f"This machine's clock and that of the store {self.url} differ too much ({_WRONG_CLOCK}).",
                f"Set this machine's clock, {_RESUME}",
            )
        if isinstance(error, PermissionError) or any(word in words for word in _DENIED):
            return StoreFailedError(
                f"The store {self.url} refuses the credentials ({_code(error) or type(error).__name__}).",
                f"Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a user's who may read and write it, {_RESUME}",
            )
        return StoreFailedError(
            f"The store {self.url} does not answer ({_code(error) or type(error).__name__}).",
            f"Check AWS_ENDPOINT_URL and the network, {_RESUME}",
        )

    def _failure_of_folder(self, error: Exception) -> StoreFailedError:
        reason = errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)
        if isinstance(error, PermissionError):
            return StoreFailedError(
                f"The user of this process may not read and write the store {self.url} ({reason}).",
                f"Change the permissions of that folder, {_RESUME}",
            )
        return StoreFailedError(
            f"The store {self.url} cannot be read or written ({reason}).",
            f"Check its disk, and that it is mounted, {_RESUME}",
        )


_RESTORE = "Restore it from a copy, or run the job that made it again."


def _files_in(manifest: bytes, source: str) -> dict[str, dict[str, Any]]:
    try:
        files: dict[str, dict[str, Any]] = json.loads(manifest)["files"]
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
            raise ValueError("a file outside its folder")
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"The manifest of {source} is damaged ({error}).", _RESTORE) from None
    return files


def _is_of_store(error: Exception) -> bool:
    modules = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return isinstance(error, OSError) or bool(modules & {"botocore", "aiobotocore", "aiohttp", "s3fs", "fsspec"})


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _code(error: BaseException) -> str:
    """The code that S3 gave, such as AccessDenied; empty without one."""
    while error is not None:
        response: Mapping[str, Any] = getattr(error, "response", None) or {}
        if code := response.get("Error", {}).get("Code"):
            return str(code)
        if error.__cause__ is None:
            return ""
        error = error.__cause__
    return ""


@lru_cache(maxsize=4)
def object_store(url: str) -> ObjectStore | None:
    """The store at a URL, one for each process; None for an empty one."""
    return ObjectStore(url) if url else None
