from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import CorpusError
from engine.text import blocks
from engine.text.blocks import EvalSample, Tokens, eval_sample, evenly_spaced, pack_domain
from engine.text.corpus import Document
from engine.text.split import read_split, store_documents
from engine.text.split_names import SPLITS
from engine.text.tokenizer import Tokenizer, train_tokenizer

TOKENIZER = train_tokenizer(["some words to learn from, again and again"] * 9, 300)


def packed(texts: list[str], folder: Path, tokenizer: Tokenizer = TOKENIZER) -> Path:
    """The folder of tokens; the documents lie beside it."""
    list(store_documents(map(Document, texts), folder / "documents"))
    list(pack_domain(folder / "documents" / "0", tokenizer, folder / "tokens"))
    return folder / "tokens"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=3, max_size=20, unique=True),
    st.integers(1, 40),
)
def test_blocks_joined_are_the_documents_each_behind_its_bos_token(tmp_path_factory, texts, block_size: int) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    packed(texts, folder)
    for split in SPLITS:
        expected = [
            id
            for row in read_split(folder / "documents" / "0", split)
            for id in [TOKENIZER.bos_id, *TOKENIZER.encode(row["text"])]
        ]
        tokens = Tokens.open(folder / "tokens", split)
        num_blocks = tokens.num_blocks(block_size)
        inputs = [id for i in range(num_blocks) for id in tokens.block(i, block_size)[0]]
        targets = [id for i in range(num_blocks) for id in tokens.block(i, block_size)[1]]
        assert list(tokens.array) == expected
        assert inputs == expected[: num_blocks * block_size]
        assert targets == expected[1 : num_blocks * block_size + 1]
        assert len(expected) - 1 - num_blocks * block_size < block_size


def test_starts_say_where_each_document_begins(tmp_path: Path) -> None:
    tokens = Tokens.open(packed([f"text {i}" for i in range(50)], tmp_path), "train")
    rows = list(read_split(tmp_path / "documents" / "0", "train"))
    assert all(tokens.array[start] == TOKENIZER.bos_id for start in tokens.starts)
    ends = [*tokens.starts[1:], len(tokens)]
    result = [TOKENIZER.decode(tokens.array[start:end]) for start, end in zip(tokens.starts, ends, strict=True)]
    assert result == [row["text"] for row in rows]


def test_blocks_are_int64_and_of_the_requested_size(tmp_path: Path) -> None:
    tokens = Tokens.open(packed([f"words {i} " * 9 for i in range(20)], tmp_path), "train")
    inputs, targets = tokens.block(tokens.num_blocks(16) - 1, 16)
    assert inputs.dtype == targets.dtype == np.int64
    assert inputs.shape == targets.shape == (16,)


def test_a_model_that_needs_its_bos_token_reads_it_first_in_every_block(tmp_path: Path) -> None:
    texts, usual = [f"words {i} " * 9 for i in range(20)], tmp_path / "usual"
    needing = Tokenizer(TOKENIZER._inner, TOKENIZER.bos_id, begins_blocks=True)
    before = Tokens.open(packed(texts, usual), "train")
    tokens = Tokens.open(packed(texts, tmp_path / "needing", needing), "train")
    assert np.array_equal(tokens.array, before.array)
    for i in range(tokens.num_blocks(16)):
        (inputs, targets), (inputs_before, targets_before) = tokens.block(i, 16), before.block(i, 16)
        assert inputs.tolist() == [TOKENIZER.bos_id, *inputs_before[1:]]
        assert np.array_equal(targets, targets_before)  # it is never predicted in place of a token of the text
    assert tokens.first(40).begin_id == TOKENIZER.bos_id
    assert EvalSample.of(tokens, 16).sha256 != EvalSample.of(before, 16).sha256  # scores of both are told apart


def test_the_array_stays_on_disk(tmp_path: Path) -> None:
    assert isinstance(Tokens.open(packed(["a", "b", "c"], tmp_path), "dev").array, np.memmap)


def test_a_block_that_is_not_there_is_an_index_error(tmp_path: Path) -> None:
    tokens = Tokens.open(packed(["a", "b", "c"], tmp_path), "train")
    for i in (-1, tokens.num_blocks(1)):
        with pytest.raises(IndexError):
            tokens.block(i, 1)
    assert tokens.num_blocks(10_000) == 0


def test_the_facts_name_the_tokenizer_and_the_sizes(tmp_path: Path) -> None:
    folder = packed([f"text {i}" for i in range(50)], tmp_path)
    facts = json.loads((folder / "tokens.json").read_text())
    assert (facts["tokenizer_sha256"], facts["vocab_size"], facts["dtype"]) == (
        TOKENIZER.sha256,
        TOKENIZER.vocab_size,
        "uint16",
    )
    assert sum(facts["splits"][split]["documents"] for split in SPLITS) == 50
    assert all(facts["splits"][split]["tokens"] == len(Tokens.open(folder, split)) for split in SPLITS)


