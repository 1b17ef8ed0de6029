"""The posterior over experts by Bayes' rule, and priors that learn (DEMix §5.1, Eq. 7–9).

p(D=j | x_<t) ∝ p(x_<t | D=j) · p(D=j). `evidence="prefix"` is the paper: the likelihood of all that came before in the
block; `"last_token"` is the released code: only the token before. The first position of a block has the prior itself.

The *updating* prior is the exponentially weighted mean of the posteriors at the ends of the blocks so far (Eq. 9), the
newest with the share `newest_weight`: Eq. 9 with λ = 0.3 gives it 1 − λ = 0.7, the released code gives it 0.3.
Everything is kept as logarithms, so that an expert that one block found impossible can come back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.config import Evidence
from engine.errors import MixtureError
from engine.mixing.base import FLOOR, keep_top, normalised_prior
from engine.mixing.combine import mix


@dataclass(frozen=True)
class Belief:
    """All that a stream knows: the prior of this block, its evidence so far, and how far the block has come."""

    log_prior_E: Tensor
    evidence_E: Tensor  # nats
    position: int = 0
    log_mass: float = -math.inf  # of the weighted mean behind an updating prior


class PosteriorGate:
    """Weights follow the evidence; `prior` holds one weight for each expert, in any scale."""

    def __init__(self, prior: Sequence[float], evidence: Evidence = "prefix", top_k: int | None = None) -> None:
        self.log_prior_E = normalised_prior(prior)
        self.evidence = evidence
        self.top_k = top_k

    def start(self, belief: Belief | None = None) -> PosteriorStream:
        return PosteriorStream(self, belief or Belief(self.log_prior_E, torch.zeros_like(self.log_prior_E)))

    def block(self, logprobs_ENT: Tensor) -> Tensor:
        return self.weigh(self.seen(logprobs_ENT), self.log_prior_E)

    def total(self, logprobs_ENT: Tensor) -> float:
        if self.evidence == "prefix" and self.top_k is None:
            return float(self.whole_blocks(logprobs_ENT.sum(-1, dtype=torch.float64)).sum())
        return float(mix(self.block(logprobs_ENT), logprobs_ENT.double()).sum())

    def whole_blocks(self, logprobs_EN: Tensor) -> Tensor:
        """The mixture's log-likelihood [N] of whole blocks from those of the experts.

        With the whole prefix as evidence the sum over a block telescopes: Σ_t log Σ_e w_e(t) p_e(t) is
        log Σ_e prior_e Π_t p_e(t), so no token has to be looked at again.
        """
        return mix(self.log_prior_E, logprobs_EN)

    def seen(self, logprobs: Tensor) -> Tensor:
        """The evidence (nats) before each position of the last axis."""
        seen = torch.zeros(logprobs.shape, dtype=torch.float64)
        before = logprobs[..., :-1].double().clamp(min=FLOOR)
        seen[..., 1:] = before.cumsum(-1) if self.evidence == "prefix" else before
        return seen

    def seen_at_end(self, logprobs: Tensor) -> Tensor:
        """The evidence after the last position: what the posterior of a whole block rests on."""
        clamped = logprobs.double().clamp(min=FLOOR)
        return clamped.sum(-1) if self.evidence == "prefix" else clamped[..., -1]

    def weigh(self, evidence: Tensor, log_prior_E: Tensor) -> Tensor:
        """Log-weights from the evidence [E, …] (nats) and the prior."""
        prior = log_prior_E.view(-1, *[1] * (evidence.dim() - 1))
        return keep_top((evidence + prior).log_softmax(0), self.top_k)

    def learn(self, belief: Belief) -> Belief:
        """The belief after an observation: a fixed prior stays."""
        return belief


class UpdatingGate(PosteriorGate):
    """A posterior whose prior learns at the end of every block of `update_every` tokens."""

    def __init__(
        self, prior: Sequence[float], evidence: Evidence = "prefix", top_k: int | None = None,
        *, newest_weight: float = 0.7, update_every: int = 256,
    ) -> None:  # fmt: skip
        super().__init__(prior, evidence, top_k)
        self.log_decay = math.log1p(-newest_weight) if newest_weight < 1 else -math.inf
        self.update_every = update_every

    def block(self, logprobs_ENT: Tensor) -> Tensor:
        """Log-weights of blocks that follow one another: each begins with what the ones before taught."""
        belief = self.start().belief
        weights = []
        for logprobs_ET in logprobs_ENT.unbind(1):
            weights.append(self.weigh(self.seen(logprobs_ET), belief.log_prior_E))
            belief = self.next_block(self.after(belief, logprobs_ET))
        return torch.stack(weights, 1)

    def after(self, belief: Belief, logprobs_ET: Tensor) -> Belief:
        """The belief at the end of a block that it saw whole."""
        return replace(belief, evidence_E=self.seen_at_end(logprobs_ET))

    def whole_blocks(self, logprobs_EN: Tensor) -> Tensor:
        belief = self.start().belief
        totals = []
        for logprobs_E in logprobs_EN.unbind(1):
            totals.append(mix(belief.log_prior_E, logprobs_E))
            belief = self.next_block(replace(belief, evidence_E=logprobs_E.clamp(min=-1e9)))
        return torch.stack(totals)

    def next_block(self, belief: Belief) -> Belief:
        """The belief at the beginning of the next block (Eq. 9, as a running mean)."""
        posterior_E = (belief.evidence_E + belief.log_prior_E).log_softmax(0)
        older = belief.log_mass + self.log_decay
        mass = torch.tensor(older, dtype=torch.float64).logaddexp(torch.zeros((), dtype=torch.float64))
        mean_E = torch.logaddexp(belief.log_prior_E + older, posterior_E) - mass
        return Belief(mean_E, torch.zeros_like(mean_E), 0, float(mass))

    def learn(self, belief: Belief) -> Belief:
        return self.next_block(belief) if belief.position == self.update_every else belief


class PosteriorStream:
    """The posterior on one growing text. `belief` is all its state: a stream begun from it goes on as if uncut."""

    def __init__(self, gate: PosteriorGate, belief: Belief) -> None:
        self._gate = gate
        self.belief = belief

    def log_weights(self) -> Tensor:
        return self._gate.weigh(self.belief.evidence_E, self.belief.log_prior_E)

    def observe(self, logprobs_E: Tensor) -> None:
        new_E = logprobs_E.double().cpu().clamp(min=FLOOR)
        evidence_E = self.belief.evidence_E + new_E if self._gate.evidence == "prefix" else new_E
        self.belief = self._gate.learn(replace(self.belief, evidence_E=evidence_E, position=self.belief.position + 1))


def end_of_block_posteriors(gate: PosteriorGate, logprobs_ENT: Tensor) -> Tensor:
    """The posterior [E, N] after the whole of each block, each from the gate's own prior."""
    return (gate.seen_at_end(logprobs_ENT) + gate.log_prior_E[:, None]).softmax(0)


def estimate_prior(gate: PosteriorGate, logprobs_ENT: Tensor, num_blocks: int = 100) -> Tensor:
    """The *cached* prior [E]: the mean end-of-block posterior of exactly the first `num_blocks` blocks (§5.1).

    Raises MixtureError when there are fewer.
    """
    available = logprobs_ENT.shape[1]
    if available < num_blocks:
        raise MixtureError(
            f"A prior must be estimated on {num_blocks} blocks, but there are {available} instead.",
            "Score more held-out text, or ask for fewer blocks.",
        )
    return end_of_block_posteriors(gate, logprobs_ENT[:, :num_blocks]).mean(1)
