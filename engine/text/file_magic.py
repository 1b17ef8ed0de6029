"""Recognises files that are not UTF-8 text by their first bytes, and refuses them by name."""

from __future__ import annotations

import codecs
import io
from typing import Any

from engine.errors import CorpusError

UNPACK = "Unpack it and import what is inside."
NOT_TEXT = "Import files that hold text."
MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", UNPACK),
    (b"PK\x05\x06", "an empty zip archive", UNPACK),
    (b"\x1f\x8b", "packed by gzip", "Add the suffix .gz to its name, as in NAME.jsonl.gz."),
    (b"\xfd7zXZ\x00", "packed by xz", "Add the suffix .xz to its name, as in NAME.jsonl.xz."),
    (b"BZh", "packed by bzip2", "Add the suffix .bz2 to its name, as in NAME.jsonl.bz2."),
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "Add the suffix .zst to its name, as in NAME.jsonl.zst."),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"Rar!\x1a", "a rar archive", UNPACK),
    (b"PAR1", "a parquet table", "Name it .parquet."),
    (b"ARROW1", "an Arrow table", "Write it as .parquet."),
    (b"\x89PNG", "a PNG picture", NOT_TEXT),
    (b"\xff\xd8\xff", "a JPEG picture", NOT_TEXT),
    (b"GIF8", "a GIF picture", NOT_TEXT),
    (b"%PDF-", "a PDF", "Save its text as .txt."),
    (b"\x7fELF", "a program", NOT_TEXT),
    (b"SQLite format 3\x00", "a database", "Export its texts as .jsonl or .csv."),
    (b"\x93NUMPY", "a NumPy array", NOT_TEXT),
    *(
        (bytes((0x80, version)), "a Python pickle", "Pickles can run code: export the text as .jsonl.")
        for version in range(2, 6)
    ),
)
UTF16 = "Save it as UTF-8, for example: iconv -f UTF-16 -t UTF-8 FILE > NEW."


def refuse_foreign(stream: io.BufferedReader[Any], name: str) -> None:
    """Raises CorpusError when the stream cannot be UTF-8 text; drops a leading byte order mark."""
    head = stream.peek(4096)[:4096]
    if head.startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
        return
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _looks_utf16(head):
        raise CorpusError("The text is UTF-16, not UTF-8.", UTF16, path=name, line=1)
    for magic, what, remedy in MAGIC:
        if head.startswith(magic):
            raise CorpusError(f"The file is {what}, not text.", remedy, path=name, line=1)
    if head[257:262] == b"ustar":
        raise CorpusError("The file is a tar archive, not text.", UNPACK, path=name, line=1)


def _looks_utf16(head: bytes) -> bool:
    """True when nearly every second byte is NUL, as in Latin letters of UTF-16 without a mark."""
    pairs = len(head) // 2
    fewer, more = sorted((head[0::2].count(0), head[1::2].count(0)))
    return pairs >= 4 and more > 0.7 * pairs > 10 * fewer
