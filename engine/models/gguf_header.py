"""The header of a GGUF file, read within bounds before any library maps the file.

The file's size bounds every count and length, since a library that trusts them reads past the end or fills the memory.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import ModelError
from engine.foreign_files import short
from engine.path_kinds import TYPES_OF_GGUF, require_kind
from engine.plugins import install_line

_VERSIONS = (2, 3)
_HEADER_BYTES = 256 << 20
_MOST_FIELDS, _MOST_TENSORS = 1 << 13, 1 << 17
_MOST_ITEMS = 1 << 22  # of all arrays together: several times the largest vocabularies; gguf makes an object of each
_MOST_DIMENSIONS, _MOST_NUMBERS = 4, 1 << 42
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_PIECE = 1 << 20
_AGAIN = "Download it again."
_SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)  # of llama.cpp: files of one model
SAFETENSORS = "Give the model in safetensors format: its folder, or its name on the hub."


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of the file; `start` is its first byte."""

    name: str
    type: str  # such as Q4_K
    shape: tuple[int, ...]  # as PyTorch orders it
    start: int
    num_bytes: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of its model. Of an array `fields` has the length only."""

    path: Path
    fields: dict[str, Any]
    tensors: tuple[GgufTensor, ...]

    @property
    def architecture(self) -> str:
        return str(self.fields.get("general.architecture", ""))

    @property
    def num_parameters(self) -> int:
        return sum(tensor.size for tensor in self.tensors)

    @property
    def types(self) -> Counter[str]:
        """The numbers of the model by the type that they are stored in, most first."""
        sizes = Counter[str]()
        for tensor in self.tensors:
            sizes[tensor.type] += tensor.size
        return Counter(dict(sizes.most_common()))

    @property
    def quantization(self) -> str:
        """The precision that the file names, such as Q4_K_M; else the type of most of its numbers."""
        return TYPES_OF_GGUF.get(self.fields.get("general.file_type", -1), "") or next(iter(self.types), "")

    def tensors_sha256(self) -> str:
        """The hash of all tensors as they are stored: equal for two files that differ in their other fields only."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            for tensor in sorted(self.tensors, key=lambda tensor: tensor.name):
                digest.update(f"{tensor.name} {tensor.type} {tensor.shape}\n".encode())
                file.seek(tensor.start)
                left = tensor.num_bytes
                while left > 0:
                    if not (piece := file.read(min(left, _PIECE))):
                        raise ModelError(f"{self.path} became shorter while it was read.", _AGAIN)
                    left -= len(piece)
                    digest.update(piece)
        return digest.hexdigest()


def gguf_models(files: Iterable[Path]) -> list[Path]:
    """The GGUF files among some; of a model that is split into several only the first."""
    ggufs = sorted((path for path in files if path.suffix.lower() == ".gguf"), reverse=True)
    return sorted({_SPLIT.sub("", str(path)): path for path in ggufs}.values())


def only_gguf(path: Path) -> Path:
    """The GGUF file of a folder, or the file itself; raises ModelError where a folder holds several."""
    files = gguf_models(path.iterdir()) if path.is_dir() else [path]
    if len(files) > 1:
        names = ", ".join(short(file.name) for file in files[:3]) + " …" * (len(files) > 3)
        raise ModelError(f"{path} holds {len(files)} GGUF files: {names}.", "Give the path of one of them.")
    return files[0]


def read_header(path: Path) -> GgufHeader:
    """The header of a GGUF file of one model; raises ModelError with the cause, before any library reads the file."""
    require_kind(path, ["gguf"])
    try:
        with path.open("rb") as file:
            header = _read(path, _Bounded(file, path.stat().st_size))
    except _MalformedError as error:
        raise ModelError(f"{path} is not a complete GGUF file: {error}.", _AGAIN) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from None
    if header.fields.get("general.type", "model") != "model":
        problem = f"{path} is a GGUF file of type “{short(header.fields['general.type'])}”, not of a model."
        raise ModelError(problem, SAFETENSORS)
    if (count := header.fields.get("split.count", 1)) not in (0, 1):
        raise ModelError(f"{path} is one of {short(count)} files of a split model.", _how_to_merge(path))
    if not header.architecture or not header.tensors:
        raise ModelError(f"{path} is a GGUF file without an architecture or without tensors.", SAFETENSORS)
    return header


def _how_to_merge(path: Path) -> str:
    """The command of llama.cpp that makes one file of those of a split model; they are numbered from 1."""
    first, joined = "FIRST", "NEW"
    if _SPLIT.search(path.name):
        first, joined = (str(path.with_name(_SPLIT.sub(end, path.name))) for end in (r"-00001-of-\1.gguf", ".gguf"))
    command = shlex.join(["llama-gguf-split", "--merge", first, joined])
    return f"Join them with this program of llama.cpp, then give the new file: {command}"


class _MalformedError(Exception):
    """A header that contradicts the format or the file's size."""


