"""LoRA (Hu et al. 2021): beside each linear map of the seed a change of low rank."""

from __future__ import annotations

from dataclasses import replace

from engine.config import LoraConfig
from engine.methods.lora.flops import training_flops
from engine.methods.rows import RowMethod

_LORA = RowMethod(
    name="lora",
    title="LoRA",
    sentence="each domain has only a low-rank change of the seed",
    paper="Hu et al. 2021",
    expert_words="low-rank change",
    shared_words="the seed model beneath it",
    base_is_frozen=True,
    config=LoraConfig,
    config_field="lora",
    experts_in="adapter",
    placement="engine.methods.lora.placement:BesideLinear",
    frozen_flops=training_flops,
    adds_to_base=True,
)
METHOD = (
    _LORA,
    replace(
        _LORA,
        name="lora-mixed",
        title="LoRA (mixed)",
        sentence="one low-rank change of the seed for all domains, equal text of each",
        only_expert="mixed",
        method_of_copy=_LORA.name,
    ),
)
