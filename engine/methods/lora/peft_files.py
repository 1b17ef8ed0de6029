"""A LoRA expert as the files of a PEFT adapter, which `peft.PeftModel.from_pretrained` loads with the seed model.

Sources: https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from engine.methods.lora.adapters import Adapter, EmbeddingAdapter, adapters_of, all_places, is_transposed

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # of every module of a PeftModel
BASE_HASH = "base_weights_sha256"  # in the metadata of the tensors: the weights that the adapter belongs to


def save_adapter(
    lm: nn.Module,
    state: Mapping[str, Tensor],
    folder: Path,
    *,
    base_model: str,
    revision: str = "",
    base_weights_sha256: str = "",
) -> None:
    """Writes the adapter of a seed model `lm`; `base_model` is the folder or hub name that PEFT loads it with.

    Raises ModelError unless the state fits the model.
    """
    maps = {name: getattr(holder, attribute) for name, holder, attribute in all_places(lm)}
    adapters = adapters_of(state, maps)
    save_file(_tensors(adapters), folder / WEIGHTS, metadata={"format": "pt", BASE_HASH: base_weights_sha256})
    config = _config(adapters, base_model, revision, is_transposed=is_transposed(maps[place] for place in adapters))
    (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")


def _tensors(adapters: Mapping[str, Adapter]) -> dict[str, Tensor]:
    tensors = {}
    for name, adapter in adapters.items():
        is_embedding = isinstance(adapter, EmbeddingAdapter)
        for factor, tensor in (("A", adapter.down), ("B", adapter.up)):
            end = f"lora_embedding_{factor}" if is_embedding else f"lora_{factor}.weight"  # a parameter, or a map's
            tensors[f"{PREFIX}{name}.{end}"] = tensor.detach().cpu().contiguous()
    return tensors


def _config(adapters: Mapping[str, Adapter], base_model: str, revision: str, *, is_transposed: bool) -> dict[str, Any]:
    """PEFT's LoraConfig as JSON. Places whose rank or alpha is not the most frequent one are named by patterns."""
    ranks = {place: len(adapter.down) for place, adapter in adapters.items()}
    alphas = {place: float(adapter.scale) * ranks[place] for place, adapter in adapters.items()}
    rank, alpha = (Counter(values.values()).most_common(1)[0][0] for values in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "revision": revision or None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": is_transposed,
        "target_modules": sorted(adapters),
        "rank_pattern": {place: one for place, one in ranks.items() if one != rank},
        "alpha_pattern": {place: one for place, one in alphas.items() if one != alpha},
    }
