"""Counted operations are those that PyTorch counts while it computes, and those of the paper's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engine.config import LoraConfig, ModelConfig, MoeConfig, TrainingConfig
from engine.events import Step
from engine.methods.base import StoredExpert
from engine.methods.demix import descriptor as demix_flops
from engine.methods.domain_token import descriptor as domain_token_flops
from engine.methods.lora import descriptor as lora_flops
from engine.methods.lora.adapters import fresh_adapter
from engine.methods.moe.upcycle import upcycle
from engine.methods.multi_expert_files import new_placement
from engine.models.expert_model import trainable
from engine.models.families import fresh_model
from engine.models.flops import Shape, forward_flops, training_flops
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.training.loop import train

TOKENS, ROWS, VOCAB = 64, 4, 400
TOLERANCE = 0.001  # rotary angles are a product, too
SHAPE = ModelConfig("llama", num_layers=3, width=48, num_heads=4, ffn_width=80, max_positions=128)


@pytest.fixture(autouse=True)
def products_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch does not count the products of oneDNN."""
    monkeypatch.setattr("engine.models.matrix_products.is_onednn_faster", lambda: False)


def model(family: Any) -> MultiExpertModel:
    return MultiExpertModel(fresh_model(replace(SHAPE, family=family), VOCAB), ["a", "b"], new_placement())


