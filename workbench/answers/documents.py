"""Answers about documents: of a domain, of a clustering, and what changed since it was made."""

from __future__ import annotations

from pydantic import Field

from engine.text.split_names import Split
from workbench.answers.base import Answer


class Document(Answer):
    """A document of a domain."""

    id: str
    text: str
    source: str | None
    group: str | None


class ClusteredDocument(Answer):
    """A document of a clustering."""

    id: str
    text: str
    source: str
    domain: str
    split: Split
    cluster: int = Field(description="Number of its cluster.")
    is_fitted: bool
    is_pinned: bool
    is_blank: bool


class TextChanges(Answer):
    """How text differs from what was clustered; of long lists the first ids."""

    num_missing: int
    num_new: int
    missing: list[str]
    new: list[str]
