"""One file of several folders to give to somebody else: a zip archive that begins with a list of hashes of the rest.

Members are stored uncompressed, sorted and without times, so that equal contents are equal bytes. Whoever opens a file
trusts nothing in it: names, sizes and hashes are checked before and while anything is written.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import DamagedFileError, ModelError
from engine.files import sha256_of
from engine.foreign_files import short, what_is
from engine.path_kinds import describe_path

FORMAT, VERSION = "expert-workbench-pack", 1
_LIST = "pack.json"
_NAME = re.compile(r"[a-z]+/(?:additional_chat_templates/)?[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_SUFFIXES = frozenset((".safetensors", ".json", ".jinja", ".txt", ".model", ".bpe"))
_MAX_LIST_BYTES, _MAX_MEMBERS, _CHUNK = 8 << 20, 5000, 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can name
_PACKED = "Give a file that `expert pack` wrote."
_AGAIN = "Get the file again from whoever packed it."
_EXPORT = "Export the expert instead."
_ANOTHER_VERSION = "Update the workbench that is the older of the two, and pack the expert again."


@dataclass(frozen=True)
class Packed:
    """An opened file: what it says of its contents, and the size and SHA-256 of each member."""

    path: Path
    about: dict[str, Any]
    members: Mapping[str, tuple[int, str]]

    def names_in(self, folder: str) -> list[str]:
        """The members of a folder."""
        return [name for name in self.members if name.startswith(f"{folder}/")]

    def unpack(self, folder: str, target: Path) -> None:
        """Writes the members of a folder below `target`; raises DamagedFileError at the first that is not as listed."""
        with _opened(self.path) as archive:
            for name in self.names_in(folder):
                path = target / name.removeprefix(f"{folder}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                self._write(archive, name, path)

    def _write(self, archive: zipfile.ZipFile, name: str, path: Path) -> None:
        size, sha256 = self.members[name]
        digest, left = hashlib.sha256(), size
        with archive.open(name) as source, path.open("xb") as file:
            while chunk := source.read(min(_CHUNK, left + 1)):
                left -= len(chunk)
                if left < 0:
                    break
                digest.update(chunk)
                file.write(chunk)
        if left or digest.hexdigest() != sha256:
            raise DamagedFileError(
                f"“{name}” in {self.path} is not the file that was packed: its bytes changed.", _AGAIN
            )


def write_packed(path: Path, about: Mapping[str, Any], folders: Mapping[str, Mapping[str, Path]]) -> None:
    """Writes a file at `path`, which must not exist; `folders` names the files of each folder in it.

    Raises ModelError for files that `open_packed` would refuse.
    """
    files = {f"{folder}/{name}": file for folder, inner in folders.items() for name, file in inner.items()}
    if others := sorted(name for name in files if not _is_member(name)):
        raise ModelError(f"“{short(others[0])}” cannot be packed: no packed expert has such a file.", _EXPORT)
    if len(files) > _MAX_MEMBERS:
        raise ModelError(f"{len(files):,} files cannot be packed: {_MAX_MEMBERS:,} are the most.", _EXPORT)
    members = {
        name: {"sha256": sha256_of(file), "size_bytes": file.stat().st_size} for name, file in sorted(files.items())
    }
    listed = {"format": FORMAT, "version": VERSION, "about": about, "members": members}
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        archive.writestr(_info(_LIST), json.dumps(listed, indent=1, sort_keys=True).encode())
        for name in members:
            info = _info(name)
            info.file_size = files[name].stat().st_size  # so that a large one gets a large header
            with files[name].open("rb") as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target, _CHUNK)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
    return info


def open_packed(path: Path) -> Packed:
    """Reads the list of a packed file and checks its members against it; raises DamagedFileError with the cause."""
    described = describe_path(path)
    if described.kind not in ("packed expert", "archive", "missing", "unreadable"):
        raise DamagedFileError(described.sentence, described.remedy if described.kind == "pointer" else _PACKED)
    with _opened(path) as archive:
        infos = archive.infolist()
        if not infos or infos[0].filename != _LIST:
            raise DamagedFileError(f"{path} is not a packed expert.", _PACKED)
        _refuse_unsafe(path, infos)
        listed = _read_list(path, archive)
    members = {name: (one["size_bytes"], one["sha256"]) for name, one in listed["members"].items()}
    if {info.filename: info.file_size for info in infos[1:]} != {name: size for name, (size, _) in members.items()}:
        raise DamagedFileError(f"{path} does not hold the files that it lists.", _AGAIN)
    return Packed(path, listed["about"], members)


def _refuse_unsafe(path: Path, infos: list[zipfile.ZipInfo]) -> None:
    """Raises DamagedFileError for names that lead elsewhere, links, and sizes that only unpacking would show."""
    names = [info.filename for info in infos]
    if len(names) > 1 + _MAX_MEMBERS or len(set(names)) < len(names):
        raise DamagedFileError(f"{path} holds too many files, or one of them twice.", _AGAIN)
    for info in infos:
        is_known = info.filename == _LIST or _is_member(info.filename)
        if not is_known or stat.S_ISLNK(info.external_attr >> 16):
            raise DamagedFileError(f"{path} holds {info.filename[:200]!a}, which no packed expert has.", _AGAIN)
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise DamagedFileError(f"{path} is compressed inside, which no packed expert is.", _AGAIN)
    if sum(info.file_size for info in infos) > path.stat().st_size:
        raise DamagedFileError(f"{path} claims to hold more than its own size.", _AGAIN)


def _is_member(name: str) -> bool:
    """Whether a packed file may hold a file of this name: it leads nowhere else and is not code."""
    return _NAME.fullmatch(name) is not None and Path(name).suffix in _SUFFIXES


def _read_list(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    if archive.getinfo(_LIST).file_size > _MAX_LIST_BYTES:
        raise DamagedFileError(f"The list in {path} is too large.", _AGAIN)
    try:
        listed = json.loads(archive.read(_LIST).decode())
        form, version = listed["format"], listed["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedFileError(f"The list in {path} cannot be read.", _AGAIN) from None
    if form != FORMAT or version != VERSION:
        raise DamagedFileError(
            f"{path} has version {ascii(version)[:20]} of the packed format; here it is {VERSION}.", _ANOTHER_VERSION
        )
    members = listed.get("members")
    if not (
        isinstance(members, dict)
        and isinstance(listed.get("about"), dict)
        and all(isinstance(one, dict) for one in members.values())
        and all(type(one.get("size_bytes")) is int and isinstance(one.get("sha256"), str) for one in members.values())
    ):
        raise DamagedFileError(f"The list in {path} cannot be read.", _AGAIN)
    return dict(listed)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if what := what_is(path):
        raise DamagedFileError(f"{path} is a {what}, not a file.", _PACKED)
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError, ValueError) as error:
        raise DamagedFileError(f"{path} is not a complete packed file: {error}.", _AGAIN) from None
    except PermissionError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from None
