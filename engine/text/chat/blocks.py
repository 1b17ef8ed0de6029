"""Packs conversations into blocks: each lies in one block where it fits, and only its answers count.

Best-fit decreasing, as in `packing_strategy="bfd"` of TRL: the longest first, each into the fullest block that has
space for it; the rest of a block is padding. A conversation longer than a block is cut: its pieces lie in consecutive
blocks, so that every token but its first is predicted.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ChatTemplateError, CorpusError
from engine.events import Progress
from engine.text.blocks import (
    CONTEXT,
    COUNTED,
    MASK_RULE,
    PADDING,
    GrowingArray,
    Tokens,
    ids_dtype,
    part_file,
    write_facts,
)
from engine.text.chat.conversations import Conversation, stored_conversation
from engine.text.split import count_documents, read_split
from engine.text.split_names import SPLITS, Split
from engine.text.tokenizer import Tokenizer

REPORT_EVERY = 256  # conversations
MOST_REFUSED, SHOWN_REFUSED = 100, 5  # conversations that a template may refuse before the others are left unread


class ConversationPiece(NamedTuple):
    """Tokens `first` to `stop` of a conversation."""

    number: int
    first: int
    stop: int


@dataclass(frozen=True)
class ChatEncoder:
    """A tokenizer with a seed's template: `encode` gives a conversation's ids, and a mask [T] of answers.

    `limits` gives sentences on what the template cannot teach.
    """

    tokenizer: Tokenizer
    template_sha256: str
    encode: Callable[[Conversation], tuple[list[int], NDArray[np.bool_]]]
    mask_rule: int = MASK_RULE
    limits: Callable[[], Sequence[str]] = tuple


def pack_conversations(
    documents_folder: Path, encoder: ChatEncoder, folder: Path, block_size: int
) -> Iterator[Progress]:
    """Writes the files of `pack_domain` for blocks of this size, and for each split marks and order of conversations.

    `tokens.json` counts for each split the conversations, those cut, the tokens and those that count, the blocks and
    those without an answer. Yields progress in documents. Raises CorpusError when the template cannot write a
    conversation, shows no answer of it, or does not show where the answers are; it counts all of these.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(count_documents(documents_folder, split) for split in SPLITS)
    splits: dict[str, dict[str, int]] = {}
    refused: list[CorpusError] = []
    done = 0
    for split in SPLITS:
        encoded = folder / f"{split}.encoded"
        encoded.mkdir()
        for number in _encode(documents_folder, split, encoder, encoded, refused):
            yield Progress(done + number, total, "documents", split, is_first=True)
        if not refused:
            splits[split] = _arrange(encoded, encoder.tokenizer, folder, split, block_size)
        done += count_documents(documents_folder, split)
        shutil.rmtree(encoded)
    if refused:
        raise _all_refused(refused, total)
    facts = {
        "template_sha256": encoder.template_sha256,
        "mask_rule": encoder.mask_rule,
        "block_size": block_size,
        "splits": splits,
        "limits": list(encoder.limits()),
    }
    write_facts(folder, encoder.tokenizer, facts)


def layout(lengths: Sequence[int], block_size: int) -> list[list[ConversationPiece]]:
    """The pieces of each block, given the number of tokens of each conversation."""
    blocks: list[list[ConversationPiece]] = []
    by_space: defaultdict[int, list[int]] = defaultdict(list)  # blocks by their free space
    spaces = 0  # bit n is set while a block has n free

    def place(block: int, piece: ConversationPiece, space: int) -> None:
        nonlocal spaces
        blocks[block].append(piece)
        left = space - (piece.stop - piece.first)
        by_space[left].append(block)
        spaces |= 1 << left

    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[number]
        if wide := spaces >> length if length <= block_size else 0:
            space = length + (wide & -wide).bit_length() - 1  # the least that is enough
            block = by_space[space].pop()
            spaces &= ~(0 if by_space[space] else 1 << space)
            place(block, ConversationPiece(number, 0, length), space)
            continue
        for first in range(0, length, block_size):
            blocks.append([])
            place(len(blocks) - 1, ConversationPiece(number, first, min(first + block_size, length)), block_size)
    return blocks


