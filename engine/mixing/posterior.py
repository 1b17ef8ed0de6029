"""The posterior over experts by Bayes' rule (DEMix §5.1, Eq. 7–8).

p(D=j | x_<t) ∝ p(x_<t | D=j) · p(D=j). `evidence="prefix"` is the paper: the likelihood of all that came before in the
block; `"last_token"` is the released code: only the token before. The first position has the prior itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import Evidence
from engine.mixing.base import FLOOR, keep_top, normalised_prior


class PosteriorGate:
    """Weights follow the evidence; `prior` holds one weight for each expert, in any scale."""

    def __init__(self, prior: Sequence[float], evidence: Evidence = "prefix", top_k: int | None = None) -> None:
        self.log_prior_E = normalised_prior(prior)
        self.evidence = evidence
        self.top_k = top_k

    def start(self) -> PosteriorStream:
        return PosteriorStream(self)

    def block(self, logprobs_ENT: Tensor) -> Tensor:
        seen_ENT = torch.zeros(logprobs_ENT.shape, dtype=torch.float64)
        before_ENT = logprobs_ENT[..., :-1].double().clamp(min=FLOOR)
        seen_ENT[..., 1:] = before_ENT.cumsum(-1) if self.evidence == "prefix" else before_ENT
        return self.weigh(seen_ENT)

    def weigh(self, evidence: Tensor) -> Tensor:
        """Log-weights from the evidence [E, …] (nats) and the prior."""
        prior = self.log_prior_E.view(-1, *[1] * (evidence.dim() - 1))
        return keep_top((evidence + prior).log_softmax(0), self.top_k)


class PosteriorStream:
    """The posterior on one growing text."""

    def __init__(self, gate: PosteriorGate) -> None:
        self._gate = gate
        self._evidence_E = torch.zeros_like(gate.log_prior_E)

    def log_weights(self) -> Tensor:
        return self._gate.weigh(self._evidence_E)

    def observe(self, logprobs_E: Tensor) -> None:
        new_E = logprobs_E.double().cpu().clamp(min=FLOOR)
        self._evidence_E = self._evidence_E + new_E if self._gate.evidence == "prefix" else new_E


def end_of_block_posteriors(gate: PosteriorGate, logprobs_ENT: Tensor) -> Tensor:
    """The posterior [E, N] after the whole of each block: what priors are estimated from (Eq. 9, §5.1 “Cached”)."""
    return gate.weigh(logprobs_ENT.double().clamp(min=FLOOR).sum(-1)).exp()
