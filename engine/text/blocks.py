"""Domains as flat, memory-mapped arrays of token ids with a BOS token before each document, read in blocks.

Held-out text to evaluate on are blocks spread evenly over a split, so that few tokens still cover many documents: the
first tokens of a split would cover one or two long ones, which do not represent the domain.
Shapes: N blocks, T positions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from engine.errors import CorpusError
from engine.events import Progress
from engine.text.split import count_documents, read_split
from engine.text.split_names import SPLITS
from engine.text.tokenizer import Tokenizer, batches

BATCH_CHARACTERS = 1 << 20  # tokenized together
TOKENIZE_AGAIN = "Tokenize the domain again."
MASK_RULE = 2  # by which conversations are masked and sampled; trainings that began under rule 1 keep it
_BEGINS = "bos_begins_blocks"  # in tokens.json
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
            GrowingArray(part_file(folder, split, "starts"), np.dtype("<i8")) as starts,
        ):
            for texts in batches((row["text"] for row in read_split(documents_folder, split)), len, BATCH_CHARACTERS):
                for ids in tokenizer.encode_many(texts):
                    starts.extend([len(tokens)])
                    tokens.extend([tokenizer.bos_id, *ids])
                done += len(texts)
                yield Progress(done, total, "documents", split, is_first=True)
            splits[split] = {"documents": len(starts), "tokens": len(tokens)}
    write_facts(folder, tokenizer, {"splits": splits, **({_BEGINS: True} if tokenizer.begins_blocks else {})})


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


@dataclass(frozen=True, eq=False)
class Tokens:
    """A split as one flat array of token ids: each document follows its BOS token.

    Conversations lie in blocks of the size that they were packed for, and `marks` has the mark of each token: only
    what counts is in the loss and in perplexities. Of a text without marks all tokens count.
    """

    array: NDArray[Any]
    starts: NDArray[np.int64]  # the position of each document's first token
    marks: NDArray[np.uint8] | None = None
    documents: NDArray[np.int32] | None = None  # the index of each of these documents in its split; None: in order
    mask_rule: int | None = None  # by which conversations were masked and packed; None: not packed by a rule
    begin_id: int | None = None  # read in place of each block's first token, by models that need it; never a target

    @classmethod
    def open(cls, folder: Path, split: str) -> Tokens:
        """The tokens of a split, memory-mapped; raises CorpusError when they are missing or damaged."""
        array = _open(folder / f"{split}.npy", ("uint16", "uint32"))
        starts = _open(part_file(folder, split, "starts"), ("int64",))
        has_marks, path = part_file(folder, split, "marks").exists(), folder / "tokens.json"
        try:  # arrays of a caller's own need no facts
            facts = json.loads(path.read_text(encoding="utf-8")) if has_marks or path.exists() else {}
            begin_id = int(facts["bos_id"]) if facts.get(_BEGINS) else None
            rule = int(facts.get("mask_rule", 1))  # earlier versions, which masked by rule 1, did not write it
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"The facts about the tokens cannot be read ({error})."
            raise CorpusError(problem, TOKENIZE_AGAIN, path=folder) from None
        if not has_marks:
            return cls(array, starts, begin_id=begin_id)
        marks = _open(part_file(folder, split, "marks"), ("uint8",))
        documents = _open(part_file(folder, split, "documents"), ("int32",))
        return cls(array, starts, marks, documents, rule, begin_id)

    def __len__(self) -> int:
        return len(self.array)

    def first(self, num_tokens: int) -> Tokens:
        """The first tokens of the split."""
        marks = None if self.marks is None else self.marks[:num_tokens]
        return replace(self, array=self.array[:num_tokens], marks=marks)

    def num_blocks(self, block_size: int) -> int:
        """The number of full blocks; the last token of the array is only a target."""
        return max(len(self.array) - 1, 0) // block_size

    def block(self, i: int, block_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets [T] of block i: targets are shifted by one token."""
        if not 0 <= i < self.num_blocks(block_size):
            raise IndexError(f"block {i} of {self.num_blocks(block_size)}")
        return self.window(i * block_size, block_size)

    def window(self, start: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets [T] from a position on; at the end of the split fewer than `size`."""
        window = np.array(self.array[start : start + size + 1], dtype=np.int64)
        if self.begin_id is not None:
            window[:1] = self.begin_id
        return window[:-1], window[1:]

    def blocks_with_answers(self, block_size: int) -> Sequence[int] | NDArray[np.int64]:
        """The indices of the full blocks with a target that counts; of a text all."""
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


def part_file(folder: Path, split: str, part: str) -> Path:
    """Where a split's `starts` are (the positions of its documents), the `marks` of its tokens, or its `documents`.

    Marks are missing where all tokens count; the indices of documents where these lie in their own order.
    """
    return folder / f"{split}.{part}.npy"


def _open(path: Path, dtypes: tuple[str, ...]) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CorpusError(f"The file is not an array of tokens ({error}).", TOKENIZE_AGAIN, path=path) from None
    if array.ndim != 1 or array.dtype.name not in dtypes:
        shape = f"{array.dtype.name} of shape {array.shape}"
        raise CorpusError(f"Expected a flat array of {' or '.join(dtypes)}, got {shape}.", TOKENIZE_AGAIN, path=path)
    return array


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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
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


Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EvalSample:
    """Blocks of a split: block n starts at `starts_N[n]` and predicts the next token at each of its T positions.

    Blocks do not overlap and are independent; only the last may be shorter, at the end of the split.
    """

    tokens: Tokens
    block_size: int
    starts_N: NDArray[np.int64]

    @classmethod
    def of(cls, tokens: Tokens, block_size: int, max_tokens: int | None = None) -> EvalSample:
        """The full split, or as many full blocks as `max_tokens` allows, evenly spaced; at least part of the first."""
        total = max(len(tokens) - 1, 0)
        if max_tokens is None or total <= max_tokens:
            return cls(tokens, block_size, np.arange(0, total, block_size))
        if max_tokens < block_size:
            return cls.of(tokens.first(max_tokens + 1), block_size)
        return cls.of_blocks(tokens, block_size, max_tokens // block_size)

    @classmethod
    def of_blocks(cls, tokens: Tokens, block_size: int, num_blocks: int) -> EvalSample:
        """At most `num_blocks` full blocks, evenly spaced."""
        return cls(tokens, block_size, evenly_spaced(tokens.num_blocks(block_size), num_blocks) * block_size)

    @property
    def num_tokens(self) -> int:
        """The number of predicted tokens."""
        if not len(self.starts_N):
            return 0
        last = min(self.block_size, len(self.tokens) - 1 - int(self.starts_N[-1]))
        return (len(self.starts_N) - 1) * self.block_size + last

    @property
    def documents_N(self) -> NDArray[np.int32]:
        """The index, within the split, of the document in which each block begins."""
        documents_N = np.searchsorted(self.tokens.starts, self.starts_N, side="right") - 1
        order = self.tokens.documents
        return (documents_N if order is None else order[documents_N]).astype(np.int32)

    @property
    def marks_X(self) -> NDArray[np.uint8] | None:
        """The mark of every predicted token, in order; None when all count."""
        marks = self.tokens.marks
        if marks is None:
            return None
        stops_N = self.starts_N + self.block_size + 1
        pieces = zip(self.starts_N.tolist(), stops_N.tolist(), strict=True)
        return np.concatenate([np.zeros(0, np.uint8), *(marks[start + 1 : stop] for start, stop in pieces)])

    @property
    def sha256(self) -> str:
        """The hash of the sampled positions and tokens, and of the marks of conversations."""
        digest = hashlib.sha256(self.starts_N.astype("<i8").tobytes())
        for inputs, targets in self.batches(64):
            digest.update(inputs.astype("<i8").tobytes() + targets.astype("<i8").tobytes())
        if (marks_X := self.marks_X) is not None:
            digest.update(marks_X.tobytes())
        return digest.hexdigest()

    def block(self, n: int) -> tuple[Ids, Ids]:
        """Inputs and targets [T] of a block: targets are shifted by one token."""
        return self.tokens.window(int(self.starts_N[n]), self.block_size)

    def batches(self, size: int) -> Iterator[tuple[Ids, Ids]]:
        """Inputs and targets [N, T] of at most `size` blocks of equal length, in order."""
        num_full = self.num_tokens // self.block_size
        for first in range(0, num_full, size):
            pairs = np.stack([np.stack(self.block(n)) for n in range(first, min(first + size, num_full))])
            yield pairs[:, 0], pairs[:, 1]
        if num_full < len(self.starts_N):
            inputs, targets = self.block(num_full)
            yield inputs[None], targets[None]


def eval_sample(ids: NDArray[np.integer], block_size: int) -> EvalSample:
    """A sample that is one full text."""
    return EvalSample.of(Tokens(ids, np.zeros(1, dtype=np.int64)), block_size)


def evenly_spaced(available: int, wanted: int) -> NDArray[np.int64]:
    """`wanted` of `available` positions, evenly spaced from the first on; all of them, if they are fewer."""
    count = min(available, wanted)
    return np.arange(count, dtype=np.int64) * available // max(count, 1)
