"""DEMix and what it is compared with (Gururangan et al. 2021, §4.2; C-BTM §6): what sets each apart, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.config import ExpertsIn, LoraConfig, MethodName, MoeConfig


@dataclass(frozen=True)
class Method:
    """What a domain has of its own, and how batches are drawn; the sentence is for who must choose."""

    sentence: str
    experts_in: ExpertsIn = "ffn"
    only_expert: str = ""  # what the one expert is called that all domains train; empty: each domain has its own
    balanced: bool = True  # as many sequences of each domain in every batch
    frozen: bool = False  # the seed stays as it is, and is the base of the experts
    asks: str = ""  # its own group of knobs in a wish


METHODS: dict[MethodName, Method] = {
    "demix": Method("each domain has an expert: feed-forward networks of its own"),
    "dense": Method("one model for all domains, text drawn as much as there is", only_expert="dense", balanced=False),
    "dense-balanced": Method("one model for all domains, equal text of each", only_expert="dense"),
    "domain-token": Method("each domain has only a learned vector of its own, before the text", experts_in="token"),
    "lora": Method(
        "each domain has only a low-rank change of the seed", experts_in="adapter", frozen=True, asks="lora"
    ),
    "lora-mixed": Method(
        "one low-rank change of the seed for all domains, equal text of each",
        experts_in="adapter",
        only_expert="mixed",
        frozen=True,
        asks="lora",
    ),
    "moe": Method(
        "one model whose tokens choose among copies of its networks", only_expert="moe", balanced=False, asks="moe"
    ),
}
METHOD_OF_ONE: dict[ExpertsIn, MethodName] = {  # of an expert trained alone
    "ffn": "demix",
    "token": "domain-token",
    "adapter": "lora",
}


@dataclass(frozen=True)
class Recipe:
    """What a training makes of its seed: the method, and what only some methods ask."""

    method: MethodName = "demix"
    lora: LoraConfig = field(default_factory=LoraConfig)
    moe: MoeConfig = field(default_factory=MoeConfig)

    def learns(self, keys: Sequence[str]) -> Sequence[str] | None:
        """The experts that learn alone; None: all that they share learns, too."""
        return keys if METHODS[self.method].frozen else None
