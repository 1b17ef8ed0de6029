"""An expert that its training made worse says so wherever it is shown."""

from __future__ import annotations

from workbench.analysis.changes.additions import AFTER, BEFORE, verdict, worse_than_before


def test_only_an_expert_that_became_worse_is_named() -> None:
    assert "37" in worse_than_before({AFTER: 37.0, BEFORE: 18.9})
    assert worse_than_before({AFTER: 13.0, BEFORE: 18.9}) == ""
    assert worse_than_before({AFTER: 13.0}) == ""


def test_the_certificate_of_an_addition_says_that_the_training_did_harm() -> None:
    outcome = worse_than_before({AFTER: 37.0, BEFORE: 18.9})
    assert verdict([], 3, 4, [], outcome=outcome).endswith(outcome)
