"""Whether models share a tokenizer: only then are their tokens the same tokens. Keys of stored tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class HasTokenizer(Protocol):
    """An expert's row, or the plan of a model."""

    @property
    def tokenizer_sha256(self) -> str: ...


Model = TypeVar("Model", bound=HasTokenizer)


def with_another_tokenizer(first: HasTokenizer, others: Iterable[Model]) -> list[Model]:
    """The experts that do not share the tokenizer of the first."""
    return [one for one in others if one.tokenizer_sha256 != first.tokenizer_sha256]


def tokens_key(domain_id: str, tokenizer_sha256: str) -> str:
    """The key of the artifact with a domain's tokens."""
    return f"tokens:{domain_id}:{tokenizer_sha256}"


def chat_tokens_key(
    domain_id: str, tokenizer_sha256: str, template_sha256: str, block_size: int, mask_rule: int
) -> str:
    """The same of a domain of conversations: they are shown by a template, masked, and packed for one block size."""
    key = f"{tokens_key(domain_id, tokenizer_sha256)}:{template_sha256}:{block_size}"
    return key if mask_rule == 1 else f"{key}:masks-{mask_rule}"  # the first rule had no number
