"""A training that names no learning rate gets one that suits what it changes, and its spec says which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from engine.config import ModelConfig, TrainingConfig
from workbench.job_records import jobs
from workbench.job_records.preconditions import advice_on
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import TrainMode
from workbench.kinds.training.train_joint import TrainJoint


def stored_rate(session: Session, spec: Any) -> float:
    job = jobs.get_job(session, jobs.create_job(session, spec))
    rate: float = job.spec["training"]["learning_rate"]
    return rate


def coming_seed(session: Session, is_random: bool) -> None:
    made = {"domains": ["law"], "shape": ModelConfig()} if is_random else {"source": "folder", "location": "/models/x"}
    jobs.create_job(session, MakeSeed(name="seed", **made))


@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize("method", ["dense", "demix", "domain-token", "moe", "lora", "lora-mixed"])
def test_only_weights_that_were_trained_before_learn_slowly(session: Session, method: str, is_random: bool) -> None:
    coming_seed(session, is_random)
    spec = TrainJoint(name="mix", seed_model="seed", domains=["law"], method=method)
    expected = 1e-3 if is_random or method.startswith("lora") else 1e-4
    assert advice_on(session, spec)[0].startswith(f"The peak learning rate is {expected:g},")
    assert stored_rate(session, spec) == expected


def test_layers_beside_a_frozen_seed_learn_as_new_ones(session: Session) -> None:
    coming_seed(session, False)
    assert stored_rate(session, TrainMode(name="beside", seed_model="seed", domains=["law"])) == 1e-3


def test_a_rate_that_was_given_is_kept_and_named_where_it_is_known_to_do_harm(session: Session) -> None:
    coming_seed(session, False)
    spec = TrainJoint(name="mix", seed_model="seed", domains=["law"], training=TrainingConfig(learning_rate=1e-3))
    gentle = spec.model_copy(update={"training": replace(spec.training, learning_rate=2e-4)})
    assert stored_rate(session, spec) == 1e-3
    assert "known to destroy" in advice_on(session, spec)[0]
    assert not advice_on(session, gentle)
    assert not advice_on(session, spec.model_copy(update={"method": "lora"}))
