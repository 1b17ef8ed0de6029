"""How affinity goes with bigram overlap, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.present.text.formatting import listed

PAPER = "The paper: r = 0.40, t = 3.45, p = 0.001 over the 64 cells of its eight experts (DEMix §4.4)."
HOW_TO_MEASURE = "workbench evaluate overlap"
SIGN = "r is of affinity, which is minus the ratio, with the overlap: it is above 0 where points fall to the right."
_SURE = 0.05


def affinity_words(found: Mapping[str, Any]) -> list[str]:
    """What to read in `workbench.analysis.affinity.affinity`: both correlations, and what they do not know."""
    if found["report"] is None:
        return [f"The overlap of the domains has not been measured yet. Measure it with: {HOW_TO_MEASURE}"]
    gaps = gap_sentences(found)
    if found["without_homes"] is None:
        return [found["why_not"], *gaps]
    told = [f"Away from home: {verdict(found['without_homes'])}"]
    if found["with_homes"] is not None:
        told.append(f"With the experts' own cells, as in the paper's figure: {numbers(found['with_homes'])}.")
    return [*told, SIGN, PAPER, *gaps]


def verdict(correlation: Mapping[str, Any]) -> str:
    """What a correlation says, and its numbers."""
    if correlation["p"] >= _SURE:
        told = "no correlation can be told from chance"
    elif correlation["r"] > 0:
        told = "experts carry over better to domains that share their bigrams"
    else:
        told = "experts carry over worse to domains that share their bigrams"
    return f"{told}: {numbers(correlation)}."


def numbers(correlation: Mapping[str, Any]) -> str:
    """`r = 0.40, t = 3.45, p = 0.001 over 64 cells`."""
    p = correlation["p"]
    chance = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return f"r = {correlation['r']:.2f}, t = {correlation['t']:.2f}, {chance} over {correlation['num_cells']} cells"


def gap_sentences(found: Mapping[str, Any]) -> list[str]:
    """Which domains have no overlap that holds."""
    sentences = {
        "changed": "The text has changed since the overlap was measured, so it does not count: {}.",
        "unmeasured": "The overlap was measured without: {}.",
        "unpaired": "Never measured together: {}.",
    }
    return [words.format(listed(found[name])) for name, words in sentences.items() if found[name]]
