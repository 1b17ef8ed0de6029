"""The inference modes compared: what each is, and the means over domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ui.present.text.formatting import listed, pluralize
from workbench.answers.perplexities import InferenceMode, InferenceModeComparison

ByMode = Mapping[InferenceMode, float | None]

MODE_WORDS: dict[InferenceMode, str] = {
    "naive": "the best single expert on this very text: chosen with the test text, as in the paper",
    "label": "the expert of the text's own domain",
    "average": "equal weights at every token",
    "uniform": "the posterior from equal priors, anew in each block",
    "updating": "the posterior with a prior that learns from block to block",
    "cached": "the posterior with a prior estimated on held-out text of the domain",
    "mixture": "the gate and the weights that are saved",
}
ORACLE = "the best single expert of each block, chosen in hindsight: the limit of choosing one expert"
ALL_WORDS: dict[InferenceMode, str] = {**MODE_WORDS, "oracle": ORACLE}
NO_CACHED = "A dash: fewer than {num_blocks} dev blocks are scored, or no expert is the domain's own."
_ROLES = {"train": "training", "novel": "novel"}  # of a domain, whichever model it may train
_GROUPS = {True: "that trained its experts", False: "that did not"}


class Mean(NamedTuple):
    """The mean perplexity of every inference mode over a group of domains; None where a domain has no number."""

    title: str
    by_mode: ByMode


def means(answer: InferenceModeComparison) -> list[Mean]:
    """The means over the domains that trained the mixture's experts and over others, where there are several."""
    counts = Counter(row.is_trained for row in answer.domains)
    averages = {True: answer.averages.train, False: answer.averages.novel}
    return [
        Mean(f"Mean of {pluralize(counts[is_trained], 'domain')} {words}", averages[is_trained])
        for is_trained, words in _GROUPS.items()
        if counts[is_trained] > 1
    ]


def trained_words(answer: InferenceModeComparison) -> str:
    """Which of the scored domains trained the mixture's experts."""
    names = [row.domain for row in answer.domains if row.is_trained]
    return f"Of these, its experts were trained on {listed(names)}." if names else "None of these trained its experts."


def legend() -> list[str]:
    """What each inference mode is, a line each."""
    return [f"{'As saved' if mode == 'mixture' else mode.capitalize()}: {words}." for mode, words in ALL_WORDS.items()]


def best_mode(by_mode: ByMode) -> InferenceMode | None:
    """The inference mode with the lowest perplexity among those that do not use the test text (naive does)."""
    known: dict[InferenceMode, float] = {
        mode: value for mode in MODE_WORDS if mode != "naive" and (value := by_mode[mode]) is not None
    }
    if not known:
        return None
    best: InferenceMode = min(known, key=known.__getitem__)
    return best


def table_rows(answer: InferenceModeComparison) -> Iterator[dict[str, Any]]:
    """A row for each domain and for each mean, as the data table shows it."""
    for row in answer.domains:
        yield {"domain": row.domain, "role": _ROLES[row.role], "tokens": row.num_tokens, **_numbers(row.by_mode())}
    for mean in means(answer):
        yield {"domain": mean.title, "role": "", "tokens": None, **_numbers(mean.by_mode)}


def _numbers(by_mode: ByMode) -> dict[str, Any]:
    return {("as saved" if mode == "mixture" else mode): by_mode[mode] for mode in ALL_WORDS}
