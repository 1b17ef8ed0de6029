"""Texts of one row whose positions begin anew: each is read as if it were alone, by every method, or refused.

Logits agree within 1e-5 in fp32: a row with a mask is computed by another kernel than a text by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import LoraConfig
from engine.errors import ModelError, TrainingError
from engine.methods.lora.adapters import fresh_adapter
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.row_registry import new_placement
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.models.separation import require_separation
from tests.engine.models.tiny_families import VOCAB, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore")  # what transformers warns of in some family
LENGTHS = ((5, 9, 4), (11, 1, 6))  # of the texts of each row; what comes last stands for padding
CLOSE = {"atol": 1e-5, "rtol": 0.0}
IDS = torch.randint(VOCAB, (2, 18), generator=torch.Generator().manual_seed(1))
POSITIONS = torch.stack([torch.cat([torch.arange(length) for length in lengths]) for lengths in LENGTHS])


def row_model(lm: Any, experts_in: str, keys: list[str]) -> MultiExpertModel:
    """Experts that differ."""
    adapter = fresh_adapter(lm, LoraConfig(rank=2)) if experts_in == "adapter" else None
    model = MultiExpertModel(lm, [] if adapter else keys, new_placement(experts_in)).eval()
    for key in keys if adapter else []:
        model.add_expert(key, state=adapter)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for key in keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


def dense(lm: Any) -> MultiExpertModel:
    return row_model(lm, "ffn", ["a"])


def demix(lm: Any) -> MultiExpertModel:
    return row_model(lm, "ffn", ["a", "b"])


def lora(lm: Any) -> MultiExpertModel:
    return row_model(lm, "adapter", ["a", "b"])


def mode(lm: Any) -> ActiveExperts:
    model = ModeModel(lm, 1)
    model.add_expert("part", ModeConfig(1, 1))
    with torch.no_grad():
        for parameter in model.expert_parameters("part").values():
            parameter.add_(0.02)
    return ActiveExperts(model, ["part"], "a").eval()


METHODS: dict[str, Callable[[Any], Any]] = {"dense": dense, "DEMix": demix, "LoRA": lora, "MoDE": mode}
EVERY_METHOD = ("gemma", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3")
SEVERAL_KINDS_OF_LAYERS = ("cohere2", "gemma2", "gemma3_text", "gemma4_text", "olmo3")  # which MoDE refuses
CASES = [
    *((family, method) for family in EVERY_METHOD for method in METHODS),
    *((family, method) for family in SEVERAL_KINDS_OF_LAYERS for method in METHODS if method != "MoDE"),
]


def rows_of(model: Any) -> Rows:
    return Rows.one_each(model.keys) if len(model.keys) > 1 else Rows.all_to(model.keys[0], 2)


def pieces() -> list[tuple[int, slice]]:
    """Row and place of every text."""
    return [
        (row, slice(sum(lengths[:n]), sum(lengths[: n + 1]))) for row, lengths in enumerate(LENGTHS) for n in range(3)
    ]


def alone(model: Any, row: int, ids: Tensor) -> Tensor:
    return model(ids[None], Rows.all_to(model.keys[row % len(model.keys)], 1))[0]


@pytest.mark.parametrize(("family", "method"), CASES)
@torch.no_grad()
def test_each_text_of_a_row_is_read_as_if_it_were_alone(family: str, method: str) -> None:
    model = METHODS[method](tiny_model(family))
    targets, rows = IDS.roll(1, 1), rows_of(model)
    logits = model(IDS, rows, position_ids_BT=POSITIONS)
    likelihoods = model.log_likelihoods(IDS, targets, rows, position_ids_BT=POSITIONS)
    for row, place in pieces():
        expected = alone(model, row, IDS[row, place])
        torch.testing.assert_close(logits[row, place], expected, **CLOSE)
        chosen = expected.log_softmax(-1).gather(-1, targets[row, place, None])[..., 0]
        torch.testing.assert_close(likelihoods[row, place], chosen, **CLOSE)
    assert not torch.allclose(model(IDS, rows)[0, 5:14], logits[0, 5:14], atol=1e-3)
    require_separation(model, 64)


@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_of_a_row_is_the_sum_of_those_of_its_texts(method: str) -> None:
    model = METHODS[method](tiny_model("qwen3"))
    parameters = {name: one for key in model.keys for name, one in model.expert_parameters(key).items()}
    model(IDS, rows_of(model), position_ids_BT=POSITIONS).logsumexp(-1).sum().backward()
    together = {name: parameter.grad for name, parameter in parameters.items()}
    for parameter in parameters.values():
        parameter.grad = None
    for row, place in pieces():
        alone(model, row, IDS[row, place]).logsumexp(-1).sum().backward()
    for name, parameter in parameters.items():
        tolerance = 1e-5 * max(float(parameter.grad.norm()), 1.0)
        assert float((together[name] - parameter.grad).norm()) <= tolerance, name
    assert any(float(parameter.grad.norm()) > 1e-2 for parameter in parameters.values())


@torch.no_grad()
def test_what_comes_after_the_last_conversation_has_no_part_in_it() -> None:
    model = dense(tiny_model("gemma3_text"))
    other = IDS.clone()
    other[0, 14:] = 0
    ours, theirs = (model(ids, rows_of(model), position_ids_BT=POSITIONS) for ids in (IDS, other))
    assert torch.equal(ours[0, :14], theirs[0, :14])
    assert not torch.equal(ours[0, 14:], theirs[0, 14:])


@pytest.mark.parametrize("family", ["bloom", "gpt_oss", "jamba", "opt", "qwen3_next", "xlnet"])
def test_a_family_that_does_not_keep_texts_apart_is_refused(family: str) -> None:
    """Biases by distance, recurrent layers, and masks that are made without positions."""
    model = dense(tiny_model(family))
    for block_size, bf16 in ((8, False), (1024, False), (1024, True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16), pytest.raises(TrainingError) as refused:
            require_separation(model, block_size)
        assert "cannot keep the conversations of a block apart" in refused.value.cause


@pytest.mark.parametrize("family", ["gemma3_text", "mixtral", "qwen3"])
def test_a_family_that_does_is_not_refused_in_bf16(family: str) -> None:
    model = dense(tiny_model(family))
    for block_size in (8, 1024):
        with torch.autocast("cpu", torch.bfloat16):
            require_separation(model, block_size)


def test_positions_that_are_not_those_of_a_text_alone_are_refused() -> None:
    """Texts that do not read each other are not enough."""
    model = dense(tiny_model("gpt2"))
    shifted = torch.arange(64).roll(1)
    model.lm.transformer.wpe.register_forward_pre_hook(lambda _, inputs: (shifted[inputs[0].cumsum(-1) % 64],))
    with pytest.raises(TrainingError, match="apart"):
        require_separation(model, 64)


def test_experts_before_the_text_are_refused() -> None:
    model = MultiExpertModel(tiny_model("llama"), ["a"], new_placement("token"))
    with pytest.raises(ModelError, match="stand before the text"):
        model(IDS, rows_of(model), position_ids_BT=POSITIONS)
