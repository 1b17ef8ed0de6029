"""Domains as flat, memory-mapped arrays of token ids with a BOS token before each document, read in blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from engine.errors import CorpusError
from engine.events import Progress
from engine.text.split import count_documents, read_split
from engine.text.split_names import SPLITS, Split
from engine.text.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 20  # tokenized together
TOKENIZE_AGAIN = "Tokenize the domain again."
MASK_RULE = 2  # by which conversations are masked and sampled; trainings that began under rule 1 keep it
PADDING, CONTEXT, COUNTED = 0, 1, 2  # marks: fills a block; is read, but is not in the loss; is in the loss


def pack_domain(documents_folder: Path, tokenizer: Tokenizer, folder: Path) -> Iterator[Progress]:
    """Writes {split}.npy and {split}.starts.npy for each split and tokens.json; yields progress in documents."""
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(count_documents(documents_folder, split) for split in SPLITS)
    dtype = ids_dtype(tokenizer)
    splits: dict[str, dict[str, int]] = {}
    done = 0
    for split in SPLITS:
        with (
            GrowingArray(folder / f"{split}.npy", dtype) as tokens,
            GrowingArray(starts_file(folder, split), np.dtype("<i8")) as starts,
        ):
            for texts in _batches(documents_folder, split):
                _pack(texts, tokenizer, tokens, starts)
                done += len(texts)
                yield Progress(done, total, "documents", split, is_first=True)
            splits[split] = {"documents": len(starts), "tokens": len(tokens)}
    write_facts(folder, tokenizer, {"splits": splits})


def ids_dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The smallest type of numbers that holds every id."""
    return np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")


def write_facts(folder: Path, tokenizer: Tokenizer, facts: Mapping[str, Any]) -> None:
    """Writes tokens.json."""
    common = {
        "tokenizer_sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "bos_id": tokenizer.bos_id,
        "dtype": ids_dtype(tokenizer).name,
    }
    (folder / "tokens.json").write_text(json.dumps(common | dict(facts), indent=1), encoding="utf-8")


