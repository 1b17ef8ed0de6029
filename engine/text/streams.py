"""Finds text files without following links, unpacks them safely (no decompression bombs), and gives their records."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from engine.errors import CorpusChangedError, CorpusError, NextStep
from engine.foreign_files import what_is
from engine.path_kinds import READABLE, describe_path

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
from collections.abc import Callable, Mapping, Sequence
from typing import Any

KINDS = {
    **dict.fromkeys((".txt", ".text", ".md"), "text"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **{f".{kind}": kind for kind in ("csv", "tsv", "parquet")},
}
PACKERS = (".gz", ".xz", ".bz2", ".zst")
_BY_PYARROW = {".bz2": "bz2", ".zst": "zstd"}  # strict: a cut file and trailing garbage raise OSError
ARCHIVES = (".zip", ".tar", ".tgz", ".txz", ".7z", ".rar", ".tbz2", ".tzst")

MAX_RATIO = 200  # text packs 3 to 10 times, logs 50 times; gzip's best on zeros is 1032
MAX_UNPACKED_BYTES = 64 << 20  # below this, any ratio is harmless

_ALL = "all"
_CARDS = ("README.md", "dataset_infos.json", "dataset_info.json")
_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
KNOWN_KINDS = "Give txt, md, jsonl, csv, tsv or parquet, plain or compressed as .gz, .xz, .bz2 or .zst."


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file to read, with a printable name relative to the given path."""

    path: Path
    name: str
    size_bytes: int
    is_only: bool = False  # no other file is read with it

    @property
    def suffixes(self) -> tuple[str, str]:
        """The suffix of the format and that of the compression (may be empty), in lower case."""
        path, packed = Path(self.path.name.lower()), ""
        if path.suffix in PACKERS:
            path, packed = path.with_suffix(""), path.suffix
        return path.suffix, packed

    @property
    def is_archive(self) -> bool:
        """True when the suffix is an archive's."""
        return self.suffixes[0] in ARCHIVES or self.path.suffix.lower() in ARCHIVES

    @property
    def kind(self) -> str | None:
        """text, json, csv, tsv or parquet; None when the suffix is unknown."""
        return KINDS.get(self.suffixes[0])


