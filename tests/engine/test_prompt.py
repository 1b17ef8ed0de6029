"""A prompt is a text, which begins a document, or token ids, read as they are; what cannot fit is refused at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tokenizers
from tokenizers import models

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceededError, TokenizerError
from engine.events import Done, Echo, Token
from engine.inference.generate import Prompt, encode_prompt, generate, read_prompt, read_text
from engine.mixing.gate_type import build_gate
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.multi_expert import MultiExpertModel
from engine.text.tokenizer import Tokenizer

PROMPT = "the court held"
GREEDY = SamplingConfig(max_tokens=5, temperature=0)


def gate(model: MultiExpertModel) -> Any:
    return build_gate(PosteriorGateConfig(), [1.0] * len(model.keys))


def message(model: MultiExpertModel, tokenizer: Tokenizer, prompt: Prompt) -> list[Token | Done]:
    return list(generate(model, model.keys, gate(model), tokenizer, prompt, GREEDY))


def echo(model: MultiExpertModel, tokenizer: Tokenizer, prompt: Prompt) -> Echo:
    return read_prompt(model, model.keys, gate(model), tokenizer, prompt)


def test_a_text_its_ids_and_its_spelled_out_bos_token_give_the_same(
    model: MultiExpertModel, tokenizer: Tokenizer
) -> None:
    ids = [tokenizer.bos_id, *tokenizer.encode(PROMPT)]
    expected = message(model, tokenizer, PROMPT)

    assert message(model, tokenizer, ids) == message(model, tokenizer, tokenizer.bos_token + PROMPT) == expected


def test_ids_get_nothing_before_them(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(PROMPT)
    done = message(model, tokenizer, ids)[-1]

    assert isinstance(done, Done)
    assert done.num_prompt_tokens == len(ids)


def test_only_at_its_very_start_a_text_spells_the_bos_token(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    begin = tokenizer.bos_token
    twice, later = (echo(model, tokenizer, text).tokens for text in (begin + begin, f" {begin}"))

    assert twice == [begin, *begin]
    assert "".join(later) == f" {begin}"
    assert len(later) > 1


def test_a_bos_token_that_is_an_ordinary_word_marks_nothing() -> None:
    words = tokenizers.Tokenizer(models.WordLevel({"the": 0, "there": 1, "re": 2}, unk_token="re"))
    assert encode_prompt("there", Tokenizer(words, 0)) == ([0, 1], 1)


def test_an_echo_has_the_likelihoods_of_the_text(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    read = read_text(model, model.keys, gate(model), tokenizer, PROMPT)
    plain, spelled = echo(model, tokenizer, PROMPT), echo(model, tokenizer, tokenizer.bos_token + PROMPT)

    assert (plain.tokens, plain.logprobs) == (read["tokens"], [None, *read["logprobs"][1:]])
    assert (spelled.tokens[1:], spelled.logprobs) == (read["tokens"], [None, *read["logprobs"]])
    assert spelled.best == [None, *read["best"]]
    assert plain.num_tokens == spelled.num_tokens == len(spelled.tokens)


def test_the_most_probable_token_has_one_number(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    ids = [tokenizer.bos_id, *(one.id for one in message(model, tokenizer, "") if isinstance(one, Token))]
    read = echo(model, tokenizer, ids)

    assert [best and best[1] for best in read.best] == list(read.logprobs)


def test_an_echo_of_nothing_has_no_tokens(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    assert echo(model, tokenizer, "") == Echo([], [], [], 1)


@pytest.mark.parametrize("read", [message, echo])
def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(
    model: MultiExpertModel, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    monkeypatch.setattr(tokenizer, "encode", lambda _: pytest.fail("it was tokenized"))
    with pytest.raises(ContextLengthExceededError, match="2,000,000 characters are too many") as caught:
        read(model, tokenizer, "x" * 2_000_000)
    assert re.search(r"Shorten it by 1,9\d\d,\d\d\d characters at least\.", str(caught.value))


def test_every_text_that_fits_is_read(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    longest = max((tokenizer.decode([number]) for number in range(tokenizer.vocab_size)), key=len)
    text = longest * (model.max_positions - 2)

    assert len(tokenizer.encode(text)) < model.max_positions
    assert message(model, tokenizer, text)


def test_ids_are_of_the_vocabulary_and_fit(model: MultiExpertModel, tokenizer: Tokenizer) -> None:
    for foreign in (-1, model.vocab_size):
        with pytest.raises(TokenizerError, match=f"from 0 to {model.vocab_size - 1}, got {foreign}"):
            message(model, tokenizer, [0, foreign])
    full = [1] * model.max_positions
    with pytest.raises(
        ContextLengthExceededError, match=f"length is {model.max_positions} tokens, at least 1 of them for the answer"
    ):
        message(model, tokenizer, full)
    assert len(echo(model, tokenizer, full).tokens) == model.max_positions
    with pytest.raises(ContextLengthExceededError):
        echo(model, tokenizer, [*full, 1])


@pytest.mark.parametrize("prompt", ["the court " * 200, [1] * 200], ids=["text", "ids"])
def test_a_prompt_shortened_as_the_refusal_says_is_answered(
    model: MultiExpertModel, tokenizer: Tokenizer, prompt: Any
) -> None:
    with pytest.raises(ContextLengthExceededError) as caught:
        message(model, tokenizer, prompt)
    ids, _ = encode_prompt(prompt, tokenizer)
    [surplus] = re.findall(r"Shorten it by (\d+)", str(caught.value))
    assert message(model, tokenizer, ids[: len(ids) - int(surplus)])
