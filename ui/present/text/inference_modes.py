"""The inference modes compared: what each is, and the means over domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ui.present.text.formatting import listed, pluralize
from workbench.questions.inference_modes import InferenceMode, InferenceModeComparison

ByMode = Mapping[InferenceMode, float | None]

MODE_SENTENCES: dict[InferenceMode, str] = {
    "naive": "the best single expert on this very text: chosen with the test text, as in the paper",
    "label": "the expert of the text's own domain",
    "average": "equal weights at every token",
    "uniform": "the posterior from equal priors, started again in each block",
    "updating": "the posterior with a prior that learns from block to block",
    "cached": "the posterior with a prior estimated on held-out text of the domain",
    "mixture": "the gate and the weights that are saved",
}
ORACLE = "the best single expert of each block, chosen in hindsight: the limit of choosing one expert"
ALL_SENTENCES: dict[InferenceMode, str] = {**MODE_SENTENCES, "oracle": ORACLE}
_MISSING: dict[InferenceMode, str] = {
    "label": "there is no expert of the domain's own",
    "cached": "fewer than {num_blocks} dev blocks are scored",
}
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


def describe_training_domains(answer: InferenceModeComparison) -> str:
    """Which of the scored domains trained the mixture's experts."""
    names = [row.domain for row in answer.domains if row.is_trained]
    return f"Of these, its experts were trained on {listed(names)}." if names else "None of these trained its experts."


def shown_modes(answer: InferenceModeComparison) -> list[InferenceMode]:
    """The inference modes that have a number on any domain."""
    numbers = [row.by_mode() for row in answer.domains]
    return [mode for mode in ALL_SENTENCES if any(row[mode] is not None for row in numbers)]


def describe_missing_modes(answer: InferenceModeComparison, num_blocks: int) -> str:
    """Which inference modes have no number on some domain or on any, and why; empty where none is missing."""
    shown, sentences = shown_modes(answer), []
    for mode, reason in _MISSING.items():
        if mode not in shown:
            sentences.append(f"Not shown: {mode}, since on every domain {reason.format(num_blocks=num_blocks)}.")
        elif any(row.by_mode()[mode] is None for row in answer.domains):
            sentences.append(f"A dash under {mode}: {reason.format(num_blocks=num_blocks)}.")
    return " ".join(sentences)


def mode_title(mode: InferenceMode) -> str:
    """The name of an inference mode as the title of a column."""
    return "as saved" if mode == "mixture" else mode


def legend(modes: Collection[InferenceMode]) -> list[str]:
    """What each of these inference modes is, a line each."""
    return [f"{mode_title(mode).capitalize()}: {words}." for mode, words in ALL_SENTENCES.items() if mode in modes]


def best_mode(by_mode: ByMode) -> InferenceMode | None:
    """The inference mode with the lowest perplexity among those that do not use the test text (naive does)."""
    known: dict[InferenceMode, float] = {
        mode: value for mode in MODE_SENTENCES if mode != "naive" and (value := by_mode[mode]) is not None
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
    return {mode_title(mode): by_mode[mode] for mode in ALL_SENTENCES}
