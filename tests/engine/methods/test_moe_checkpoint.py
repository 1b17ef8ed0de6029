"""DEMix experts as one mixture-of-experts checkpoint: plain transformers loads it and adds the networks' outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from engine.errors import ModelError
from engine.events import Progress
from engine.methods.moe import checkpoint
from engine.methods.moe.checkpoint import as_moe

TOLERANCE = 1e-6  # the sums are the same in another order; logits are below 1. Measured: 1.5e-7
VOCAB, NETWORK = 97, 0.05
SHAPE = {  # the fields of the families' published configurations, small
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
ROPE = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FAMILIES: dict[str, tuple[dict[str, Any], str]] = {
    "llama": ({"rope_parameters": {**ROPE, "original_max_position_embeddings": 16}}, "mixtral"),  # of Llama 3.1
    "mistral": ({"sliding_window": 6}, "mixtral"),
    "qwen3": ({"head_dim": 16, "tie_word_embeddings": True}, "qwen3_moe"),  # of Qwen3-0.6B
    "olmo2": ({}, "flex_olmo"),
}
IDS = torch.arange(24)[None] % VOCAB


def expert(family: str, number: int = 0, **changes: Any) -> Any:
    """A model whose networks alone depend on its number."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SHAPE, **FAMILIES.get(family, ({}, ""))[0], **changes})
    lm = AutoModelForCausalLM.from_config(config).eval()
    torch.manual_seed(number)
    with torch.no_grad():
        for layer in lm.model.layers:
            for parameter in layer.mlp.parameters():
                parameter.add_(NETWORK * number * torch.randn_like(parameter))
    return lm


class WeightedNetworks(nn.Module):
    """What the checkpoint must compute in each layer."""

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.weights = [weight / sum(weights) for weight in weights]

    def forward(self, x: Tensor) -> Tensor:
        outputs = [weight * own(x) for weight, own in zip(self.weights, self.networks, strict=True)]
        return torch.stack(outputs).sum(0)


def combined(experts: Sequence[Any], weights: Sequence[float]) -> Any:
    names = [str(number) for number in range(len(experts))]
    models = {name: (lambda one=one: one) for name, one in zip(names, experts, strict=True)}
    *progress, moe = as_moe(models, dict(zip(names, weights, strict=True)))
    assert all(isinstance(one, Progress) for one in progress)
    return moe


@torch.no_grad()
def logits(lm: Any) -> Tensor:
    out: Tensor = lm.eval()(input_ids=IDS).logits
    return out


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 1, 2), (1, 0, 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_reloaded_checkpoint_adds_the_outputs_of_all_networks(
    tmp_path: Path, family: str, weights: tuple[float, ...]
) -> None:
    experts = [expert(family, number) for number in (1, 2, 3)]
    combined(experts, weights).save_pretrained(tmp_path)
    expected = expert(family, 1)
    for number, layer in enumerate(expected.model.layers):
        layer.mlp = WeightedNetworks([one.model.layers[number].mlp for one in experts], weights)
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert reloaded.config.model_type == FAMILIES[family][1]
    assert reloaded.config.num_experts_per_tok == sum(weight > 0 for weight in weights)
    torch.testing.assert_close(logits(reloaded), logits(expected), atol=TOLERANCE, rtol=0)
    assert (logits(reloaded) - logits(experts[0])).abs().max() > 100 * TOLERANCE


def test_tensors_have_the_names_of_published_checkpoints(tmp_path: Path) -> None:
    """As in https://huggingface.co/mistralai/Mixtral-8x7B-v0.1, which servers read by these names."""
    combined([expert("llama", 1), expert("llama", 2)], (1, 1)).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = {name for name in file.keys() if ".layers.0." in name and "moe" in name}  # noqa: SIM118
    stem = "model.layers.0.block_sparse_moe"
    assert names == {
        f"{stem}.gate.weight",
        *(f"{stem}.experts.{expert}.w{map}.weight" for expert in (0, 1) for map in (1, 2, 3)),
    }


def other_attention() -> list[Any]:
    one, two = expert("llama", 1), expert("llama", 2)
    with torch.no_grad():
        two.model.layers[1].self_attn.q_proj.weight.add_(1e-3)
    return [one, two]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: [expert("llama", 1)], "needs two"),
        (other_attention, "differ in “model.layers.1.self_attn.q_proj.weight”"),
        (lambda: [expert("llama", n, mlp_bias=True) for n in (1, 2)], "has no place for “model.layers.0.mlp.down_proj"),
        (lambda: [expert("llama", n, attention_bias=True) for n in (1, 2)], "has no place for .*self_attn"),
        (lambda: [expert("gemma", n, head_dim=8) for n in (1, 2)], "Supported families: llama, mistral, qwen3, olmo2"),
        (
            lambda: [
                expert("qwen3", n, use_sliding_window=True, max_window_layers=1, sliding_window=6) for n in (1, 2)
            ],
            "sliding attention in some layers",
        ),
    ],
)
def test_what_the_checkpoint_cannot_express_is_refused(make: Any, words: str) -> None:
    experts = make()
    with pytest.raises(ModelError, match=words) as refused:
        combined(experts, [1] * len(experts))
    assert refused.value.next_step


def test_large_logits_round_by_more_and_are_still_those_of_the_model() -> None:
    """As those of pretrained models, of which some are 36 and others near 0."""
    lms = [expert("llama", number) for number in (0, 1)]
    for lm in lms:
        lm.lm_head.weight.data.mul_(1e5)
    moe = combined(lms, [1.0, 1.0])
    assert float(logits(moe).abs().max()) > 1e3


def test_a_counterpart_that_computes_otherwise_is_refused_whatever_its_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    lms = [expert("llama", number) for number in (0, 1)]
    for lm in lms:
        lm.lm_head.weight.data.mul_(1e5)
    real = checkpoint._empty
    monkeypatch.setattr(checkpoint, "_empty", lambda lm, *sizes: _with_other_positions(real(lm, *sizes)))
    with pytest.raises(ModelError, match="computes otherwise"):
        combined(lms, [1.0, 1.0])


def _with_other_positions(moe: Any) -> Any:
    moe.model.rotary_emb.inv_freq.mul_(3)
    return moe
