"""Sparse upcycling (Komatsuzaki et al. 2022), the baseline of C-BTM (Gururangan et al. 2023, §6)."""

from __future__ import annotations

from dataclasses import replace

from engine.config import MoeConfig
from engine.methods.demix import descriptor as demix

METHOD = replace(
    demix.METHOD,
    name="moe",
    title="mixture of experts",
    sentence="one model whose tokens choose among copies of its networks",
    paper="Komatsuzaki et al. 2022",
    only_expert="moe",
    balanced=False,
    method_of_copy=demix.METHOD.name,
    imports="",
    config=MoeConfig,
    config_field="moe",
    placement="engine.methods.moe.placement:Upcycled",
)
