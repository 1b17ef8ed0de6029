"""The model among the files of an installed Python package: found by the list that the installer wrote.

Nothing of the package is imported or run. A large GGUF file may come in parts, `NAME.gguf.part0`, `NAME.gguf.part1`
and so on, in the package and in those that it requires: the file is the parts in the order of their numbers.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from engine.device import megabytes
from engine.errors import ModelError
from engine.foreign_files import short
from engine.models.gguf_header import gguf_models
from engine.path_kinds import require_kind

_PART = re.compile(r"(?P<name>.+\.gguf)\.part[-_]?(?P<number>\d{1,4})", re.IGNORECASE)
_REQUIRED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OPTIONAL = re.compile(r"\bextra\s*==")
_MOST_NAMES = 3
_PIECE = 1 << 20


@dataclass(frozen=True)
class PackagedModel:
    """The model of a package: a folder, a GGUF file, or its parts in order."""

    package: str  # NAME==VERSION
    files: tuple[Path, ...]  # one folder or file, or several parts

    def join(self, folder: Path) -> Path:
        """The path of the model; parts become one file in `folder`, under the name that they share."""
        if len(self.files) == 1 and not _PART.fullmatch(self.files[0].name):
            return self.files[0]
        needed, free = sum(path.stat().st_size for path in self.files), shutil.disk_usage(folder).free
        if needed > free:
            problem = f"The parts of {self.package} take {megabytes(needed)} as one file; {megabytes(free)} are free."
            raise ModelError(problem, "Free some disk.")
        target = folder / _PART.sub(r"\g<name>", self.files[0].name)
        with target.open("wb") as joined:
            for path in self.files:
                with path.open("rb") as part:
                    while piece := part.read(_PIECE):
                        joined.write(piece)
        return target


def find_model(package: str) -> PackagedModel:
    """The one model of an installed package; raises ModelError where it holds none or several, or a damaged one."""
    installed = _find_package(package)
    name = f"{installed.metadata['Name']}=={installed.version}"
    own, parts = dict(_files(installed)), dict[Path, PackagePath]()
    for each in (installed, *_required(installed)):
        parts |= {path: listed for path, listed in _files(each).items() if _PART.fullmatch(path.name)}
    models = [*_complete_models(list(own)), *_joined(name, list(parts))]
    if not models:
        raise ModelError(
            f"The package {name} holds no model: none of its {len(own):,} files is a .gguf file, or a .safetensors "
            "file next to a config.json.",
            "Give another package, or the path of the model.",
        )
    if len(models) > 1:
        shown = ", ".join(short(model[0]) for model in models[:_MOST_NAMES]) + " …" * (len(models) > _MOST_NAMES)
        raise ModelError(f"The package {name} holds {len(models)} models: {shown}.", "Give the path of one of them.")
    _require_as_installed(name, models[0], own | parts)
    return PackagedModel(name, models[0])


def _find_package(package: str) -> Distribution:
    try:
        return distribution(package)
    except PackageNotFoundError:
        raise ModelError(
            f"The package “{short(package)}” is not installed.", f"Install it: pip install --no-deps {short(package)}."
        ) from None


def _required(installed: Distribution) -> Iterator[Distribution]:
    """The packages that one requires without an extra, as far as they are installed."""
    for requirement in installed.requires or ():
        if not _OPTIONAL.search(requirement) and (name := _REQUIRED.match(requirement)):
            try:
                yield distribution(name[0])
            except PackageNotFoundError:
                continue


def _files(installed: Distribution) -> dict[Path, PackagePath]:
    """The files of a package where they are now, those outside its own site folder left out."""
    root = Path(str(installed.locate_file(""))).resolve()
    paths = {Path(str(installed.locate_file(listed))): listed for listed in installed.files or ()}
    return {path: listed for path, listed in paths.items() if path.resolve().is_relative_to(root) and path.is_file()}


def _complete_models(files: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    yield from ((path,) for path in gguf_models(files))
    folders = {path.parent for path in files if path.suffix == ".safetensors"}
    yield from ((folder,) for folder in sorted(folders) if folder / "config.json" in files)


def _joined(package: str, parts: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """The parts of each file in order; raises ModelError where a number is missing or stands twice."""
    by_name = defaultdict[str, list[tuple[int, Path]]](list)
    for path in parts:
        if match := _PART.fullmatch(path.name):
            by_name[match["name"]].append((int(match["number"]), path))
    for name, numbered in sorted(by_name.items()):
        numbered.sort()
        numbers = [number for number, _ in numbered]
        if numbers[0] > 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise ModelError(
                f"The parts of {short(name)} in {package} are numbered {', '.join(map(str, numbers))}: they do not "
                "make one file.",
                "Install the package with all that it requires.",
            )
        yield tuple(path for _, path in numbered)


def _require_as_installed(package: str, model: Sequence[Path], listed: dict[Path, PackagePath]) -> None:
    """Raises ModelError for a file of the model that is a pointer, or not the one that was installed."""
    for path in (path for path in listed if path in model or path.parent in model):
        if path.suffix in (".gguf", ".safetensors"):
            require_kind(path, ("gguf", "safetensors"))
        expected = listed[path].hash
        if expected is not None and expected.mode == "sha256":
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != expected.value:
                raise ModelError(f"{path} is not the file that {package} installed.", "Install the package again.")
