"""The picture of a certificate: valid SVG for every name and number, and what it says is what the findings hold."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from tests.ui import removals
from ui.reports.picture import HEIGHT, WIDTH
from ui.reports.report_type import report_picture
from workbench.answers.cards import ReportCard

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title><script>alert(1)</script>&\"'" + "é" * 80


def domain(name: str, before: float, after: float, *, is_new: bool = False) -> dict[str, Any]:
    change = 100 * (after / before - 1)
    return {
        "domain": name,
        "is_new": is_new,
        "num_tokens": 1000,
        "before": before,
        "after": after,
        "change_percent": change,
    }


def addition(expert: str = "sailor", *domains: dict[str, Any], **changes: Any) -> ReportCard:
    folders = [
        {"what": "the base", "num_files": 3, "sha256": "0" * 12, "recorded_before": True, "faults": []},
        {"what": "later", "num_files": 9, "sha256": "0" * 12, "recorded_before": False, "faults": []},
    ]
    findings = {
        "expert": expert,
        "mixture": "both",
        "ok": True,
        "sentence": "NOT certified: a file was changed.",
        "num_tensors": 7,
        "alone": [],
        "domains": list(domains),
        "folders": folders,
        **changes,
    }
    return card("addition", findings)


def card(kind: str, findings: dict[str, Any]) -> ReportCard:
    given = {"id": "0123456789abcdef", "kind": kind, "title": kind, "findings": findings, "created_at": 0.0}
    return ReportCard.model_validate({**given, "about_id": None, "artifact_id": None, "job_id": None})


def drawn(report: ReportCard) -> tuple[list[str], str]:
    """The lines of a picture, all inside it, and its sentence."""
    picture = report_picture(report)
    assert picture is not None
    svg, sentence = picture
    root = ElementTree.fromstring(svg)
    assert {one.tag for one in root.iter()} <= {SVG + name for name in ("svg", "title", "rect", "text")}
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.attrib["x"]) < WIDTH
        assert 0 < float(text.attrib["y"]) < HEIGHT
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")], sentence


def test_an_addition_says_what_stayed_what_was_gained_and_the_most_that_was_lost() -> None:
    measured = (domain("sea", 100, 60, is_new=True), domain("law", 50, 50.1), domain("code", 20, 19))
    lines, sentence = drawn(addition("sailor", *measured))
    assert lines[:3] == ["CERTIFIED", "sailor was added to both", "3 files"]
    assert {"−40.0 %", "at most +0.2 %", "on 2 other domains (n = 2,000)"} <= set(lines)
    assert sentence == (
        "sailor was added to both: 3 files and 7 tensors unchanged; perplexity −40.0 % on sea, "
        "at most +0.2 % on 2 other domains."
    )
    assert any("workbench report show 01234567" in line for line in lines)


def test_without_scores_only_the_files_are_named() -> None:
    lines, sentence = drawn(addition())
    assert sentence == "sailor was added to both: 3 files and 7 tensors unchanged."
    assert not any("%" in line for line in lines)


def test_a_change_is_not_called_certified() -> None:
    lines, sentence = drawn(addition(ok=False))
    assert lines[0] == "NOT CERTIFIED"
    assert "Files changed" in lines
    assert sentence.startswith("NOT certified")


@pytest.mark.parametrize("ok", [True, False])
def test_a_removal_says_what_differs_and_what_its_domain_loses(ok: bool) -> None:
    lines, _ = drawn(card("removal", removals.findings("sailor", "both", "sea", ok=ok)))
    assert lines[0] == ("CERTIFIED" if ok else "NOT CERTIFIED")
    assert ("0" if ok else "7") in lines
    assert "+50.0 %" in lines


@pytest.mark.parametrize("name", [HOSTILE, "x" * 300, "a b " * 60, "\u202eabc", "日本語" * 40])
def test_every_name_is_text_in_it(name: str) -> None:
    lines, _ = drawn(addition(name, domain(name, 100, 60, is_new=True), domain(f"{name}2", 50, 50.1)))
    assert all(len(line) <= 90 for line in lines)


def test_other_sorts_have_none() -> None:
    assert report_picture(card("overlap", {"domains": ["a", "b"], "overlap": [[1, 0], [0, 1]]})) is None
