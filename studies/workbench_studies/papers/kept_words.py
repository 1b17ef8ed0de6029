"""What the kept reports say, from their numbers: where the main claims of each paper hold, and each report in short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench_studies.core.findings import Findings, cautions
from workbench_studies.core.implied import name_of
from workbench_studies.core.report import mark_words, seeds_words, setting_words, with_interval
from workbench_studies.papers.catalog import PAPERS


def place_of(findings: Findings) -> str:
    """`world1 (tiny, 3 seeds)`."""
    return f"{findings['corpus']} ({findings['size']}, {seeds_words(findings)})"


def where_they_hold(reports: Sequence[Findings]) -> list[str]:
    """A sentence for each main claim of each paper: on which corpora it was reproduced, and on which it was not."""
    marks: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in reports:
        for claim in main_claims(one):
            by_mark = marks.setdefault((PAPERS[one["paper"]].title, claim["sentence"]), {})
            by_mark.setdefault(_mark_and_setting(claim), []).append(place_of(one))
    return [
        f"{title}: {sentence}: {'; '.join(f'{mark} on {_listed(places)}' for mark, places in by_mark.items())}."
        for (title, sentence), by_mark in marks.items()
    ]


def _mark_and_setting(claim: Mapping[str, Any]) -> str:
    """`contradicted, adapted at 0.5 of the training's learning rate (§6.1: 0.1)`."""
    return ", ".join(filter(None, (mark_words(claim), claim.get("setting"))))


def main_claims(findings: Findings) -> list[Mapping[str, Any]]:
    """The claims of a report that its paper is known for, in the order of the report."""
    study = PAPERS[findings["paper"]].study
    return [claim for claim in findings["claims"] if (declared := study.declared(claim)) and declared.is_main]


def in_short(reports: Sequence[Findings]) -> str:
    """Each report in a paragraph: its models and text, its main claims with their numbers, and what is ours."""
    return "\n\n".join("\n".join(_report(one)) for one in reports)


def _report(findings: Findings) -> Iterator[str]:
    paper = PAPERS[findings["paper"]]
    yield f"**{paper.title} on {place_of(findings)}.** {model_words(findings)} {_text_words(findings)}"
    yield from cautions(findings)
    yield ""
    for claim in main_claims(findings):
        numbers = "; ".join(filter(None, (claim["ours"], with_interval(claim) if claim["value"] is not None else "")))
        sentence = f"- {claim['sentence']}: **{mark_words(claim)}**{f' ({numbers})' if numbers else ''}."
        yield " ".join([sentence, *_other_reading(findings, claim), setting_words(claim)]).strip()
    if ours := paper.ours(findings):
        yield f"- Calibrated evidence, which is ours and judges no claim. {ours}"


def _other_reading(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """The numbers of a claim as the released code reads the posterior."""
    other = list(claim.get("by_evidence", {}))[1:]
    for row in findings.get("readings", ()):
        if other and row["reading"].startswith(other[0]) and name_of(row) == name_of(claim):
            numbers = "; ".join(filter(None, (row["ours"], with_interval(row))))
            yield f"With {row['reading']}: {numbers}."
            return


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
