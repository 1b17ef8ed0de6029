"""The average of models: exact where it can be, the same for any order, and only among models of one architecture."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from engine.analysis.averaging import average
from engine.config import LoraConfig, MoeConfig
from engine.errors import ModelError
from engine.events import Progress
from engine.methods.moe.upcycle import upcycle
from engine.methods.multi_expert_files import new_placement
from tests.engine.models.decoders import decoder
from tests.engine.models.test_lora import IDS, disturbed


def variants(family: str = "llama") -> dict[str, Any]:
    """Three models of one seed that differ in every parameter."""
    result = {}
    for number, name in enumerate("abc"):
        lm, generator = decoder(family), torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in lm.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
        result[name] = lm
    return result


def averaged(models: dict[str, Any], weights: dict[str, float]) -> tuple[Any, list[str]]:
    *progress, lm = average({name: lambda lm=lm: copy.deepcopy(lm) for name, lm in models.items()}, weights)
    return lm, [one.note for one in progress if isinstance(one, Progress)]


def test_with_all_weight_on_one_the_average_is_that_one_and_no_other_is_read() -> None:
    models = variants()
    lm, notes = averaged(models, {"a": 0.0, "b": 3.0, "c": 0.0})
    assert notes == ["averaging b"]
    assert all(torch.equal(tensor, lm.state_dict()[name]) for name, tensor in models["b"].state_dict().items())


def test_the_average_is_the_weighted_mean_of_every_parameter_in_any_order() -> None:
    models, weights = variants(), {"a": 1.0, "b": 2.0, "c": 1.0}
    lm, _ = averaged(models, weights)
    turned, _ = averaged(dict(reversed(models.items())), weights)
    for name, tensor in lm.state_dict().items():
        a, b, c = (models[one].state_dict()[name] for one in "abc")
        torch.testing.assert_close(tensor, a / 4 + b / 2 + c / 4, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(tensor, turned.state_dict()[name], atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_the_average_of_a_model_with_itself_is_that_model(family: str) -> None:
    lm = decoder(family)
    result, _ = averaged({"a": lm, "b": lm}, {"a": 0.3, "b": 0.7})
    torch.testing.assert_close(result.state_dict(), lm.state_dict(), atol=1e-7, rtol=1e-6)


@torch.no_grad()
def test_adapters_are_averaged_as_the_full_models_that_they_make() -> None:
    lm = decoder("gpt2")
    both = [
        disturbed(new_placement("adapter").build(copy.deepcopy(lm), ["a"], LoraConfig(rank=rank))) for rank in (2, 3)
    ]
    result, _ = averaged({str(i): one.full_model("a") for i, one in enumerate(both)}, {"0": 1.0, "1": 1.0})
    place = "transformer.h.0.mlp.c_fc.weight"
    mean = (both[0].lm.state_dict()[place] + both[1].lm.state_dict()[place]) / 2
    torch.testing.assert_close(result.state_dict()[place], mean)
    assert result(input_ids=IDS).logits.isfinite().all()


def test_models_of_two_architectures_are_refused_by_what_differs() -> None:
    other = upcycle(decoder("llama"), MoeConfig(2))
    with pytest.raises(ModelError, match=r"“a” has attention_bias False, “b” has None.*Average experts of the same"):
        averaged({"a": decoder("llama"), "b": other}, {"a": 1.0, "b": 1.0})


def test_domain_tokens_make_no_full_model(make_model) -> None:
    with pytest.raises(ModelError, match="is a vector before the text"):
        make_model(["a"], experts_in="token").full_model("a")
