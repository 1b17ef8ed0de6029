"""What a model forgot: the same text before and after, and the mean change of each role."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine.errors import MixtureError
from workbench.analysis import perplexity_tables
from workbench.questions.forgetting import ForgettingRequest
from workbench.registry import corpora, experts, mixtures
from workbench.schema.base import new_id
from workbench.specs.requests import MixtureSpec
from workbench.store import artifacts

if TYPE_CHECKING:
    from tests.workbench.conftest import World


def score(world: World, expert: str, domain: str, perplexity: float, num_tokens: int = 64, block_size: int = 8) -> None:
    """Token log-likelihoods that are all the same."""
    id = new_id()
    logprobs = np.full(num_tokens, -math.log(perplexity), dtype=np.float32)
    with world.storage.new(id) as folder:
        np.save(folder / "logprobs.npy", logprobs)
        card = {"block_size": block_size, "num_tokens": num_tokens}
        (folder / "scores.json").write_text(json.dumps(card))
    perplexity_tables.register_evaluation(
        world.session,
        expert_id=experts.get_expert(world.session, expert).id,
        domain_id=corpora.get_domain(world.session, domain).id,
        split="test",
        block_size=block_size,
        num_tokens=num_tokens,
        log_likelihood=float(logprobs.sum()),
        artifact=artifacts.register_artifact(world.session, world.storage, id, "scores"),
    )


@pytest.fixture
def adapted(world: World) -> World:
    """The mixtures “before” and “after” of one expert each, two training domains and two novel ones."""
    world.corpus("old", "law", "code")
    world.corpus("new", "sea", "moon", role="novel")
    for name in ("before", "after"):
        world.expert(f"{name}/law", "law")
        mixtures.create_mixture(world.session, MixtureSpec(name=name, experts=[f"{name}/law"]))
    return world


def test_the_change_on_each_domain_and_its_mean_over_the_domains_of_a_role(adapted: World) -> None:  # table 13
    values = {"law": (10.0, 15.0), "code": (20.0, 22.0), "sea": (40.0, 30.0)}
    for domain, pair in values.items():
        for name, perplexity in zip(("before", "after"), pair, strict=True):
            score(adapted, f"{name}/law", domain, perplexity)
    result = ForgettingRequest(before="before", after="after").answer(adapted.session, adapted.storage)
    shown = {row.domain: row for row in result.domains}
    assert {name: row.change_percent for name, row in shown.items()} == {
        "law": pytest.approx(50),
        "code": pytest.approx(10),
        "sea": pytest.approx(-25),
    }
    assert (shown["law"].before, shown["law"].after) == (pytest.approx(10), pytest.approx(15))
    assert {name: mean.model_dump() for name, mean in result.averages.items()} == {
        "target": {"num_domains": 0, "change_percent": None},
        "train": {"num_domains": 2, "change_percent": pytest.approx(30)},
        "novel": {"num_domains": 1, "change_percent": pytest.approx(-25)},
    }


def test_what_was_adapted_to_stands_by_itself(adapted: World) -> None:  # table 13: N is the target
    law = experts.get_expert(adapted.session, "before/law")
    adapted.expert("dapt/sea", "sea", parent_id=law.id)
    mixtures.create_mixture(adapted.session, MixtureSpec(name="dapt", experts=["dapt/sea"]))
    values = {"law": (10.0, 15.0), "sea": (40.0, 20.0), "moon": (30.0, 33.0)}
    for domain, pair in values.items():
        for name, perplexity in zip(("before/law", "dapt/sea"), pair, strict=True):
            score(adapted, name, domain, perplexity)
    result = ForgettingRequest(before="before", after="dapt").answer(adapted.session, adapted.storage)
    assert {row.domain: row.is_target for row in result.domains} == {"law": False, "sea": True, "moon": False}
    assert {name: mean.change_percent for name, mean in result.averages.items()} == {
        "target": pytest.approx(-50),
        "train": pytest.approx(50),
        "novel": pytest.approx(10),
    }


def test_only_the_same_text_is_compared_and_of_several_the_longest(adapted: World) -> None:
    for name in ("before", "after"):
        score(adapted, f"{name}/law", "law", 10.0, num_tokens=32)
        score(adapted, f"{name}/law", "law", 20.0 if name == "after" else 10.0, num_tokens=128)
    score(adapted, "before/law", "law", 99.0, num_tokens=256)
    score(adapted, "before/law", "sea", 10.0)
    score(adapted, "after/law", "sea", 10.0, block_size=16)
    result = ForgettingRequest(before="before", after="after").answer(adapted.session, adapted.storage)
    assert [(row.domain, row.num_tokens) for row in result.domains] == [("law", 128)]
    assert result.domains[0].change_percent == pytest.approx(100)
    assert result.averages["novel"].model_dump() == {"num_domains": 0, "change_percent": None}


def test_perplexities_of_other_tokenizers_are_not_compared(adapted: World) -> None:
    adapted.expert("stranger", "law", tokenizer_sha256="s" * 64)
    with pytest.raises(MixtureError, match="their tokenizers differ"):
        ForgettingRequest(before="before", after="stranger").answer(adapted.session, adapted.storage)


def test_a_mixture_is_read_by_its_own_gate_with_every_expert_that_takes_part(adapted: World) -> None:
    mixtures.create_mixture(adapted.session, MixtureSpec(name="two", experts=["after/law"]))
    base = adapted.session.get_one(experts.Expert, experts.get_expert(adapted.session, "after/law").id).base
    adapted.expert("better", "code", base=base)
    mixtures.add_member(adapted.session, "two", "better")
    for name, perplexity in (("before/law", 10.0), ("after/law", 10.0), ("better", 5.0)):
        score(adapted, name, "law", perplexity)
    (row,) = ForgettingRequest(before="before", after="two").answer(adapted.session, adapted.storage).domains
    assert 5 < row.after < 6  # the posterior soon trusts the better one