class _Bounded:
    """Reads numbers and strings of a header one after another, never more than the file has."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self.size, self.position, self._items = file, size, 0, 0

    def take(self, count: int) -> bytes:
        if count > min(self.size, _HEADER_BYTES) - self.position:
            raise _MalformedError(f"its header ends after {self.position:,} bytes, or asks for too many")
        content = self._file.read(count)
        if len(content) < count:
            raise _MalformedError("it became shorter while it was read")
        self.position += count
        return content

    def number(self, letter: str) -> Any:
        return struct.unpack(f"<{letter}", self.take(struct.calcsize(f"<{letter}")))[0]

    def count(self, most: int, what: str) -> int:
        count = int(self.number("Q"))
        if count > most:
            raise _MalformedError(f"it announces {count:,} {what}")
        return count

    def string(self) -> str:
        try:
            return self.take(self.number("Q")).decode("utf-8")
        except UnicodeDecodeError:
            raise _MalformedError("a string in its header is not UTF-8") from None

    def value(self) -> Any:
        kind = self.number("I")
        if kind != _ARRAY:
            return self._item(kind)
        kind, count = self.number("I"), self.count(_MOST_ITEMS, "items of an array")
        self._items += count
        if self._items > _MOST_ITEMS:
            raise _MalformedError(f"its arrays have more than {_MOST_ITEMS:,} items")
        if kind == _STRING:
            for _ in range(count):
                self.take(self.number("Q"))
        else:
            self.take(count * struct.calcsize(f"<{_letter_of(kind)}"))
        return count

    def _item(self, kind: int) -> Any:
        return self.string() if kind == _STRING else self.number(_letter_of(kind))


def _letter_of(kind: int) -> str:
    if kind not in _SCALARS:
        raise _MalformedError(f"a field has the unknown type {kind}")
    return _SCALARS[kind]


def _read(path: Path, source: _Bounded) -> GgufHeader:
    source.take(4)
    version = source.number("I")
    if version not in _VERSIONS:
        raise ModelError(f"{path} is a GGUF file of version {version:,}; versions 2 and 3 can be read.", SAFETENSORS)
    num_tensors, num_fields = source.count(_MOST_TENSORS, "tensors"), source.count(_MOST_FIELDS, "fields")
    fields: dict[str, Any] = {}
    for _ in range(num_fields):
        name = source.string()
        if name in fields:
            raise _MalformedError(f"the field “{short(name)}” stands twice")
        fields[name] = source.value()
    tensors = [_read_tensor(path, source) for _ in range(num_tensors)]
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise _MalformedError(f"its alignment is {short(alignment)}")
    first = -(-source.position // alignment) * alignment
    placed = sorted(((first + tensor.start, tensor) for tensor in tensors), key=lambda pair: pair[0])
    return GgufHeader(path, fields, tuple(_placed(placed, source.size, alignment)))


def _placed(placed: list[tuple[int, GgufTensor]], size: int, alignment: int) -> list[GgufTensor]:
    """The tensors with their first bytes in the file, each checked to lie in it and behind the one before."""
    names = Counter(tensor.name for _, tensor in placed)
    if names and (twice := names.most_common(1)[0])[1] > 1:
        raise _MalformedError(f"the tensor “{short(twice[0])}” stands twice")
    for start, tensor in placed:
        if start % alignment or start + tensor.num_bytes > size:
            problem = f"the tensor “{short(tensor.name)}” would end at byte {start + tensor.num_bytes:,}"
            raise _MalformedError(f"{problem}, and the file has {size:,}")
    for (start, tensor), (following, _) in pairwise(placed):
        if start + tensor.num_bytes > following:
            raise _MalformedError(f"the tensor “{short(tensor.name)}” reaches into the next one")
    return [GgufTensor(one.name, one.type, one.shape, start, one.num_bytes) for start, one in placed]


def _read_tensor(path: Path, source: _Bounded) -> GgufTensor:
    """A tensor of the list; `start` counts from the end of the header."""
    sizes, types = _ggml_types()
    name, num_dimensions = source.string(), source.number("I")
    if not 0 < num_dimensions <= _MOST_DIMENSIONS:
        raise _MalformedError(f"the tensor “{short(name)}” has {num_dimensions:,} dimensions")
    shape = tuple(source.number("Q") for _ in range(num_dimensions))
    kind, start = source.number("I"), source.number("Q")
    if kind not in types:
        problem = f"The tensor “{short(name)}” of {path} is of the unknown type {kind}."
        raise ModelError(problem, SAFETENSORS)
    block, num_bytes = sizes[kind]
    if not 0 < math.prod(shape) < _MOST_NUMBERS or shape[0] % block:
        raise _MalformedError(f"the tensor “{short(name)}” has the shape {short(shape)}")
    return GgufTensor(name, types[kind], shape[::-1], start, math.prod(shape) // block * num_bytes)


def _ggml_types() -> tuple[dict[int, tuple[int, int]], dict[int, str]]:
    """Of each type of numbers the size of a block, in numbers and in bytes, and its name."""
    require_gguf()
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}, {
        int(kind): kind.name for kind in GGML_QUANT_SIZES
    }


def require_gguf() -> None:
    """Raises ModelError where the library that knows the types is not installed."""
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise ModelError("GGUF files need the library gguf.", f"{install_line('demo')}") from None