def counted(model: MultiExpertModel, *, backward: bool, only: list[str] | None = None) -> float:
    """Operations per token, as PyTorch's own counter sees them pass."""
    trainable(model, only)
    model.lm.set_attn_implementation("eager")  # the counter does not know the fused attention of a CPU
    rows = Rows(("a", "b"), (ROWS // 2, ROWS // 2)) if only is None else Rows.all_to("a", ROWS)
    with FlopCounterMode(display=False) as counter:
        logits = model(torch.ones(ROWS, TOKENS, dtype=torch.long), rows)
        if backward:
            logits.sum().backward()
    return counter.get_total_flops() / (ROWS * TOKENS)


def flops_of(only: list[str] | None) -> Callable[[Shape, int], int]:
    """The count of a training of these experts alone, or of everything."""
    return demix_flops.training_flops if only else training_flops


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_a_forward_pass_costs_what_is_counted(family: str) -> None:
    lm = model(family)
    expected = forward_flops(Shape.of(lm.lm.config.to_dict()), TOKENS)
    assert counted(lm, backward=False) == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("only", [None, ["a"]])
def test_an_update_costs_what_is_counted(family: str, only: list[str] | None) -> None:
    lm = model(family)
    expected = flops_of(only)(Shape.of(lm.lm.config.to_dict()), TOKENS)
    assert counted(lm, backward=True, only=only) == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_learning_a_vector_before_the_text_costs_what_is_counted(family: str) -> None:
    lm = MultiExpertModel(fresh_model(replace(SHAPE, family=family), VOCAB), ["a", "b"], new_placement("token"))
    expected = domain_token_flops.training_flops(Shape.of(lm.lm.config.to_dict()), TOKENS + 1) * (TOKENS + 1) / TOKENS
    assert counted(lm, backward=True, only=["a"]) == pytest.approx(expected, rel=0.005)  # one position has no logits


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize(("targets", "first_layer"), [("all", 0), ("attention", 0), ("attention", 2)])
def test_learning_adapters_costs_what_is_counted(family: str, targets: Any, first_layer: int) -> None:
    config = LoraConfig(rank=2, targets=targets, first_layer=first_layer)
    lm = new_placement("adapter").build(fresh_model(replace(SHAPE, family=family), VOCAB), ["a"], config)
    size = sum(parameter.numel() for parameter in lm.expert_parameters("a").values())
    stored = StoredExpert(size, {"lora": asdict(config)})
    expected = lm.training_flops(TOKENS, experts_only=True)
    assert lora_flops.METHOD[0].adapting_flops(Shape.of(lm.lm.config.to_dict()), TOKENS, stored) == expected
    assert counted(lm, backward=True, only=["a"]) == pytest.approx(expected, rel=0.005)  # the first maps cost less


@pytest.mark.parametrize("first_layer", [0, 2])
@pytest.mark.parametrize("embeddings", [True, False])
@pytest.mark.parametrize("targets", ["attention", "ffn", "all"])
def test_the_size_of_an_adapter_follows_from_the_shape_of_a_fresh_model(
    targets: Any, embeddings: bool, first_layer: int
) -> None:
    config = LoraConfig(rank=3, targets=targets, embeddings=embeddings, first_layer=first_layer)
    lm = fresh_model(SHAPE, VOCAB)
    shape = Shape.fresh(SHAPE, VOCAB)
    assert shape == Shape.of(lm.config.to_dict())
    adapter = fresh_adapter(lm, config)
    size = sum(tensor.numel() for name, tensor in adapter.items() if not name.endswith(".scale"))
    assert lora_flops.adapter_size(shape, config) == size


def test_a_mixture_of_experts_costs_its_active_networks_and_its_router() -> None:
    moe = upcycle(fresh_model(SHAPE, VOCAB), MoeConfig(num_experts=5))
    moe.set_experts_implementation("eager")  # the counter does not know the grouped product
    lm = MultiExpertModel(moe, ["a", "b"], new_placement())
    shape = Shape.of(lm.lm.config.to_dict())
    assert counted(lm, backward=False) == pytest.approx(forward_flops(shape, TOKENS), rel=TOLERANCE)
    assert counted(lm, backward=True) == pytest.approx(training_flops(shape, TOKENS), rel=TOLERANCE)
    assert counted(lm, backward=True, only=["a"]) == pytest.approx(
        demix_flops.training_flops(shape, TOKENS), rel=TOLERANCE
    )


def test_keys_of_fewer_heads_and_embeddings_of_another_width_are_counted_as_they_are() -> None:
    from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig, OPTConfig

    grouped: Any = LlamaConfig(
        hidden_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=80,
        num_hidden_layers=2,
        vocab_size=VOCAB,
    )
    narrow: Any = OPTConfig(
        hidden_size=48,
        word_embed_proj_dim=24,
        ffn_dim=80,
        num_attention_heads=4,
        num_hidden_layers=2,
        vocab_size=VOCAB,
        max_position_embeddings=128,
        dropout=0.0,
    )
    fused: Any = GPTNeoXConfig(
        hidden_size=48, intermediate_size=80, num_attention_heads=4, num_hidden_layers=2, vocab_size=VOCAB
    )
    for config in (grouped, narrow, fused):
        lm = MultiExpertModel(AutoModelForCausalLM.from_config(config), ["a", "b"], new_placement())
        assert counted(lm, backward=False) == pytest.approx(
            forward_flops(Shape.of(config.to_dict()), TOKENS), rel=TOLERANCE
        )


def test_a_mixture_costs_as_many_forward_passes_as_it_has_experts() -> None:
    shape = Shape.of(
        {
            "model_type": "opt",
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "ffn_dim": 128,
            "vocab_size": 300,
        }
    )
    assert forward_flops(shape, 128, 8) == 8 * forward_flops(shape, 128)


def test_every_update_says_what_it_cost(make_model, make_texts, tmp_path) -> None:
    config = TrainingConfig(num_steps=1, block_size=16, sequences_per_domain=3, accumulate=2, learning_rate=1e-3)
    for only in (None, ["law"]):
        lm, texts = make_model(["law", "code"]), make_texts(["law", "code"])
        events = train(lm, texts if only is None else texts[:1], config, tmp_path / str(only), only_experts=only)
        step = next(event for event in events if isinstance(event, Step))
        shape = Shape.of(lm.lm.config.to_dict())
        each = flops_of(only)(shape, 16)
        assert isinstance(step, Step)
        assert step.num_flops == each * step.num_tokens > 0