def printable(name: str) -> str:
    """A file name for display: undecodable bytes and control characters become `�`."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name)


def find_files(path: Path, split: str = "train") -> Iterator[TextFile | CorpusError]:
    """The file itself, or all files below a folder in sorted order, without hidden files.

    Where files belong to splits, as in a data set of a hub, only those of one are read; `all` reads every file. Yields
    a fault for each file, device or link that is left out (the target of a link is read anyway if it lies in the
    folder). Raises CorpusError for what holds no text, such as a model.
    """
    if path.is_file():
        yield TextFile(path, printable(path.name), path.stat().st_size, is_only=True)
        return
    described = describe_path(path, printable(path.name) or "The folder")
    if described.kind in READABLE:
        yield from _mark_the_only_file(_of_split(path, split, is_data_set=described.kind == "data set"))
    elif described.kind == "missing":
        raise CorpusError("There is no file or folder at this path.", "Check the path.", path=printable(str(path)))
    else:
        raise CorpusError(described.sentence, described.remedy)


def _of_split(folder: Path, split: str, *, is_data_set: bool) -> Iterator[TextFile | CorpusError]:
    """The files of a split, where the folder has several, and a fault for each other file."""
    names = [file.name for file in _below(folder, folder) if isinstance(file, TextFile)]
    counts = Counter(filter(None, (split_of_name(name) for name in names)))
    has_splits = bool(counts) if is_data_set else len(counts) > 1 and "train" in counts
    if has_splits and split not in (*counts, _ALL):
        problem = f"The folder has no files of the split “{printable(split)}”, only of {', '.join(sorted(counts))}."
        raise CorpusError(problem, NextStep.CHOOSE_SPLIT, path=printable(folder.name))
    for file in _below(folder, folder):
        of_file = split_of_name(file.name) if isinstance(file, TextFile) else None
        if not isinstance(file, TextFile):
            yield file
        elif is_data_set and (file.name in _CARDS or (has_splits and split != _ALL and not of_file)):
            yield CorpusError("Not read: it describes the data set.", NextStep.CHOOSE_SPLIT, path=file.name)
        elif has_splits and of_file not in (None, split) and split != _ALL:
            problem = f"Not read: it belongs to the split {of_file}, and {split} was chosen."
            yield CorpusError(problem, NextStep.CHOOSE_SPLIT, path=file.name)
        else:
            yield file


def split_of_name(name: str) -> str | None:
    """The split that the path of a file names, by the words that the library datasets looks for."""
    path = Path(name.lower())
    if path.suffix == ".md":
        return None
    if path.suffix == ".txt":  # of a text, whose name may be any words
        return _SPLITS.get(path.stem.rpartition(".")[2])
    words = re.split(r"[^a-z]+", name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def _mark_the_only_file(files: Iterator[TextFile | CorpusError]) -> Iterator[TextFile | CorpusError]:
    """The same, where a file that is the only one says so."""
    start = list(islice(files, 2))
    if len(start) == 1 and isinstance(start[0], TextFile):
        start = [replace(start[0], is_only=True)]
    yield from chain(start, files)


def size_on_disk(path: Path, split: str = "train") -> int:
    """The bytes on disk of all files to read: the total for a progress bar."""
    return sum(file.size_bytes for file in find_files(path, split) if isinstance(file, TextFile))


def _below(folder: Path, root: Path) -> Iterator[TextFile | CorpusError]:
    for entry in _entries(folder, root):
        name = printable(str(Path(entry.path).relative_to(root)))
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), root)
        elif entry.is_file(follow_symlinks=False):
            file = TextFile(Path(entry.path), name, entry.stat(follow_symlinks=False).st_size)
            unknown = CorpusError("Not read: its suffix is not of a known text format.", KNOWN_KINDS, path=name)
            yield file if file.kind or file.is_archive else unknown  # the reader refuses archives with a remedy
        else:
            what = "link" if entry.is_symlink() else what_is(entry.path) or "device"
            yield CorpusError(f"Not read: it is a {what}, not a file.", "Copy the file.", path=name)


def _entries(folder: Path, root: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        problem = f"The folder cannot be read ({error.strerror})."
        name = printable(str(folder.relative_to(root.parent)))
        raise CorpusError(problem, "Check its permissions.", path=name) from None
    return sorted(shown, key=lambda entry: entry.name)


def refuse_growth(file: TextFile, unpacked_bytes: int, packed_bytes: int) -> None:
    """Raises CorpusError when a file unpacks to more than text of its size would."""
    if unpacked_bytes > max(MAX_UNPACKED_BYTES, MAX_RATIO * packed_bytes):
        problem = f"The file unpacks to more than {MAX_RATIO} times its size."
        raise CorpusError(problem, "Unpack and check it yourself before you import it.", path=file.name)


class Unpacked(io.RawIOBase):
    """The unpacked bytes of a file; refuses damage, and growth beyond `MAX_RATIO` times its packed size."""

    def __init__(self, file: TextFile) -> None:
        super().__init__()
        self._file = file
        self._packed = file.path.open("rb")
        self._plain = _unpack(self._packed, file.suffixes[1])
        self._size = 0
        self._opened_as = self._state()

    def require_unchanged(self) -> None:
        """Raises CorpusChangedError if the file was written since it was opened; another file may have its name now."""
        if self._state() != self._opened_as:
            remedy = "Import it when nothing writes to it."
            raise CorpusChangedError("The file changed while it was read.", remedy, path=self._file.name)

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self._packed.fileno())
        return status.st_size, status.st_mtime_ns

    @property
    def bytes_read(self) -> int:
        """Bytes taken from the disk so far."""
        return self._packed.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fills the buffer; raises CorpusError for a damaged or exploding file."""
        view = memoryview(buffer).cast("B")
        try:
            data = self._plain.read(len(view))
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            problem = f"The file cannot be unpacked ({error})."
            raise CorpusError(problem, "Download it again.", path=self._file.name) from None
        self._size += len(data)
        refuse_growth(self._file, self._size, self.bytes_read)
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._plain.close()
            self._packed.close()
        super().close()


def _unpack(file: IO[bytes], packing: str) -> IO[bytes]:
    if packing == ".gz":
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if packing == ".xz":
        return _Xz(file)  # type: ignore[return-value]
    if packing in _BY_PYARROW:
        import pyarrow as pa  # imported late: it takes longer than most imports of text

        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), _BY_PYARROW[packing])  # type: ignore[no-any-return]
    return file


