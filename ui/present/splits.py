"""How a domain is split into training and held-out text, and why its shares are not exactly those of the rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.text.split import DEV_SHARE, TEST_SHARE
from workbench.answers.cards import DomainCard
from workbench.formatting.number_format import percent

_TRAIN = 1 - DEV_SHARE - TEST_SHARE
SPLIT_RULE = (
    f"A hash of each document decides its split: {_TRAIN:.0%} train, {DEV_SHARE:.0%} dev and {TEST_SHARE:.0%} test on "
    "average, so a document keeps its split when text is added. The pieces of a long document, and the documents of a "
    "group, go together. So the shares of a small domain differ, and those of its words and bytes differ more. A "
    "domain made of others keeps their splits."
).replace("%", " %")


def split_rows(domain: DomainCard) -> Iterator[dict[str, Any]]:
    """A row for each split, with its shares of the domain's documents and bytes."""
    for split, sizes in domain.splits.items():
        shares = {f"{unit} (%)": _share(domain, split, unit) for unit in ("documents", "bytes")}
        yield {"split": split, **sizes, **{name: round(share, 1) for name, share in shares.items()}}


def describe_splits(domain: DomainCard) -> str:
    """The shares of a domain's documents, and the rule that gives them."""
    shares = ", ".join(f"{split} {percent(_share(domain, split, 'documents'))}" for split in domain.splits)
    return f"Of the documents: {shares}. {SPLIT_RULE}"


def _share(domain: DomainCard, split: str, unit: str) -> float:
    total = sum(sizes[unit] for sizes in domain.splits.values())
    return 100 * domain.splits[split][unit] / total if total else 0.0
