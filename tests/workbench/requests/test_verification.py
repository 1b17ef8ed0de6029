"""An answer is made again in the precision that its manifest names, whatever this machine or setting would choose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.config import SamplingConfig, ServePrecision
from engine.events import Token
from engine.loading.plan import GenerationPlan
from engine.mixing.gates.posterior import PosteriorGateConfig
from workbench.answers.posteriors import Manifest, StoredAnswer, StoredChoice
from workbench.requests.verification import verify


@pytest.mark.parametrize(("recorded", "now"), [("stored", "float32"), ("float32", "stored"), ("bf16", "bf16")])
def test_an_answer_is_replayed_in_its_own_precision_and_another_one_is_named(
    recorded: ServePrecision, now: ServePrecision
) -> None:
    plan = GenerationPlan("mix", (), (), "", PosteriorGateConfig(), precision=now)
    manifest = Manifest.of(replace(plan, precision=recorded), SamplingConfig())
    choice = StoredChoice(index=0, token_ids=[1], prompt_token_ids=[2])
    used: list[ServePrecision] = []

    def stream(plan: GenerationPlan, prompt: Any, sampling: SamplingConfig) -> Iterator[Token]:
        used.append(plan.precision)
        return iter(())

    result = verify(StoredAnswer(manifest=manifest, choices=[choice]), plan, stream)
    assert used == [recorded]
    assert result.changed == ([] if recorded == now else [f"precision {recorded}, now {now}"])