def _encode(
    documents_folder: Path, split: Split, encoder: ChatEncoder, folder: Path, refused: list[CorpusError]
) -> Iterator[int]:
    """Writes the tokens and marks of all conversations of a split in order; yields how many are done.

    Adds to `refused` those that cannot be used.
    """
    with (
        GrowingArray(folder / "ids.npy", ids_dtype(encoder.tokenizer)) as ids,
        GrowingArray(folder / "marks.npy", np.dtype("u1")) as marks,
        GrowingArray(folder / "ends.npy", np.dtype("<i8")) as ends,
    ):
        for number, row in enumerate(read_split(documents_folder, split), 1):
            problem = "The template of the seed model shows no answer of a conversation."
            remedy = "Choose another seed model, or remove the conversation."
            is_counted = np.zeros(0, dtype=np.bool_)
            try:
                new_ids, is_counted = encoder.encode(stored_conversation(row["messages"]))
                is_counted[:1] = False  # nothing predicts the first token
            except ChatTemplateError as error:
                problem, remedy = error.problem, error.next_step
            if not is_counted.any():
                refused.append(CorpusError(problem, remedy, path=row["source"]))
                if len(refused) >= MOST_REFUSED:
                    return
                continue
            ids.extend(new_ids)
            marks.extend(np.where(is_counted, COUNTED, CONTEXT))
            ends.extend([len(ids)])
            if number % REPORT_EVERY == 0:
                yield number


def _all_refused(refused: Sequence[CorpusError], total: int) -> CorpusError:
    """One error for all conversations that cannot be used: their number, and the first one's place and problem."""
    first = refused[0]
    least = "At least " * (len(refused) >= MOST_REFUSED)
    others = ", ".join(str(one.path) for one in refused[1:SHOWN_REFUSED])
    more = f" Others: {others}{', …' * (len(refused) > SHOWN_REFUSED)}." if others else ""
    return CorpusError(
        f"{least}{len(refused)} of {total} conversations cannot be shown by this seed model. {first.cause}{more}",
        first.next_step,
    )


def _arrange(encoded: Path, tokenizer: Tokenizer, folder: Path, split: str, block_size: int) -> dict[str, int]:
    """Writes the tokens block by block, and one token more: what comes after the last block. Returns the counts."""
    ids, marks, ends = (np.load(encoded / f"{name}.npy", mmap_mode="r") for name in ("ids", "marks", "ends"))
    lengths = np.diff(ends, prepend=0)
    blocks = layout(lengths.tolist(), block_size)
    padding = tokenizer.bos_id
    with (
        GrowingArray(folder / f"{split}.npy", ids_dtype(tokenizer)) as packed,
        GrowingArray(part_file(folder, split, "marks"), np.dtype("u1")) as packed_marks,
        GrowingArray(part_file(folder, split, "starts"), np.dtype("<i8")) as starts,
        GrowingArray(part_file(folder, split, "documents"), np.dtype("<i4")) as documents,
    ):
        for number, block in enumerate(blocks, 1):
            for piece in block:
                if piece.first == 0:
                    starts.extend([len(packed)])
                    documents.extend([piece.number])
                begin = int(ends[piece.number] - lengths[piece.number])
                these = slice(begin + piece.first, begin + piece.stop)
                packed.extend(ids[these])
                packed_marks.extend(marks[these])
            missing = number * block_size - len(packed)
            packed.extend([padding] * missing)
            packed_marks.extend([PADDING] * missing)
        packed.extend([padding])
        packed_marks.extend([PADDING])
    written = np.load(part_file(folder, split, "marks"), mmap_mode="r")
    learnable = Tokens(written, np.zeros(0, np.int64), written).blocks_with_answers(block_size)
    return {
        "documents": len(ends),
        "tokens": len(ids),
        "counted": int(np.count_nonzero(marks == COUNTED)),
        "cut": int(np.count_nonzero(lengths > block_size)),
        "blocks": len(blocks),
        "blocks_without_answer": len(blocks) - len(learnable),
    }
