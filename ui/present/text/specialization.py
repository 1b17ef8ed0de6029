"""Specialization as text: its correlation with bigram overlap, and where two experts differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ui.present.text.formatting import listed
from workbench.formatting.number_format import nats, number
from workbench.questions.affinity import Affinity, Correlation
from workbench.questions.token_comparison import Passage, TokenComparison

PAPER = "The paper: r = 0.40, t = 3.45, p = 0.001 over the 64 cells of its eight experts (DEMix §4.4)."
HOW_TO_MEASURE = "workbench evaluate overlap"
SIGN = "r is of affinity, which is minus the ratio, with the overlap: it is above 0 where points fall to the right."
_SURE = 0.05
_NAMED = 4  # experts, domains and groups that are named


def describe_affinity(answer: Affinity) -> list[str]:
    """Both correlations of `workbench.questions.affinity`, and the domains they leave out."""
    if answer.report is None:
        return [f"The overlap of the domains has not been measured yet. Measure it with: {HOW_TO_MEASURE}"]
    limits = gap_sentences(answer)
    if answer.without_homes is None:
        return [answer.why_not, *limits]
    sentences = [f"Out of domain: {verdict(answer.without_homes)}"]
    if answer.with_homes is not None:
        sentences.append(f"With the experts' own cells, as in the paper's figure: {numbers(answer.with_homes)}.")
    return [*sentences, SIGN, PAPER, *limits]


def verdict(correlation: Correlation) -> str:
    """What a correlation says, and its numbers."""
    if correlation.p >= _SURE:
        finding = "the correlation is not significant"
    elif correlation.r > 0:
        finding = "experts carry over better to domains that share their bigrams"
    else:
        finding = "experts carry over worse to domains that share their bigrams"
    return f"{finding}: {numbers(correlation)}."


def numbers(correlation: Correlation) -> str:
    """`r = 0.40, t = 3.45, p = 0.001 over 64 cells`."""
    p = correlation.p
    chance = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return (
        f"r = {number(correlation.r, 2)}, t = {number(correlation.t, 2)}, {chance} over {correlation.num_cells} cells"
    )


def gap_sentences(answer: Affinity) -> list[str]:
    """The domains without a current overlap, by reason."""
    sentences = (
        (answer.changed, "The text has changed since the overlap was measured, so it does not count: {}."),
        (answer.unmeasured, "The overlap was measured without: {}."),
        (answer.unpaired, "Never measured together: {}."),
    )
    return [words.format(listed(names)) for names, words in sentences if names]


def describe_missing_cells(cells: Sequence[tuple[str, str]]) -> str:
    """Which experts are not scored on which domains yet."""
    domains_of = defaultdict[str, list[str]](list)
    for expert, domain in cells:
        domains_of[expert].append(domain)
    experts_on = defaultdict[tuple[str, ...], list[str]](list)
    for expert, domains in domains_of.items():
        experts_on[tuple(domains)].append(expert)
    parts = [f"{listed(names, _NAMED)} on {listed(domains, _NAMED)}" for domains, names in experts_on.items()]
    more = f"; and {len(parts) - _NAMED} more groups of experts" if len(parts) > _NAMED + 1 else ""
    return f"Not scored yet: {'; '.join(parts[:_NAMED] if more else parts)}{more}."


def describe_contrast(answer: TokenComparison) -> str:
    """Which expert is better overall, by how much, and on how much text."""
    overall = answer.overall
    verb = "predicts better than" if overall > 0 else "predicts worse than"
    return (
        f"On {answer.domain} ({answer.split}), {answer.expert} {verb} {answer.rival} by {nats(abs(overall))} "
        f"over {answer.num_passages:,} passages from {answer.num_documents:,} documents."
    )


def describe_passage(passage: Passage) -> str:
    """One passage: its document, length and mean difference."""
    shown = len(passage.tokens)
    cut = f", the first {shown:,} shown" if shown < passage.num_tokens else ""
    length = f"{passage.num_tokens:,} tokens{cut}"
    return f"From document {passage.document + 1}: {nats(passage.mean, signed=True)} over {length}"
