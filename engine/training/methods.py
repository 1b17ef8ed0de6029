"""DEMix and the baselines it is compared with (Gururangan et al. 2021, §4.2): what sets each apart, in one table."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import ExpertsIn, MethodName


@dataclass(frozen=True)
class Method:
    """What a domain has of its own, and how batches are drawn; the sentence is for who must choose."""

    sentence: str
    experts_in: ExpertsIn = "ffn"
    one_expert: bool = False  # all domains train the same
    balanced: bool = True  # as many sequences of each domain in every batch


METHODS: dict[MethodName, Method] = {
    "demix": Method("each domain has an expert: feed-forward networks of its own"),
    "dense": Method("one model for all domains, text drawn as much as there is", one_expert=True, balanced=False),
    "dense-balanced": Method("one model for all domains, equal text of each", one_expert=True),
    "domain-token": Method("each domain has only a learned vector of its own, before the text", experts_in="token"),
}
METHOD_OF_ONE: dict[ExpertsIn, MethodName] = {"ffn": "demix", "token": "domain-token"}  # of an expert trained alone
