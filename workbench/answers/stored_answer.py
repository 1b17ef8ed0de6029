"""A stored answer of the API: the request and the sampling that make it again."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel

from engine.config import SamplingConfig
from workbench.answers.mixture_request import MixtureRequest
from workbench.answers.posteriors import Manifest

NUM_SEEDS = 2**64


class StoredChoice(BaseModel):
    """One text of a stored answer."""

    index: int
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class StoredAnswer(BaseModel):
    """A stored completion, or a stored answer in a conversation."""

    manifest: Manifest
    choices: list[StoredChoice]

    def request(self) -> MixtureRequest:
        """The request for the same experts, weights, parts and gate."""
        experts = self.manifest.experts
        return MixtureRequest(
            self.manifest.model,
            [one.name for one in experts],
            {one.name: one.weight for one in experts},
            self.manifest.gate,
            parts={one.name: one.parts for one in experts if one.parts is not None},
        )

    def sampling(self, choice: StoredChoice) -> SamplingConfig:
        """How the tokens of a choice were drawn; no more of them than it has."""
        given = dict(self.manifest.sampling or {})
        given["logit_bias"] = {int(token): bias for token, bias in given.get("logit_bias", {}).items()}
        first = SamplingConfig(**given)
        seed = None if first.seed is None else (first.seed + choice.index % self.manifest.n) % NUM_SEEDS
        return replace(first, seed=seed, max_tokens=max(1, len(choice.token_ids or ())), num_candidates=0)
