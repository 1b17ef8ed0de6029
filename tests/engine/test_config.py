"""No option accepts a number that nobody can mean: each has bounds, documented or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest

import engine.clusters.config
import engine.methods.mode.config  # noqa: F401  # whose configs are looked at, too
from engine.config import AdaptingConfig, Checked, ModelConfig, TrainingConfig
from engine.errors import EngineError, ModelError
from engine.models import families
from engine.models.families import fresh_model

NO_NUMBERS = [float("inf"), float("-inf"), float("nan"), json.loads("1e400"), -1]
ABSURD = {
    "int": [*NO_NUMBERS, 1.5, 2**64],
    "float": [*NO_NUMBERS, 5e-324, 1e31],
}
MANY = [2**31, 2**32, 2**63]  # of everything but seeds


def configs(base: type[Checked] = Checked) -> Iterator[type[Any]]:
    for subclass in base.__subclasses__():
        if subclass.__module__.startswith("engine.") and all(knob.default is not MISSING for knob in fields(subclass)):
            yield subclass
        yield from configs(subclass)


KNOBS = {
    f"{config.__name__}.{knob.name}": (config, knob.name, kind)
    for config in configs()
    for knob in fields(config)
    if (kind := str(knob.type).removesuffix(" | None")) in ABSURD
}


def test_all_configs_are_checked() -> None:
    assert {"TrainingConfig.clip", "ClusterConfig.num_clusters", "ModeConfig.num_blocks"} < KNOBS.keys()


@pytest.mark.parametrize(("config", "name", "kind"), KNOBS.values(), ids=KNOBS)
def test_a_knob_refuses_absurd_numbers(config: type[Any], name: str, kind: str) -> None:
    numbers = ABSURD[kind] + (MANY if kind == "int" and name != "seed" else [])
    for number in numbers:
        with pytest.raises(EngineError, match=f"{name} must be"):
            replace(config(), **{name: number})


def test_a_training_without_a_rate_is_refused_since_it_depends_on_what_learns() -> None:
    assert TrainingConfig(learning_rate=3e-4).peak_rate == 3e-4
    with pytest.raises(EngineError, match="has no learning_rate") as refused:
        _ = TrainingConfig().peak_rate
    assert "3e-05 where weights that were trained before learn" in refused.value.next_step


@pytest.mark.parametrize("kind", [AdaptingConfig, TrainingConfig])
def test_a_batch_that_no_memory_holds_is_refused(kind: type[Any]) -> None:
    with pytest.raises(EngineError, match="at most 16,777,216 tokens"):
        kind(sequences_per_domain=2**16, block_size=1024)


def test_a_model_larger_than_the_memory_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "memory_bytes", lambda: 200_000)
    with pytest.raises(ModelError, match="of memory"):
        fresh_model(ModelConfig(), 300)
    fresh_model(ModelConfig(num_layers=1, width=16, num_heads=2, ffn_width=32), 300)
