"""A seed model as it is, for mixtures of it with its experts. It lies with the adapters, and adds nothing."""

from __future__ import annotations

from dataclasses import replace

from engine.methods.lora import descriptor as lora

_LORA = lora.METHOD[0]
METHOD = replace(
    _LORA,
    name="bare-seed",
    title="bare seed",
    sentence="the seed model as it is",
    paper="",
    expert_words="nothing",
    is_seed=True,
    is_trainable=False,
    is_joint=False,
    can_be_copied=False,
    method_of_copy=_LORA.name,
    is_adapter=False,
    imports="",
    config=None,
    config_field="options",
)
