"""What comes token by token is what decoding all at once would add, wherever the prompt ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.text.tokenizer import Tokenizer
from tests.engine.tokenizer_shapes import byte_level, llama_like, suffixed, unigram, word_pieces

LLAMA = Tokenizer(llama_like(), 1)
SHAPES = {
    "byte-level": Tokenizer(byte_level("<|end|>"), 256),
    "llama-like": LLAMA,
    "unigram": Tokenizer(unigram(), 1),
    "word pieces": Tokenizer(word_pieces(), 1),
    "suffixes": Tokenizer(suffixed(), 1),
}
EACH = pytest.mark.parametrize("tokenizer", SHAPES.values(), ids=SHAPES)
TEXTS = st.text(st.sampled_from("ab c  d\n.é✅😀�"), max_size=12)


def joined(tokenizer: Tokenizer, before: Sequence[int], ids: Sequence[int]) -> str:
    stream = tokenizer.stream(before)
    return "".join(map(stream.push, ids)) + stream.rest()


def prompt_and_stream(tokenizer: Tokenizer, ids: Sequence[int], cut: int) -> str:
    before, full = tokenizer.decode(ids[:cut]), tokenizer.decode(ids)
    while not full.startswith(before):  # bytes at its end became a character with those that follow
        assert before.endswith("�")
        before = before[:-1]
    return before + joined(tokenizer, ids[:cut], ids[cut:])


@settings(max_examples=150)
@given(text=TEXTS, cut=st.integers(0, 40))
@example("ab ab ab", 2)
@example("a 😀", 4)  # between two bytes of a character
@example("é😀", 7)  # with the end of another before it
def test_prompt_and_streamed_text_are_what_the_library_decodes(text: str, cut: int) -> None:
    ids = [1, *LLAMA.encode(text)]
    assert prompt_and_stream(LLAMA, ids, cut) == llama_like().decode(ids) == text


@EACH
@settings(max_examples=200)
@given(data=st.data())
def test_at_every_cut_of_any_ids_nothing_is_lost_or_doubled(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 1), max_size=20))
    for cut in range(len(ids) + 1):
        assert prompt_and_stream(tokenizer, ids, cut) == tokenizer.decode(ids)


def test_rows_that_no_token_has_do_not_come_between_the_bytes_of_a_character() -> None:
    unused = LLAMA.vocab_size + 1
    (first, *others) = LLAMA.encode("\u1000")[-3:]
    ids = [first, unused, unused, unused, *others]
    assert [prompt_and_stream(LLAMA, ids, cut) for cut in range(len(ids) + 1)] == ["\u1000"] * (len(ids) + 1)


def test_the_first_blank_of_a_completion_stays() -> None:
    ids = [1, *LLAMA.encode("ab ab")]
    assert LLAMA.stream(ids[:2]).push(ids[2]) == " ab"
    assert LLAMA.stream([1]).push(ids[2]) == "ab"  # which begins a text as the library decodes it


def test_a_byte_that_is_of_no_character_takes_no_other_with_it() -> None:
    mark = LLAMA.encode("✅")[1:]
    broken = mark[:1]
    assert LLAMA.decode([*mark, *broken]) == "✅�"
    assert joined(LLAMA, [], [*mark, *broken, *mark]) == LLAMA.decode([*mark, *broken, *mark]) == "✅�✅"
    assert joined(LLAMA, mark, broken) == "�"


def test_what_another_token_would_give_is_shown_as_it_would_be_written_there() -> None:
    stream = LLAMA.stream([1, *LLAMA.encode("ab")])
    (word,) = LLAMA.encode("ab")
    assert [stream.peek(word), stream.peek(2), stream.push(word), stream.peek(word)] == [" ab", "", " ab", " ab"]


def test_a_long_prompt_costs_a_few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, sizes, decode = LLAMA.encode("ab " * 5000), [], Tokenizer.decode
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: (sizes.append(len(ids)), decode(self, ids))[1])
    joined(LLAMA, prompt, LLAMA.encode("ab" * 50))
    assert max(sizes) < 10
