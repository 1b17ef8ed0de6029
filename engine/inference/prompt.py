"""Encodes prompts: a text, or token ids that are used unchanged.

A text gets the tokenizer's prefix, usually the BOS token; if the text itself begins with the BOS token, it counts once
(unless it is an ordinary word). Elsewhere text never encodes to a special token. Token ids get no prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.errors import ContextLengthExceededError, TokenizerError
from engine.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
# Clients tell by words like these (LangChain, LiteLLM) that they can send less.
_TOO_LONG, _CONTEXT = "The prompt is too long", "this model's maximum context length is"
_FEWEST_CHARACTERS = 64  # allowed for each token of the context: a tokenizer's normalizer may shorten a text


class Reader(Protocol):
    """The limits of a prompt: the models' context and vocabulary."""

    @property
    def max_positions(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...


def require_readable(prompt: Prompt, tokenizer: Tokenizer, models: Reader, num_new: int = 0) -> None:
    """Refuses an invalid prompt without tokenizing it; `num_new` tokens are to fit behind it.

    Raises ContextLengthExceededError for a prompt that cannot fit, TokenizerError for ids that are not in the
    vocabulary.
    """
    if isinstance(prompt, str):
        most = models.max_positions * max(_FEWEST_CHARACTERS, tokenizer.longest_token)
        if len(prompt) > most:
            raise ContextLengthExceededError(
                f"{_TOO_LONG}: {len(prompt):,} characters are too many, as {_CONTEXT} {models.max_positions} tokens.",
                f"Shorten it by {len(prompt) - most:,} characters at least.",
            )
        return
    if foreign := [token for token in prompt if not 0 <= token < models.vocab_size]:
        raise TokenizerError(
            f"Token ids must be from 0 to {models.vocab_size - 1}, got {foreign[0]}.",
            "Tokenize the text with this model's own tokenizer.",
        )
    require_fits(len(prompt), models, num_new)


def require_fits(num_tokens: int, models: Reader, num_new: int = 0) -> None:
    """Raises ContextLengthExceededError when a prompt does not fit with so many tokens behind it."""
    if (surplus := num_tokens + num_new - models.max_positions) > 0:
        of_these = f", {num_new} of them for the answer" if num_new else ""
        raise ContextLengthExceededError(
            f"{_TOO_LONG}: it has {num_tokens} tokens, and {_CONTEXT} {models.max_positions} tokens{of_these}.",
            f"Shorten it by {surplus}.",
        )


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> tuple[list[int], int]:
    """The ids to read, and the number of prefix tokens that were added."""
    if not isinstance(prompt, str):
        return list(prompt), 0
    is_special = tokenizer.bos_id in tokenizer.special_ids  # some vocabularies name an ordinary word
    text = prompt.removeprefix(tokenizer.bos_token) if is_special else prompt
    ids = tokenizer.encode(text)
    if text != prompt:
        return [tokenizer.bos_id, *ids], 0
    prompt_ids = tokenizer.as_prompt(ids)
    return prompt_ids, len(prompt_ids) - len(ids)
