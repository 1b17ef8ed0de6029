"""Conversations in blocks: every one is there, is whole where it fits, and only its answers count."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.errors import CorpusError
from engine.text.blocks import CONTEXT, COUNTED, PADDING, EvalSample, Tokens
from engine.text.chat.blocks import ChatEncoder, layout, pack_conversations
from engine.text.chat.conversations import Message, as_stored, as_text
from engine.text.corpus import Document
from engine.text.split import read_split, store_documents
from engine.text.tokenizer import Tokenizer

BLOCK = 16


@given(st.lists(st.integers(1, 70), min_size=1, max_size=60), st.integers(4, 24))
def test_every_conversation_lies_in_one_block_where_it_fits(lengths: list[int], block_size: int) -> None:
    blocks = layout(lengths, block_size)
    pieces: dict[int, list[tuple[int, int, int]]] = {}
    for block, some in enumerate(blocks):
        assert 0 < sum(piece.stop - piece.first for piece in some) <= block_size
        for piece in some:
            pieces.setdefault(piece.number, []).append((block, piece.first, piece.stop))
    for number, length in enumerate(lengths):
        places = pieces[number]
        assert [first for _, first, _ in places] == list(range(0, length, block_size))  # one, where it fits
        assert [stop for _, _, stop in places] == [*(first for _, first, _ in places[1:]), length]
        assert [block for block, _, _ in places] == list(range(places[0][0], places[0][0] + len(places)))
        assert all(blocks[block][0].number == number for block, _, _ in places[1:])  # the next token is predicted


@given(st.lists(st.integers(1, 12), min_size=1, max_size=60))
def test_blocks_are_filled(lengths: list[int]) -> None:
    used = [sum(piece.stop - piece.first for piece in block) for block in layout(lengths, 12)]
    assert sum(size <= 6 for size in used) <= 1  # two that are at most half full would be one


def shown(messages: list[Message]) -> tuple[list[int], NDArray[np.bool_]]:
    """A template of one token per letter: the role's first letter and the content; an answer ends with a full stop."""
    ids: list[int] = []
    is_answer: list[bool] = []
    for message in messages:
        answers = message["role"] == "assistant"
        letters = message["content"] + "." * answers
        ids += [ord(letter) for letter in message["role"][0] + letters]
        is_answer += [False, *[answers] * len(letters)]
    return ids, np.array(is_answer)


def chat(question: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


CHATS = [chat("?" * (n % 5 + 1), chr(ord("a") + n) * (n % 7 + 1)) for n in range(26)] + [chat("long", "xyz" * 20)]


def packed(tmp_path: Path, tokenizer: Tokenizer, chats: list[list[Message]] = CHATS, encode=shown) -> Path:
    (tmp_path / "stored").mkdir()
    documents = (Document(as_text(one), None, str(n), "", as_stored(one)) for n, one in enumerate(chats))
    for _ in store_documents(documents, tmp_path / "stored"):
        pass
    for _ in pack_conversations(
        tmp_path / "stored" / "0", ChatEncoder(tokenizer, "t", lambda one: encode(one.messages)), tmp_path / "p", BLOCK
    ):
        pass
    return tmp_path / "p"


def test_a_packed_split_holds_every_token_of_its_conversations_with_its_mark(tmp_path: Path, tokenizer) -> None:
    folder = packed(tmp_path, tokenizer)
    tokens = Tokens.open(folder, "train")
    rows = list(read_split(tmp_path / "stored" / "0", "train"))
    assert sorted(tokens.documents.tolist()) == list(range(len(rows)))
    assert (len(tokens) - 1) % BLOCK == 0
    is_text = tokens.marks != PADDING
    expected: Counter[int] = Counter()
    for start, number in zip(tokens.starts.tolist(), tokens.documents.tolist(), strict=True):
        ids, is_answer = shown(json.loads(rows[number]["messages"]))
        expected.update(ids)
        assert tokens.array[start : start + len(ids)].tolist() == ids
        marks = [COUNTED if one else CONTEXT for one in is_answer]
        assert tokens.marks[start : start + len(ids)].tolist() == marks
    assert Counter(tokens.array[is_text].tolist()) == expected
    assert set(tokens.array[~is_text].tolist()) <= {tokenizer.bos_id}


def test_the_counts_say_how_many_conversations_were_cut(tmp_path: Path, tokenizer) -> None:
    facts = json.loads((packed(tmp_path, tokenizer) / "tokens.json").read_text(encoding="utf-8"))
    assert sum(counts["documents"] for counts in facts["splits"].values()) == len(CHATS)
    assert sum(counts["cut"] for counts in facts["splits"].values()) == 1
    assert sum(counts["counted"] for counts in facts["splits"].values()) == sum(sum(shown(one)[1]) for one in CHATS)


def test_what_counts_in_a_block_are_the_targets_of_answers(tmp_path: Path, tokenizer) -> None:
    tokens = Tokens.open(packed(tmp_path, tokenizer), "train")
    read = ""
    for block in range(tokens.num_blocks(BLOCK)):
        _, targets = tokens.block(block, BLOCK)
        read += "".join(map(chr, targets[tokens.counted(block, BLOCK)]))
    assert Counter(read) == Counter("".join(chr(i) for i in tokens.array[tokens.marks == COUNTED]))


def test_an_evaluation_knows_marks_and_documents(tmp_path: Path, tokenizer) -> None:
    tokens = Tokens.open(packed(tmp_path, tokenizer), "train")
    text = EvalSample.of_blocks(tokens, BLOCK, 3)
    assert text.marks_X.tolist() == np.concatenate([tokens.marks[s + 1 : s + 17] for s in text.starts_N]).tolist()
    first = [max(i for i, start in enumerate(tokens.starts) if start <= at) for at in text.starts_N]
    assert text.documents_N.tolist() == [tokens.documents[i] for i in first]
    same = Tokens(tokens.array, tokens.starts, np.asarray(tokens.marks)[::-1].copy(), tokens.documents)
    assert EvalSample.of_blocks(same, BLOCK, 3).sha256 != text.sha256


def test_a_template_that_shows_no_answer_is_refused(tmp_path: Path, tokenizer) -> None:
    with pytest.raises(CorpusError, match="no answer"):
        packed(tmp_path, tokenizer, encode=lambda messages: (shown(messages)[0], shown(messages)[1] & False))
