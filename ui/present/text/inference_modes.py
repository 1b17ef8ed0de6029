"""The ways to use experts, compared: what each is, and the means over domains. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ui.present.text.formatting import listed, pluralize

WAYS = {
    "naive": "the best single expert on this very text: a choice that peeks, as in the paper",
    "label": "the expert of the text's own domain",
    "average": "equal weights at every token",
    "uniform": "the posterior from equal priors, anew in each block",
    "updating": "the posterior with a prior that learns from block to block",
    "cached": "the posterior with a prior estimated on held-out text of the domain",
    "mixture": "the gate and the weights that are saved",
}
ORACLE = "the best single expert of each block, chosen in hindsight: what choosing alone could reach"
TOLD = {**WAYS, "oracle": ORACLE}
NO_CACHED = "A dash: fewer than {num_blocks} dev blocks are scored, or no expert is the domain's own."
_ROLES = {"train": "training", "novel": "novel"}  # of a domain, whichever model it may train
_GROUPS = {True: ("train", "that trained its experts"), False: ("novel", "that did not")}


class Mean(NamedTuple):
    """The mean perplexity of every way over a group of domains; None where a domain has no number."""

    title: str
    by_way: Mapping[str, float | None]


def means(found: Mapping[str, Any]) -> list[Mean]:
    """The means over the domains that trained the mixture's experts and over others, where there are several."""
    counts = Counter(row["is_trained"] for row in found["domains"])
    return [
        Mean(f"Mean of {pluralize(counts[is_trained], 'domain')} {words}", found["averages"][name])
        for is_trained, (name, words) in _GROUPS.items()
        if counts[is_trained] > 1
    ]


def trained_words(found: Mapping[str, Any]) -> str:
    """Which of the scored domains trained the mixture's experts."""
    names = [row["domain"] for row in found["domains"] if row["is_trained"]]
    return f"Of these, its experts were trained on {listed(names)}." if names else "None of these trained its experts."


def legend() -> list[str]:
    """What each way is, a line each."""
    return [f"{'As saved' if way == 'mixture' else way.capitalize()}: {told}." for way, told in TOLD.items()]


def best_way(row: Mapping[str, Any]) -> str:
    """The mode with the lowest perplexity, of those that do not peek at the text (naive does)."""
    known = {way: row[way] for way in WAYS if way != "naive" and row[way] is not None}
    return min(known, key=known.__getitem__) if known else ""


def table_rows(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each domain and for each mean, as the data table shows it."""
    for row in found["domains"]:
        yield {"domain": row["domain"], "role": _ROLES[row["role"]], "tokens": row["num_tokens"], **_numbers(row)}
    for mean in means(found):
        yield {"domain": mean.title, "role": "", "tokens": None, **_numbers(mean.by_way)}


def _numbers(by_way: Mapping[str, Any]) -> dict[str, Any]:
    return {("as saved" if way == "mixture" else way): by_way[way] for way in (*WAYS, "oracle")}
