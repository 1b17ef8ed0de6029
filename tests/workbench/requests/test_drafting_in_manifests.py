"""The manifest says of speculation what happened, not what was asked for."""

from __future__ import annotations

from dataclasses import asdict

from engine.config import SamplingConfig
from engine.events import Drafting
from workbench.answers.posteriors import Manifest


def manifest(speculate: bool = True) -> Manifest:
    sampling = asdict(SamplingConfig(speculate=speculate))
    return Manifest(model="m", experts=[], tokenizer_sha256="", gate={}, clustering_sha256=None, sampling=sampling)


def test_drafts_of_all_answers_are_counted() -> None:
    made = manifest().after([Drafting(15, 12), Drafting(0, 0, "other streams filled its passes"), None])
    assert made.sampling is not None
    assert made.sampling["speculate"] is True
    assert made.speculation == "12 of 15 drafted tokens were the mixture's own."


def test_an_answer_without_drafts_was_not_speculated_and_says_why() -> None:
    made = manifest().after([Drafting(0, 0, "one expert has no others to draft for")])
    assert made.sampling is not None
    assert made.sampling["speculate"] is False
    assert made.speculation == "Nothing was drafted: one expert has no others to draft for."


def test_an_answer_without_speculation_names_no_drafts() -> None:
    assert manifest(speculate=False).after([None]) == manifest(speculate=False)
