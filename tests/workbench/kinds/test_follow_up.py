"""Every training that makes or extends a mixture names the job that scores it."""

from __future__ import annotations

import pytest

from workbench.job_records.preconditions import kind_of
from workbench.kinds.kind import parse_spec
from workbench.specs.base import Spec


def follow_up(**fields: object) -> Spec | None:
    spec = parse_spec(fields)
    return kind_of(spec).follow_up(spec)


EXPERT = {"kind": "train-expert", "name": "new", "domain": "law", "mixture": "small"}


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "train-joint", "name": "m", "seed_model": "s", "domains": ["law"]},
        {"kind": "train-mode", "name": "m", "seed_model": "s", "domains": ["law"]},
        {"kind": "compose-mode", "name": "m", "experts": ["a/law", "b/sea"]},
        {**EXPERT, "name": "m", "full_model": True},
    ],
)
def test_a_training_that_makes_a_mixture_is_followed_by_its_evaluation(fields: dict[str, object]) -> None:
    scoring = follow_up(**fields)
    assert scoring is not None
    assert scoring.model_dump(include={"kind", "mixture"}) == {"kind": "evaluate", "mixture": "m"}


def test_an_expert_that_joins_a_mixture_is_scored_by_its_certificate() -> None:
    certificate = follow_up(**EXPERT)
    assert certificate is not None
    known = certificate.model_dump(include={"kind", "expert", "mixture"})
    assert known == {"kind": "certify-addition", "expert": "new", "mixture": "small"}
    assert follow_up(**EXPERT, join=False) is None
    assert follow_up(kind="import-corpus", name="x", path="/x") is None