class _Xz:
    """Reads the concatenated streams of an xz file strictly: `lzma.LZMAFile` ends silently at trailing garbage."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._stream = lzma.LZMADecompressor()
        self._packed = b""  # read, not unpacked
        self._is_finished = False

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none at the end. Raises EOFError or LZMAError for a damaged file."""
        while not self._is_finished and (not self._stream.eof or self._next_stream()):
            if self._stream.needs_input and not self._packed:
                self._packed = self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not self._packed:
                    raise EOFError("it ends in the middle")
            packed, self._packed = self._packed, b""
            if data := self._stream.decompress(packed, size):
                return data
        return b""

    def close(self) -> None:
        """Does nothing: the opener closes the file."""

    def _next_stream(self) -> bool:
        """Begins the next stream, if there is one, after padding of a multiple of four zeros."""
        rest, padding = self._stream.unused_data, 0
        while not (begin := rest.lstrip(b"\0")):
            padding += len(rest)
            rest = self._file.read(io.DEFAULT_BUFFER_SIZE)
            if not rest:
                break
        padding += len(rest) - len(begin)
        if padding % 4:
            raise lzma.LZMAError("the padding after its end is not a multiple of four bytes")
        self._stream, self._packed, self._is_finished = lzma.LZMADecompressor(), begin, not begin
        return not self._is_finished


MAX_RECORD_BYTES = 64 << 20  # one line, or one CSV row over several lines
PEEK_BYTES = 1 << 16  # looked at to see the shape of a file


def valid_text(text: str) -> str:
    """The text itself; raises CorpusError when it holds NUL characters or cannot be written as UTF-8."""
    if "\0" in text:
        raise CorpusError("The text contains NUL characters.")
    require_encodable(text)
    return text


def require_encodable(text: str) -> None:
    """Raises CorpusError when the text cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = f"\\u{ord(text[error.start]):04x}"
        raise CorpusError(f"The text is not valid Unicode: it contains an unpaired surrogate ({surrogate}).") from None


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a file: the line (or row) on which it begins, and its fields."""

    line: int
    values: Mapping[str, Any]
    offset: int | None = None  # bytes of the file read so far, if the stream does not count them
    position: str = ""  # added to a fault where the line does not say enough


Records = Iterator[Record | CorpusError]  # a fault stands for a record that is left out


@dataclass(frozen=True, slots=True)
class Source:
    """An open file: its unpacked bytes, and the fields to read from it (the text field first).

    It must also have all fields of one of `either`, where that is not empty: then all its fields are read. `note` takes
    sentences about what was recognised.
    """

    file: TextFile
    stream: io.BufferedReader[Any]
    fields: tuple[str, ...]
    note: Callable[[str], None]
    either: tuple[tuple[str, ...], ...] = ()

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """The columns of a table to read, the text first; raises CorpusError when one is missing."""
        chosen = next((shape for shape in self.either if set(shape) <= set(names)), ())
        if self.either and not chosen:
            shapes = ", ".join(" with ".join(f"“{name}”" for name in shape) for shape in self.either)
            problem = f"The table has no conversations: it has none of {shapes}, only {names_of(list(names))}."
            raise self.fault(problem, "Rename the columns.")
        return tuple(dict.fromkeys((*chosen, *self.fields, *(names if chosen else ()))))

    def fault(self, problem: str, next_step: str, line: int | None = None) -> CorpusError:
        """An error that names this file and a line."""
        return CorpusError(problem, next_step, path=self.file.name, line=line)

    def not_utf8(self, line: int, byte: int) -> CorpusError:
        """The error for a byte (counted from 1 in its line) that is not UTF-8."""
        problem = f"The text is not UTF-8 (byte {byte} of the line)."
        return self.fault(problem, "Save it as UTF-8, for example: iconv -f LATIN1 -t UTF-8 FILE > NEW.", line)

    def too_long(self, line: int) -> CorpusError:
        """The error for a record above the size limit."""
        problem = f"The record is longer than {MAX_RECORD_BYTES >> 20} MiB."
        return self.fault(problem, "Cut it into several records; a line end or a quote may be missing.", line)

    def lines(self) -> Iterator[tuple[int, str] | CorpusError]:
        """Yields decoded lines with their numbers, and faults for lines that are too long or not UTF-8."""
        number = 0
        while raw := self.stream.readline(MAX_RECORD_BYTES + 1):
            number += 1
            if len(raw) > MAX_RECORD_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = self.stream.readline(1 << 20)
                yield self.too_long(number)
                continue
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                yield self.not_utf8(number, error.start + 1)


def names_of(names: list[str]) -> str:
    """The first dozen names, quoted, for a sentence."""
    shown = ", ".join(f"“{name[:40]}”" for name in names[:12])
    return (shown or "nothing") + (", …" if len(names) > 12 else "")
