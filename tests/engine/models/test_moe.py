"""Sparse upcycling: the mixture begins as the dense model, learns, and goes through files like any other."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import MoeConfig, TrainingConfig
from engine.errors import EngineError, ModelError
from engine.events import Step
from engine.methods.moe.upcycle import upcycle
from engine.methods.multi_expert_files import new_placement
from engine.models.discovery import router_losses, routers
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.training.loop import train
from tests.engine.models.decoders import decoder
from tests.engine.models.test_demix_files import save

IDS = torch.randint(0, 300, (2, 10), generator=torch.Generator().manual_seed(1))
CONFIG = TrainingConfig(
    num_steps=6,
    block_size=16,
    sequences_per_domain=2,
    learning_rate=3e-3,
    checkpoint_every=3,
    evaluate_every=3,
    evaluation_blocks=2,
)


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("shape", [MoeConfig(2, 1), MoeConfig(4, 2), MoeConfig(3, 3)])
@torch.no_grad()
def test_an_upcycled_model_begins_as_the_dense_one_whatever_its_routers_say(family: str, shape: MoeConfig) -> None:
    lm = decoder(family)
    moe = upcycle(lm, shape, seed=4)
    torch.testing.assert_close(moe(input_ids=IDS).logits, lm(input_ids=IDS).logits, atol=1e-5, rtol=1e-5)
    for router in routers(moe):
        router.weight.mul_(100)
    torch.testing.assert_close(moe(input_ids=IDS).logits, lm(input_ids=IDS).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_networks_that_have_parted_are_weighed_by_the_routers() -> None:
    moe = upcycle(decoder("llama"), MoeConfig(4))
    before = moe(input_ids=IDS).logits
    moe.model.layers[0].mlp.experts.down_proj[0].mul_(2)
    assert not torch.allclose(moe(input_ids=IDS).logits, before, atol=1e-4)


def test_routers_are_small_and_follow_the_seed() -> None:
    one, two, other = (routers(upcycle(decoder("llama"), MoeConfig(4), seed))[0].weight for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert float(one.detach().abs().max()) < 0.2


@pytest.mark.parametrize("family", ["gpt2", "opt", "gpt_neox", "qwen2"])
def test_a_family_without_a_counterpart_is_refused_with_an_alternative(family: str) -> None:
    with pytest.raises(ModelError, match=f"the family “{family}”.*llama, mistral.*or the method dense"):
        upcycle(decoder(family), MoeConfig())


def test_a_seed_with_biases_is_refused() -> None:
    lm: Any = decoder("llama")
    lm.config.attention_bias = True
    with pytest.raises(ModelError, match="with biases"):
        upcycle(lm, MoeConfig())


def test_more_active_networks_than_there_are_is_refused() -> None:
    with pytest.raises(EngineError, match="active_experts must be at most num_experts; got 3 of 2"):
        MoeConfig(num_experts=2, active_experts=3)


def test_the_balance_is_least_when_every_network_has_as_many_tokens() -> None:
    moe = upcycle(decoder("llama"), MoeConfig(4, balance=0.5))
    result = {}
    for name, logits in {"even": torch.eye(4).repeat(5, 1) * 9, "one": torch.eye(4)[:1].repeat(20, 1) * 9}.items():
        with router_losses(moe) as heard:
            heard.logits_NX.append(logits + torch.eye(4).roll(1, 1).repeat(5, 1) if name == "even" else logits)
        result[name] = float(heard.loss())
    assert 0 < result["even"] < result["one"]


def test_only_a_mixture_of_experts_has_routers_to_listen_to() -> None:
    lm = decoder("gpt2")
    with router_losses(lm) as heard:
        lm(input_ids=IDS)
    assert heard.loss() == 0.0


def mixture(balance: float = 0.01) -> MultiExpertModel:
    return MultiExpertModel(upcycle(decoder("llama"), MoeConfig(4, balance=balance), seed=3), ["one"], new_placement())


def losses(events: Any) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def test_the_balance_takes_part_in_learning_and_not_in_the_reported_loss(make_texts, tmp_path: Path) -> None:
    texts, result = [replace(text, expert="one") for text in make_texts(["one"])], {}
    for balance in (0.0, 10.0):
        model = mixture(balance)
        first = losses(train(model, texts, replace(CONFIG, num_steps=1), tmp_path / str(balance)))
        result[balance] = first, routers(model.lm)[0].weight.detach().clone()
    assert result[0.0][0] == result[10.0][0]
    assert not torch.equal(result[0.0][1], result[10.0][1])


@torch.no_grad()
def test_a_mixture_of_experts_goes_through_files_to_the_last_bit(tmp_path: Path) -> None:
    from engine.methods.multi_expert_files import load_multi_expert

    model = mixture().eval()
    for parameter in model.expert_parameters("one").values():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    loaded = load_multi_expert(*save(model, tmp_path))
    assert torch.equal(loaded(IDS, Rows.all_to("one", 2)), model(IDS, Rows.all_to("one", 2)))
    assert torch.equal(
        copy.deepcopy(loaded).full_model("one")(input_ids=IDS).logits, model.full_model("one")(input_ids=IDS).logits
    )
