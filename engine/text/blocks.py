"""Domains as flat, memory-mapped arrays of token ids with a BOS token before each document, read in blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from engine.errors import CorpusError
from engine.events import Progress
from engine.text.split import SPLITS, count_documents, read_split
from engine.text.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 20  # tokenized together
TOKENIZE_AGAIN = "Tokenize the domain again."


def pack_domain(documents_folder: Path, tokenizer: Tokenizer, folder: Path) -> Iterator[Progress]:
    """Writes {split}.npy and {split}.starts.npy for each split and tokens.json; yields progress in documents."""
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(count_documents(documents_folder, split) for split in SPLITS)
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    splits: dict[str, dict[str, int]] = {}
    done = 0
    for split in SPLITS:
        with (
            _Growing(folder / f"{split}.npy", dtype) as tokens,
            _Growing(_starts(folder, split), np.dtype("<i8")) as starts,
        ):
            for texts in _batches(documents_folder, split):
                _pack(texts, tokenizer, tokens, starts)
                done += len(texts)
                yield Progress(done, total, "documents", split, is_first=True)
            splits[split] = {"documents": len(starts), "tokens": len(tokens)}
    facts = {
        "tokenizer_sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "bos_id": tokenizer.bos_id,
        "dtype": dtype.name,
        "splits": splits,
    }
    (folder / "tokens.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


class Tokens:
    """A split as one flat array of token ids: each document follows its BOS token."""

    def __init__(self, array: NDArray[Any], starts: NDArray[np.int64]) -> None:
        self.array = array
        self.starts = starts  # the position of each document's BOS token

    @classmethod
    def open(cls, folder: Path, split: str) -> Tokens:
        """The tokens of a split, memory-mapped; raises CorpusError when they are missing or damaged."""
        array = _open(folder / f"{split}.npy", ("uint16", "uint32"))
        return cls(array, _open(_starts(folder, split), ("int64",)))

    def __len__(self) -> int:
        return len(self.array)

    def num_blocks(self, block_size: int) -> int:
        """The number of full blocks; the last token of the array is only a target."""
        return max(len(self.array) - 1, 0) // block_size

    def block(self, i: int, block_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets [T] of block i: targets are shifted by one token."""
        if not 0 <= i < self.num_blocks(block_size):
            raise IndexError(f"block {i} of {self.num_blocks(block_size)}")
        window = np.asarray(self.array[i * block_size : (i + 1) * block_size + 1], dtype=np.int64)
        return window[:-1], window[1:]


def _starts(folder: Path, split: str) -> Path:
    return folder / f"{split}.starts.npy"


def _open(path: Path, dtypes: tuple[str, ...]) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CorpusError(f"The file is not an array of tokens ({error}).", TOKENIZE_AGAIN, path=path) from None
    if array.ndim != 1 or array.dtype.name not in dtypes:
        shape = f"{array.dtype.name} of shape {array.shape}"
        raise CorpusError(f"Expected a flat array of {' or '.join(dtypes)}, got {shape}.", TOKENIZE_AGAIN, path=path)
    return array


def _batches(documents_folder: Path, split: str) -> Iterator[list[str]]:
    """Texts in order, together at least `BATCH_CHARACTERS` long (except the last batch)."""
    texts: list[str] = []
    size = 0
    for row in read_split(documents_folder, split):
        texts.append(row["text"])
        size += len(row["text"])
        if size >= BATCH_CHARACTERS:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def _pack(texts: list[str], tokenizer: Tokenizer, tokens: _Growing, starts: _Growing) -> None:
    for ids in tokenizer.encode_many(texts):
        starts.extend([len(tokens)])
        tokens.extend([tokenizer.bos_id, *ids])


class _Growing:
    """A flat .npy file written by appending; closing it corrects the header."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._file = path.open("wb")
        self._dtype = dtype
        self._length = 0
        self._write_header()  # leaves room for any length: numpy pads for the axis to grow

    def __len__(self) -> int:
        return self._length

    def __enter__(self) -> _Growing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._file.seek(0)
                self._write_header()
        finally:
            self._file.close()

    def extend(self, values: list[int]) -> None:
        """Appends values."""
        self._file.write(np.asarray(values, dtype=self._dtype).tobytes())
        self._length += len(values)

    def _write_header(self) -> None:
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._length,)}
        npy.write_array_header_1_0(self._file, header)
