"""Recognises what a file or folder is by its first bytes and its names, before an importer reads it.

Nothing is followed, unpacked or run, and of a pipe or device no byte is read. Text, tables and folders of them are
also kinds: an importer names the kinds that it reads, and refuses the others in these words.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.errors import EngineError, ModelError
from engine.foreign_files import HEAD_BYTES, confined, describe_pointer, short, what_is

Kind = Literal[
    "text", "parquet", "empty", "utf-16", "compressed", "archive", "document", "picture", "binary", "pickle",
    "pointer", "gguf", "safetensors", "packed expert",
    "folder", "data set", "saved data set", "model", "adapter", "checkpoint",
    "device", "missing", "unreadable",
]  # fmt: skip
READABLE: frozenset[Kind] = frozenset(("text", "parquet", "empty", "compressed", "folder", "data set"))  # as a corpus


@dataclass(frozen=True, slots=True)
class PathKind:
    """What a file or folder is, in a sentence that names it, and what to do where something else is wanted."""

    kind: Kind
    sentence: str
    remedy: str = ""


_UNPACK = "Unpack it and import what is inside."
_NOT_TEXT = "Import files that hold text."
_AS_SAFETENSORS = "Load it with transformers and save it with save_pretrained(folder), which writes safetensors."
_FROM_GGUF = "Add it as a seed model, which dequantizes it; everything else takes safetensors."
_LITTLE_ENDIAN = "Convert it by the program of the library gguf: gguf-convert-endian FILE little."
_PICKLE = "Pickles can run code and are never opened. "
_MAGIC: tuple[tuple[bytes, Kind, str, str], ...] = (
    (b"PK\x03\x04", "archive", "a zip archive", _UNPACK),
    (b"PK\x05\x06", "archive", "an empty zip archive", _UNPACK),
    (b"\x1f\x8b", "compressed", "packed by gzip", "Add the suffix .gz to its name, as in NAME.jsonl.gz."),
    (b"\xfd7zXZ\x00", "compressed", "packed by xz", "Add the suffix .xz to its name, as in NAME.jsonl.xz."),
    (b"BZh", "compressed", "packed by bzip2", "Add the suffix .bz2 to its name, as in NAME.jsonl.bz2."),
    (b"\x28\xb5\x2f\xfd", "compressed", "packed by zstd", "Add the suffix .zst to its name, as in NAME.jsonl.zst."),
    (b"7z\xbc\xaf\x27\x1c", "archive", "a 7z archive", _UNPACK),
    (b"Rar!\x1a", "archive", "a rar archive", _UNPACK),
    (b"PAR1", "parquet", "a parquet table", "Name it .parquet."),
    (b"ARROW1\0", "binary", "an Arrow table", "Write it as .parquet."),
    (b"Obj\x01", "binary", "an Avro table", "Write it as .parquet."),
    (b"\x89HDF\r\n", "binary", "an HDF5 file", "Write its text as .jsonl, or its model by save_pretrained(folder)."),
    (b"\x89PNG", "picture", "a PNG picture", _NOT_TEXT),
    (b"\xff\xd8\xff", "picture", "a JPEG picture", _NOT_TEXT),
    (b"GIF8", "picture", "a GIF picture", _NOT_TEXT),
    (b"%PDF-", "document", "a PDF", "Save its text as .txt."),
    (b"\xd0\xcf\x11\xe0", "document", "a document of an old Office program", "Save it as .txt, or a table as .csv."),
    (b"\x7fELF", "binary", "a program", _NOT_TEXT),
    (b"SQLite format 3\x00", "binary", "a database", "Export its texts as .jsonl or .csv."),
    (b"\x93NUMPY", "binary", "a NumPy array", _NOT_TEXT),
    *(
        (bytes((0x80, version)), "pickle", "a Python pickle", _PICKLE + "Export the text as .jsonl.")
        for version in range(2, 6)
    ),
)  # fmt: skip
_ZIPS: tuple[tuple[re.Pattern[str], Kind, str, str], ...] = (  # by the name of the first file inside
    (re.compile(r"(.*/)?data\.pkl"), "pickle", "a pickle of PyTorch", _PICKLE + _AS_SAFETENSORS),
    (re.compile(r"pack\.json"), "packed expert", "a packed expert", "Unpack it as an expert."),
    (re.compile(r"\[Content_Types\]\.xml|_rels/.*|docProps/.*"), "document", "an Office document",
     "Save it as .txt, or a table as .csv in UTF-8."),
    (re.compile(r".*\.npy"), "binary", "an archive of NumPy arrays", _NOT_TEXT),
)  # fmt: skip
_AS_UTF8 = "Save it as UTF-8, for example: iconv -f {} -t UTF-8 FILE > NEW."
TYPES_OF_GGUF = {  # general.file_type of llama.cpp
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_OF_MODEL = re.compile(
    r"(adapter_)?model.*\.safetensors(\.index\.json)?|.*\.(json|model|jinja|tiktoken)|(vocab|merges)\.txt"
)
_STATES = re.compile(
    r"optimizer\.(pt|bin)|trainer_state\.json|global_step\d+|pytorch_model_fsdp.*|zero_to_fp32\.py|.*\.distcp"
)
_CHECKPOINT = re.compile(r"(?:checkpoint|step|epoch)[-_]?(\d+)")
_CARD_KEYS = re.compile(
    r"^(?:dataset_info|configs|task_categories|size_categories|annotations_creators):", re.MULTILINE
)
_SPLIT_FILE = re.compile(r"(?:train|test|validation|dev)[-.][^/]*\.(?:parquet|arrow|jsonl|json|csv)(?:\.\w+)?")
_MAX_ENTRIES = 5000


def describe_path(path: Path, subject: str = "") -> PathKind:
    """What is at a path. Sentences begin with `subject`, which is the path unless given."""
    subject = subject or short(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            return _describe_folder(path, subject, sorted(os.listdir(path))[:_MAX_ENTRIES])
        if not stat.S_ISREG(status.st_mode):
            return PathKind(
                "device", f"{subject} is a {what_is(path) or 'special file'}, not a file.", "Give a file or a folder."
            )
        return describe_head(_head(path), subject)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
        return PathKind("missing", f"{subject} does not exist.", "Check the path.")
    except OSError as error:
        return PathKind("unreadable", f"{subject} cannot be read: {error.strerror}.", "Check the path and its rights.")


def require_kind(path: Path, accepted: Collection[Kind], error: type[EngineError] = ModelError) -> PathKind:
    """What is at a path, if it is of an accepted kind; otherwise raises `error` that says what it is instead."""
    described = describe_path(path)
    if described.kind not in accepted:
        raise error(described.sentence, described.remedy)
    return described


def describe_head(head: bytes, subject: str) -> PathKind:
    """What a file is, by its first bytes (`HEAD_BYTES` are enough)."""
    if not head:
        return PathKind("empty", f"{subject} is empty.", "Check where it comes from.")
    if pointer := describe_pointer(head, subject):
        return PathKind("pointer", *pointer)
    if head.startswith(b"GGUF") and head[5:8] == bytes(3):  # a version below 256
        return PathKind("gguf", f"{subject} is a GGUF file{_precision_of_gguf(head)}.", _FROM_GGUF)
    if head.startswith(b"GGUF") and head[4:7] == bytes(3) != head[4:8]:
        return PathKind("binary", f"{subject} is a big-endian GGUF file.", _LITTLE_ENDIAN)
    if head[8:10] == b'{"' and 2 < int.from_bytes(head[:8], "little") < 1 << 27:
        return PathKind("safetensors", f"{subject} is a safetensors file.", "Give the folder of its model or adapter.")
    if encoding := _wide_encoding(head):
        return PathKind("utf-16", f"{subject} is {encoding[:6]}, not UTF-8.", _AS_UTF8.format(encoding))
    return _by_magic(head, subject)


def _by_magic(head: bytes, subject: str) -> PathKind:
    if head.startswith(b"PK\x03\x04"):
        name = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("utf-8", "replace")
        for pattern, kind, what, remedy in _ZIPS:
            if pattern.fullmatch(name):
                return PathKind(kind, f"{subject} is {what}, not text.", remedy)
    for magic, kind, what, remedy in _MAGIC:
        if head.startswith(magic):
            return PathKind(kind, f"{subject} is {what}, not text.", remedy)
    if head[257:262] == b"ustar":
        return PathKind("archive", f"{subject} is a tar archive, not text.", _UNPACK)
    return PathKind("text", f"{subject} is text.", "Import it as a corpus.")


def _describe_folder(path: Path, subject: str, names: list[str]) -> PathKind:
    has = set(names)
    if pointer := next(_pointers(path, subject, names), None):
        return pointer
    weights = [name for name in names if name.endswith(".safetensors")]
    if "adapter_config.json" in has:
        return PathKind("adapter", f"{subject} holds an adapter for a model.", "Import it as an expert of its model.")
    ggufs = [name for name in names if name.lower().endswith(".gguf") and _is_inside(path, name)]
    if ggufs and not weights:
        return describe_path(path / ggufs[0], f"{subject}{os.sep}{ggufs[0]}")
    if "config.json" in has and (weights or "model.safetensors.index.json" in has):
        return PathKind("model", f"{subject} holds a model.", "Add it as a seed model, or import it as an expert.")
    pickles = [name for name in names if name.endswith(_PICKLES) and not _STATES.fullmatch(name)]
    if pickles and "config.json" in has:
        what = f"{subject} holds its weights only as {short(pickles[0])}, a pickle."
        return PathKind("pickle", what, _PICKLE + _AS_SAFETENSORS)
    return _describe_data_or_states(path, subject, names) or PathKind("folder", f"{subject} is a folder.")


def _describe_data_or_states(path: Path, subject: str, names: list[str]) -> PathKind | None:
    """The checkpoints of a training, or a data set."""
    steps = {int(match[1]): name for name in names if (match := _CHECKPOINT.fullmatch(name))}
    if steps and (path / steps[max(steps)] / "config.json").exists():
        newest = steps[max(steps)]
        what = f"{subject} holds {len(steps)} checkpoint{'s' if len(steps) > 1 else ''} of a training, not a model."
        return PathKind("checkpoint", what, f"Give one of them, such as {subject}{os.sep}{newest}.")
    if any(map(_STATES.fullmatch, names)):
        what = f"{subject} holds the state of a training, not a model in safetensors format."
        return PathKind("checkpoint", what, "Save its model by save_pretrained(folder), and give that folder.")
    if "dataset_dict.json" in names or {"state.json", "dataset_info.json"} <= set(names):
        remedy = "Write it as parquet: load_from_disk(FOLDER) of the library datasets, then to_parquet(NAME.parquet)."
        return PathKind("saved data set", f"{subject} is a data set as save_to_disk wrote it.", remedy)
    if _is_data_set(path, names):
        return PathKind("data set", f"{subject} is a data set of a hub.", "Import it as a corpus.")
    return None


def _is_data_set(path: Path, names: list[str]) -> bool:
    """Whether the folder has the card, the infos or the files of a hub's data set."""
    if {"dataset_infos.json", "dataset_info.json"} & set(names):
        return True
    card = _head(path / "README.md").decode("utf-8", "replace") if _is_inside(path, "README.md") else ""
    if card.startswith("---") and _CARD_KEYS.search(card.split("\n---", 1)[0]):
        return True
    inner = sorted(os.listdir(path / "data"))[:_MAX_ENTRIES] if (path / "data").is_dir() else []
    return any(map(_SPLIT_FILE.fullmatch, inner))