class Tokens:
    """A split as one flat array of token ids: each document follows its BOS token.

    Conversations lie in blocks of the size that they were packed for, and `marks` has the mark of each token: only
    what counts is in the loss and in perplexities. Of a text without marks all tokens count.
    """

    def __init__(
        self,
        array: NDArray[Any],
        starts: NDArray[np.int64],
        marks: NDArray[np.uint8] | None = None,
        documents: NDArray[np.int32] | None = None,
        mask_rule: int | None = None,
    ) -> None:
        self.array = array
        self.starts = starts  # the position of each document's first token
        self.marks = marks
        self.documents = documents  # the index of each of these documents in its split; None: in order
        self.mask_rule = mask_rule  # by which conversations were masked and packed; None: not packed by a rule

    @classmethod
    def open(cls, folder: Path, split: str) -> Tokens:
        """The tokens of a split, memory-mapped; raises CorpusError when they are missing or damaged."""
        array = _open(folder / f"{split}.npy", ("uint16", "uint32"))
        starts = _open(starts_file(folder, split), ("int64",))
        if not marks_file(folder, split).exists():
            return cls(array, starts)
        marks = _open(marks_file(folder, split), ("uint8",))
        return cls(array, starts, marks, _open(documents_file(folder, split), ("int32",)), mask_rule_of(folder))

    def __len__(self) -> int:
        return len(self.array)

    def first(self, num_tokens: int) -> Tokens:
        """The first tokens of the split."""
        marks = None if self.marks is None else self.marks[:num_tokens]
        return Tokens(self.array[:num_tokens], self.starts, marks, self.documents, self.mask_rule)

    def num_blocks(self, block_size: int) -> int:
        """The number of full blocks; the last token of the array is only a target."""
        return max(len(self.array) - 1, 0) // block_size

    def block(self, i: int, block_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets [T] of block i: targets are shifted by one token."""
        if not 0 <= i < self.num_blocks(block_size):
            raise IndexError(f"block {i} of {self.num_blocks(block_size)}")
        window = np.asarray(self.array[i * block_size : (i + 1) * block_size + 1], dtype=np.int64)
        return window[:-1], window[1:]

    def blocks_with_answers(self, block_size: int) -> Sequence[int] | NDArray[np.int64]:
        """The indices of the full blocks of which a target counts; of a text all."""
        num_blocks = self.num_blocks(block_size)
        if self.marks is None:
            return range(num_blocks)
        is_counted = self.marks[1 : num_blocks * block_size + 1].reshape(num_blocks, block_size) == COUNTED
        return np.flatnonzero(is_counted.any(axis=1))

    def sampled_blocks(self, block_size: int) -> Sequence[int] | NDArray[np.int64]:
        """The indices of the full blocks that trainings and evaluations draw from: since rule 2 those with answers."""
        is_filtered = self.mask_rule is not None and self.mask_rule >= 2
        return self.blocks_with_answers(block_size) if is_filtered else range(self.num_blocks(block_size))

    def positions(self, i: int, block_size: int) -> NDArray[np.int64]:
        """The position [T] of each token of block i in its conversation, or its piece of one; in a text, in the block.

        What fills the block has positions of its own.
        """
        positions_T = np.arange(block_size)
        if self.marks is None:
            return positions_T
        first, stop = i * block_size, (i + 1) * block_size
        starts = self.starts[slice(*np.searchsorted(self.starts, (first, stop)))] - first
        filler = np.flatnonzero(self.marks[first:stop] == PADDING)[:1]
        latest_T = np.zeros_like(positions_T)  # where the conversation of each token starts
        for begin in (starts, filler):
            latest_T[begin] = begin
        return positions_T - np.maximum.accumulate(latest_T)

    def counted(self, i: int, block_size: int) -> NDArray[np.bool_]:
        """A mask of the targets [T] of block i that count in the loss."""
        if self.marks is None:
            return np.ones(block_size, dtype=np.bool_)
        return np.asarray(self.marks[i * block_size + 1 : (i + 1) * block_size + 1] == COUNTED)


def marks_file(folder: Path, split: str) -> Path:
    """The marks of a split's tokens; missing where all count."""
    return folder / f"{split}.marks.npy"


def mask_rule_of(folder: Path) -> int:
    """The rule by which a folder's conversations were masked; 1 of earlier versions, which did not write it."""
    try:
        return int(json.loads((folder / "tokens.json").read_text(encoding="utf-8")).get("mask_rule", 1))
    except (OSError, ValueError, AttributeError) as error:
        raise CorpusError(
            f"The facts about the tokens cannot be read ({error}).", TOKENIZE_AGAIN, path=folder
        ) from None


def documents_file(folder: Path, split: str) -> Path:
    """The indices of a split's documents in the order of their tokens; missing where that is their own."""
    return folder / f"{split}.documents.npy"


def starts_file(folder: Path, split: str) -> Path:
    """The position of each document's first token."""
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


def _batches(documents_folder: Path, split: Split) -> Iterator[list[str]]:
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


def _pack(texts: list[str], tokenizer: Tokenizer, tokens: GrowingArray, starts: GrowingArray) -> None:
    for ids in tokenizer.encode_many(texts):
        starts.extend([len(tokens)])
        tokens.extend([tokenizer.bos_id, *ids])


class GrowingArray:
    """A flat .npy file written by appending; closing it corrects the header."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._file = path.open("wb")
        self._dtype = dtype
        self._length = 0
        self._write_header()  # leaves room for any length: numpy pads for the axis to grow

    def __len__(self) -> int:
        return self._length

    def __enter__(self) -> GrowingArray:
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

    def extend(self, values: Sequence[int] | NDArray[Any]) -> None:
        """Appends values."""
        self._file.write(np.asarray(values, dtype=self._dtype).tobytes())
        self._length += len(values)

    def _write_header(self) -> None:
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._length,)}
        npy.write_array_header_1_0(self._file, header)
