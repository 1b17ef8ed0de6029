"""Sparse upcycling (Komatsuzaki et al. 2022), the baseline of C-BTM (Gururangan et al. 2023, §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from engine.config import MoeConfig
from engine.methods.base import Parameters, StoredExpert
from engine.methods.demix import descriptor as demix
from engine.methods.rows import RowMethod
from engine.models.flops import Shape


@dataclass(frozen=True, kw_only=True)
class Moe(RowMethod):
    """Networks and routers in the place of the seed's networks; a token goes through some of them."""

    def trained_parameters(self, of_seed: int, shape: Shape, num_domains: int) -> int | None:
        del num_domains
        networks = MoeConfig().num_experts - 1
        return of_seed + shape.num_layers * (networks * shape.ffn // 2 + MoeConfig().num_experts * shape.width)

    def parameters(self, of_seed: int, seed_config: Mapping[str, Any], expert: StoredExpert) -> Parameters:
        shape = Shape.of(seed_config)
        network, column = shape.num_layers * shape.ffn // 2, shape.num_layers * shape.width  # a router's for each
        num_networks = expert.num_parameters // (network + column)
        active = min(num_networks, expert.config.get("moe", {}).get("active_experts", MoeConfig().active_experts))
        total = of_seed - network + expert.num_parameters
        return Parameters(total, expert.num_parameters, total - (num_networks - active) * network)


_OF_DEMIX: dict[str, Any] = {field.name: getattr(demix.METHOD, field.name) for field in fields(demix.METHOD)}
METHOD = Moe(
    **_OF_DEMIX
    | {
        "name": "moe",
        "title": "MoE",
        "sentence": "one model whose tokens choose among copies of its networks",
        "paper": "Komatsuzaki et al. 2022",
        "only_expert": "moe",
        "balanced": False,
        "method_of_copy": demix.METHOD.name,
        "imports": "",
        "config": MoeConfig,
        "config_field": "moe",
        "placement": "engine.methods.moe.upcycle:Upcycled",
    }
)
