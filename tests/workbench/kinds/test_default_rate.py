"""A training that leaves rate or steps open gets those that suit what it changes, and its spec says which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from engine.config import ModelConfig, TrainingConfig
from workbench.job_records import jobs
from workbench.job_records.preconditions import advice_on
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint


def stored(session: Session, spec: Any) -> dict[str, Any]:
    job = jobs.get_job(session, jobs.create_job(session, spec))
    training: dict[str, Any] = job.spec["training"]
    return training


def stored_rate(session: Session, spec: Any) -> float:
    return float(stored(session, spec)["learning_rate"])


def coming_seed(session: Session, is_random: bool) -> None:
    made = {"domains": ["law"], "shape": ModelConfig()} if is_random else {"source": "folder", "location": "/models/x"}
    jobs.create_job(session, MakeSeed(name="seed", **made))


@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize("method", ["dense", "demix", "anchored", "domain-token", "moe", "lora", "lora-mixed"])
def test_only_weights_that_were_trained_before_learn_slowly(session: Session, method: str, is_random: bool) -> None:
    coming_seed(session, is_random)
    spec = TrainJoint(name="mix", seed_model="seed", domains=["law"], method=method)
    expected = 1e-3 if is_random or method.startswith("lora") else 3e-5
    assert advice_on(session, spec)[0].startswith(f"Peak learning rate {expected:g}: the default for ")
    assert stored_rate(session, spec) == expected


@pytest.mark.parametrize("is_random", [True, False])
def test_a_pretrained_seed_has_fewer_updates_also_where_experts_are_added(session: Session, is_random: bool) -> None:
    coming_seed(session, is_random)
    expected = 300 if is_random else 100
    specs = [
        TrainJoint(name="mix", seed_model="seed", domains=["law"], method="demix"),
        TrainMode(name="beside", seed_model="seed", domains=["law"]),
        TrainExpert(name="more", domain="sea", mixture="mix"),
        ComposeMode(name="both", experts=["beside/law"], domains=["law"]),
    ]
    for spec in specs:
        assert advice_on(session, spec)[-1].startswith(f"Steps {expected}: the default for a ")
        assert stored(session, spec)["num_steps"] == expected
    assert stored(session, specs[-1])["learning_rate"] == 1e-3
    assert stored(session, specs[2])["learning_rate"] is None  # a tenth of its parent's


def test_steps_that_were_given_are_kept(session: Session) -> None:
    coming_seed(session, False)
    spec = TrainJoint(name="mix", seed_model="seed", domains=["law"], training=TrainingConfig(num_steps=7))
    assert stored(session, spec)["num_steps"] == 7
    assert not any("Steps" in sentence for sentence in advice_on(session, spec))


def test_layers_beside_a_frozen_seed_learn_as_new_ones(session: Session) -> None:
    coming_seed(session, False)
    assert stored_rate(session, TrainMode(name="beside", seed_model="seed", domains=["law"])) == 1e-3


def test_a_rate_that_was_given_is_kept_and_named_where_it_is_known_to_do_harm(session: Session) -> None:
    coming_seed(session, False)
    spec = TrainJoint(name="mix", seed_model="seed", domains=["law"], training=TrainingConfig(learning_rate=1e-3))
    gentle = spec.model_copy(update={"training": replace(spec.training, learning_rate=2e-4)})
    assert stored_rate(session, spec) == 1e-3
    assert "known to destroy" in advice_on(session, spec)[0]
    for harmless in (gentle, spec.model_copy(update={"method": "lora"})):
        assert not any("learning rate" in sentence for sentence in advice_on(session, harmless))
