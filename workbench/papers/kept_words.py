"""What the kept reports say, from their numbers: where the main claims of each paper hold, and each report in short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from workbench.papers.catalog import PAPERS
from workbench.replications.findings import Findings
from workbench.replications.forest import look_of
from workbench.replications.report import seeds_words, with_interval


def place_of(findings: Findings) -> str:
    """`world1 (tiny, 3 seeds)`."""
    return f"{findings['corpus']} ({findings['size']}, {seeds_words(findings)})"


def where_they_hold(reports: Sequence[Findings]) -> list[str]:
    """A sentence for each main claim of each paper: on which corpora it was reproduced, and on which it was not."""
    marks: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in reports:
        for claim in main_claims(one):
            by_mark = marks.setdefault((PAPERS[one["paper"]].title, claim["sentence"]), {})
            by_mark.setdefault(look_of(claim).words, []).append(place_of(one))
    return [
        f"{title}: {sentence}: {'; '.join(f'{mark} on {_listed(places)}' for mark, places in by_mark.items())}."
        for (title, sentence), by_mark in marks.items()
    ]


def main_claims(findings: Findings) -> list[Mapping[str, Any]]:
    """The claims of a report that its paper is known for, in the order of the report."""
    patterns = PAPERS[findings["paper"]].main_claims
    return [
        claim
        for claim in findings["claims"]
        if any(fnmatchcase(f"{claim['where']}: {claim['sentence']}", pattern) for pattern in patterns)
    ]


def in_short(reports: Sequence[Findings]) -> str:
    """Each report in a paragraph: its models and text, its main claims with their numbers, and what is ours."""
    return "\n\n".join("\n".join(_report(one)) for one in reports)


def _report(findings: Findings) -> Iterator[str]:
    paper = PAPERS[findings["paper"]]
    yield f"**{paper.title} on {place_of(findings)}.** {model_words(findings)} {_text_words(findings)}"
    yield ""
    for claim in main_claims(findings):
        numbers = "; ".join(filter(None, (claim["ours"], with_interval(claim) if claim["value"] is not None else "")))
        yield f"- {claim['sentence']}: **{look_of(claim).words}**{f' ({numbers})' if numbers else ''}."
    if ours := paper.ours(findings):
        yield f"- Calibrated evidence, which is ours and judges no claim. {ours}"


def model_words(findings: Findings) -> str:
    """`Models: layers 2, width 64, tokens each 8,192,000.`"""
    shape, tokens = findings["budget"]["shape"], findings["budget"].get("training_tokens")
    named = {"layers": shape.get("num_layers"), "width": shape.get("width"), "tokens each": tokens}
    return f"Models: {', '.join(f'{name} {number:,}' for name, number in named.items() if number)}."


def _text_words(findings: Findings) -> str:
    training, novel = (", ".join(findings[role]) for role in ("domains", "novel"))
    return f"Training domains: {training}. Novel ones: {novel}."


def _listed(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{', '.join(places[:-1])} and {places[-1]}"