def _pointers(path: Path, subject: str, names: list[str]) -> Iterator[PathKind]:
    """The files of a model or adapter that are pointers."""
    for name in names:
        if _OF_MODEL.fullmatch(name) and _is_inside(path, name) and (path / name).stat().st_size < HEAD_BYTES:
            described = describe_path(path / name, f"{subject}{os.sep}{name}")
            if described.kind == "pointer":
                yield described


def _head(path: Path) -> bytes:
    """The first bytes of a file; O_NONBLOCK, in case that a pipe has taken its name since it was looked at."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        return file.read(HEAD_BYTES)


def _is_inside(folder: Path, name: str) -> bool:
    """Whether a folder has a file of this name, and no link that leads out of it."""
    try:
        return confined(folder, name) is not None
    except ModelError:
        return False


def _wide_encoding(head: bytes) -> str:
    """UTF-16 or UTF-32 by its mark; by its NUL bytes where nearly every second byte is one, as in Latin letters."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    pairs, of_first, of_second = len(head) // 2, head[0::2].count(0), head[1::2].count(0)
    fewer, more = sorted((of_first, of_second))
    if not (pairs >= 4 and more > 0.7 * pairs > 10 * fewer):
        return ""
    return "UTF-16LE" if of_second == more else "UTF-16BE"


def _precision_of_gguf(head: bytes) -> str:
    """The precision that the file names, if that is among its first fields."""
    key = b"general.file_type" + struct.pack("<I", 4)  # 4: a uint32 follows
    start = head.find(key) + len(key)
    number: Any = struct.unpack_from("<I", head, start)[0] if key in head and start + 4 <= len(head) else None
    name = TYPES_OF_GGUF.get(number)
    if name is None:
        return ""
    return f" ({name})" if name in ("F32", "F16", "BF16") else f" (quantized, {name})"