def test_packing_in_many_batches_is_packing_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {i} " * 5 for i in range(60)]
    together = packed(texts, tmp_path / "a")
    monkeypatch.setattr(blocks, "BATCH_CHARACTERS", 100)
    in_batches = packed(texts, tmp_path / "b")
    for file in together.iterdir():
        assert file.read_bytes() == (in_batches / file.name).read_bytes()


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    class Large(Tokenizer):
        """An honest stand-in: the ids are small, the claim is large."""

        def __init__(self) -> None:
            super().__init__(TOKENIZER._inner, 0)
            self.vocab_size = 70_000

    folder = packed(["a", "b", "c"], tmp_path, Large())
    assert Tokens.open(folder, "train").array.dtype == np.uint32


def test_progress_counts_documents_to_the_last(tmp_path: Path) -> None:
    list(store_documents((Document(f"text {i}") for i in range(30)), tmp_path))
    events = list(pack_domain(tmp_path / "0", TOKENIZER, tmp_path / "tokens"))
    assert (events[-1].done, events[-1].total, events[-1].unit) == (30, 30, "documents")
    assert all(event.is_first for event in events)


def test_arrays_with_objects_or_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = packed(["a", "b", "c"], tmp_path)
    np.save(folder / "train.npy", np.array([{"run": "code"}], dtype=object), allow_pickle=True)
    np.save(folder / "dev.npy", np.zeros((3, 3), np.uint16))
    (folder / "test.npy").write_bytes((folder / "test.npy").read_bytes()[:-1])
    for split in SPLITS:
        with pytest.raises(CorpusError, match=f"{split}.npy"):
            Tokens.open(folder, split)


DOCUMENT = 50


@pytest.fixture
def split() -> Tokens:
    """20 documents of 50 tokens."""
    return Tokens(np.arange(20 * DOCUMENT, dtype=np.uint16), np.arange(0, 20 * DOCUMENT, DOCUMENT))


def test_a_tenth_of_the_tokens_comes_from_half_of_the_documents(split: Tokens) -> None:
    text = EvalSample.of(split, 10, 100)
    assert text.num_tokens == 100
    assert len(set(text.documents_N.tolist())) == 10
    assert text.documents_N[-1] >= 17


def test_a_split_that_is_not_too_long_is_taken_in_full_to_its_last_token(split: Tokens) -> None:
    text = EvalSample.of(split, 64, 10_000)
    assert text.num_tokens == len(split) - 1
    assert np.concatenate([targets.ravel() for _, targets in text.batches(3)]).tolist() == split.array[1:].tolist()


def test_a_block_predicts_the_tokens_that_follow_its_own(split: Tokens) -> None:
    text = EvalSample.of_blocks(split, 8, 3)
    for n, start in enumerate(text.starts_N):
        inputs, targets = text.block(n)
        assert (inputs.tolist(), targets.tolist()) == (list(range(start, start + 8)), list(range(start + 1, start + 9)))


@given(length=st.integers(0, 300), block_size=st.integers(1, 40), max_tokens=st.integers(1, 400))
def test_blocks_never_overlap_and_all_batches_together_are_the_excerpt(
    length: int, block_size: int, max_tokens: int
) -> None:
    text = EvalSample.of(
        Tokens(np.arange(length, dtype=np.uint16), np.zeros(1, dtype=np.int64)), block_size, max_tokens
    )
    predicted = [token for _, targets in text.batches(4) for token in targets.ravel().tolist()]
    assert len(predicted) == len(set(predicted)) == text.num_tokens
    assert text.num_tokens <= max_tokens
    assert predicted == sorted(predicted)


@given(available=st.integers(0, 200), wanted=st.integers(1, 50))
def test_places_are_as_many_as_wanted_and_evenly_apart(available: int, wanted: int) -> None:
    places = evenly_spaced(available, wanted)
    assert len(places) == min(available, wanted)
    assert len(places) < 2 or np.ptp(np.diff(places)) <= 1


def test_the_hash_differs_for_other_places_and_other_tokens(split: Tokens) -> None:
    changed = eval_sample(np.array([*split.array[:-1], 7]), 10)
    hashes = [EvalSample.of(split, 10, most).sha256 for most in (100, 200)]
    hashes += [eval_sample(split.array, 10).sha256, changed.sha256]
    assert len(set(hashes)) == 4
    assert EvalSample.of(split, 10, 100).sha256 == hashes[0]
