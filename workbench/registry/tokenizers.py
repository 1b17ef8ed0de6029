"""Whether models share a tokenizer: only then are their tokens the same tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class HasTokenizer(Protocol):
    """An expert's row, or the plan of a model."""

    @property
    def tokenizer_sha256(self) -> str: ...


Model = TypeVar("Model", bound=HasTokenizer)


def with_another_tokenizer(first: HasTokenizer, others: Iterable[Model]) -> list[Model]:
    """Those of the others that do not share the tokenizer of the first."""
    return [one for one in others if one.tokenizer_sha256 != first.tokenizer_sha256]
