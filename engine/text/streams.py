"""Files as guarded streams of bytes: found without following links, unpacked without falling for a bomb."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from engine.errors import CorpusError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

KINDS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
PACKERS = (".gz", ".xz")
ARCHIVES = (".zip", ".tar", ".tgz", ".txz", ".7z", ".rar", ".bz2", ".zst", ".tbz2")

MAX_RATIO = 200  # text packs 3 to 10 times, logs 50 times; gzip's best on zeros is 1032
MAX_UNPACKED_BYTES = 64 << 20  # below this, any ratio is harmless

KNOWN_KINDS = "Give txt, md, jsonl, csv, tsv or parquet, plain or packed as .gz or .xz."


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file to read, under the name a person sees: relative to what was asked for, printable."""

    path: Path
    name: str
    size_bytes: int

    @property
    def suffixes(self) -> tuple[str, str]:
        """The suffix that tells the kind, and that of the packing (may be empty), in lower case."""
        path, packed = Path(self.path.name.lower()), ""
        if path.suffix in PACKERS:
            path, packed = path.with_suffix(""), path.suffix
        return path.suffix, packed

    @property
    def is_archive(self) -> bool:
        """True when the name says that other files are inside."""
        return self.suffixes[0] in ARCHIVES or self.path.suffix.lower() in ARCHIVES

    @property
    def kind(self) -> str | None:
        """text, json, csv, tsv or parquet; None when the name tells nothing known."""
        return KINDS.get(self.suffixes[0])


def printable(name: str) -> str:
    """A file name fit for a screen: undecodable bytes and control characters become `�`."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)


def find_files(path: Path) -> Iterator[TextFile | CorpusError]:
    """The file itself, or all files below a folder in sorted order, hidden ones aside.

    A fault is yielded for what is left out although nothing is wrong with it: unknown kinds, devices, and
    links (what they point to is read anyway when it lies in the folder, and not ours when it does not).
    """
    if path.is_dir():
        yield from _below(path, path)
    elif path.is_file():
        yield TextFile(path, printable(path.name), path.stat().st_size)
    else:
        raise CorpusError(
            "The path must be a file or a folder, but there is none instead.",
            "Check the path.",
            path=printable(str(path)),
        )


def size_on_disk(path: Path) -> int:
    """Bytes on disk of all the files that would be read: the total for a progress bar."""
    return sum(file.size_bytes for file in find_files(path) if isinstance(file, TextFile))


def _below(folder: Path, root: Path) -> Iterator[TextFile | CorpusError]:
    for entry in _entries(folder, root):
        name = printable(str(Path(entry.path).relative_to(root)))
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path), root)
        elif entry.is_file(follow_symlinks=False):
            yield _known(TextFile(Path(entry.path), name, entry.stat(follow_symlinks=False).st_size))
        else:
            what = "link" if entry.is_symlink() else "device"
            yield CorpusError(f"Must be a file, but is a {what} instead: not followed.", "Copy the file.", path=name)


def _entries(folder: Path, root: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        problem = f"The folder must be readable, but is not ({error.strerror})."
        name = printable(str(folder.relative_to(root.parent)))
        raise CorpusError(problem, "Check its permissions.", path=name) from None
    return sorted(shown, key=lambda entry: entry.name)


def _known(file: TextFile) -> TextFile | CorpusError:
    """The file; a fault when nothing can be known of it. Archives go on, to be refused with their remedy."""
    if file.kind or file.is_archive:
        return file
    return CorpusError("Not read: its name does not tell a known kind of text.", KNOWN_KINDS, path=file.name)


def refuse_growth(file: TextFile, unpacked_bytes: int, packed_bytes: int) -> None:
    """Raises CorpusError when a file turns into more text than honest text of its size would."""
    if unpacked_bytes > max(MAX_UNPACKED_BYTES, MAX_RATIO * packed_bytes):
        raise CorpusError(
            f"The file must unpack to at most {MAX_RATIO} times its size, but grows beyond that instead.",
            "Unpack it yourself and look at it before you import it.",
            path=file.name,
        )


class Unpacked(io.RawIOBase):
    """The unpacked bytes of a file; refuses damage, and growth beyond `MAX_RATIO` times its packed size."""

    def __init__(self, file: TextFile) -> None:
        super().__init__()
        self._file = file
        self._packed = file.path.open("rb")
        self._plain = _unpack(self._packed, file.suffixes[1])
        self._size = 0

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
            raise CorpusError(
                f"The file must be whole, but cannot be unpacked ({error}).",
                "Get it again.",
                path=self._file.name,
            ) from None
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
    return file


class _Xz:
    """The streams of an xz file one after another, and nothing else: `lzma.LZMAFile` ends silently at what is none."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._stream = lzma.LZMADecompressor()
        self._packed = b""  # read, not unpacked
        self._is_over = False

    def read(self, size: int) -> bytes:
        """Up to so many bytes; none at the end. Raises EOFError or LZMAError for a damaged file."""
        while not self._is_over and (not self._stream.eof or self._goes_on()):
            if self._stream.needs_input and not self._packed:
                self._packed = self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not self._packed:
                    raise EOFError("it ends in the middle")
            packed, self._packed = self._packed, b""
            if data := self._stream.decompress(packed, size):
                return data
        return b""

    def close(self) -> None:
        """Nothing: the file is its opener's."""

    def _goes_on(self) -> bool:
        """Begins the stream behind the one that has ended, if there is one; zeros in fours may lie between."""
        rest, padding = self._stream.unused_data, 0
        while not (begin := rest.lstrip(b"\0")):
            padding += len(rest)
            rest = self._file.read(io.DEFAULT_BUFFER_SIZE)
            if not rest:
                break
        padding += len(rest) - len(begin)
        if padding % 4:
            raise lzma.LZMAError("the zeros behind its end are not in fours")
        self._stream, self._packed, self._is_over = lzma.LZMADecompressor(), begin, not begin
        return not self._is_over
