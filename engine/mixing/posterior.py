"""The posterior over experts by Bayes' rule, and priors that learn (DEMix §5.1, Eq. 7–9).

p(D=j | x_<t) ∝ p(x_<t | D=j) · p(D=j). `evidence="prefix"` is the paper: the likelihood of all that came before in the
block; `"last_token"` is the released code: only the token before. An `EvidenceRule` is any reading between and around
them: evidence that forgets, and a likelihood to a power. The first position of a block has the prior itself.

The *updating* prior is the exponentially weighted mean of the posteriors at the ends of the blocks so far (Eq. 9), the
newest with the share `newest_weight`: Eq. 9 with λ = 0.3 gives it 1 − λ = 0.7, the released code gives it 0.3; λ = 1,
a share of 0, is the plain mean of all blocks, where the newest counts like the others. Its
blocks are `update_every` tokens of one stream, in generation as in scores, however long the scored blocks are: those
are read one after another, as in the paper, where both are of one length.
Everything is kept as logarithms, so that an expert whose weight underflows in one block can come back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config import PAPER_BLOCKS, PAPER_NEWEST_WEIGHT
from engine.errors import MixtureError
from engine.mixing.base import FLOOR, BlockGate, Weigher, keep_top, mix, normalised_prior
from engine.mixing.evidence import READINGS, AnyEvidence, rule_of
from engine.mixing.score_sums import posterior_sums

if TYPE_CHECKING:
    from engine.clusters.distances import Distances

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StreamState:
    """The state of a stream: the prior of this block, its evidence so far, and the position in the block."""

    log_prior_E: Tensor
    evidence_E: Tensor  # nats, before the power
    position: int = 0
    log_mass: float = -math.inf  # of the weighted mean behind an updating prior
    slow_E: Tensor | None = None  # slow evidence, nats, before its power; None of a gate without it


class PosteriorGate(BlockGate):
    """Weights by Bayes' rule; `prior` holds one weight for each expert, in any scale."""

    needs_logprobs = True

    def __init__(self, prior: Sequence[float], evidence: AnyEvidence = "prefix", top_k: int | None = None) -> None:
        self.log_prior_E = normalised_prior(prior)
        self.evidence = rule_of(evidence)
        self.top_k = top_k

    def start(self, belief: StreamState | None = None) -> PosteriorStream:
        return PosteriorStream(self, belief or self._unseen(self.log_prior_E))

    def _unseen(self, log_prior_E: Tensor, log_mass: float = -math.inf) -> StreamState:
        """The belief before the first token of a block."""
        nothing_E = torch.zeros_like(self.log_prior_E)
        return StreamState(log_prior_E, nothing_E, 0, log_mass, nothing_E if self.evidence.slow_power else None)

    def weigher(self, logprobs_ENT: Tensor, _distances: Distances | None) -> Weigher:
        priors_EN1 = self._block_priors(logprobs_ENT)[..., None]
        return lambda blocks, some_ENT: self.weigh(
            self.evidence_before(some_ENT), priors_EN1[:, blocks.start : blocks.stop]
        )

    def total(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> float:
        if self.evidence == READINGS["prefix"] and self.top_k is None and self._is_above_floor(logprobs_ENT):
            # Σ_t log Σ_e w_e(t) p_e(t) telescopes to log Σ_e prior_e Π_t p_e(t): no sum over tokens is needed
            return float(mix(self._block_priors(logprobs_ENT), logprobs_ENT.sum(-1, dtype=torch.float64)).sum())
        priors_EN = self._block_priors(logprobs_ENT).numpy()
        total = float(posterior_sums(priors_EN, logprobs_ENT.numpy(), self.evidence, self.top_k, FLOOR).sum())
        return float(self.mixed(logprobs_ENT).sum()) if math.isnan(total) else total

    def _is_above_floor(self, logprobs_ENT: Tensor) -> bool:
        """Whether evidence is the plain sum of what was seen: less than FLOOR counts as FLOOR, so sums are not it."""
        active_ENT = logprobs_ENT[self.log_prior_E > -torch.inf]
        return not active_ENT.numel() or bool(active_ENT.min() >= FLOOR)  # not of NaN either

    def priors(self, logprobs_ENT: Tensor) -> Tensor:
        """The log-prior [E, N+1] before each block and after the last."""
        return self.log_prior_E[:, None].expand(-1, logprobs_ENT.shape[1] + 1)

    def _block_priors(self, logprobs_ENT: Tensor) -> Tensor:
        """The log-prior [E, N] at the beginning of each block."""
        return self.priors(logprobs_ENT)[:, :-1]

    def evidence_before(self, logprobs: Tensor) -> Tensor:
        """The evidence (nats, with its power) before each position of the last axis."""
        seen = torch.zeros(logprobs.shape, dtype=torch.float64)
        before, rule = logprobs[..., :-1].double().clamp(min=FLOOR), self.evidence
        slow = _decayed_sums(before, rule.slow_decay) if rule.slow_power else None
        seen[..., 1:] = self._with_power(_decayed_sums(before, rule.decay), slow)
        return seen

    def evidence_at_end(self, logprobs: Tensor) -> Tensor:
        """The evidence after the last position: that of the posterior of the full block."""
        rule = self.evidence
        slow = _decayed_sum(logprobs, rule.slow_decay) if rule.slow_power else None
        return self._with_power(_decayed_sum(logprobs, rule.decay), slow)

    def evidence_of(self, belief: StreamState) -> Tensor:
        """The evidence [E] of a stream."""
        return self._with_power(belief.evidence_E, belief.slow_E)

    def _with_power(self, fast: Tensor, slow: Tensor | None) -> Tensor:
        """The evidence, from the decayed sums of log-likelihoods."""
        powered = fast if self.evidence.power == 1 else fast * self.evidence.power
        return powered if slow is None else torch.add(powered, slow, alpha=self.evidence.slow_power)

    def weigh(self, evidence: Tensor, log_prior: Tensor) -> Tensor:
        """Log-weights from the evidence [E, …] (nats) and the prior."""
        return keep_top(evidence + log_prior, self.top_k)

    def learn(self, belief: StreamState) -> StreamState:
        """The belief after an observation; here the prior stays."""
        return belief


def _decayed_sums(values: Tensor, decay: float) -> Tensor:
    """The sums of float64 values along the last axis, each earlier one times `decay` for every step since."""
    if decay == 1:
        return values.cumsum(-1)
    if decay == 0 or not values.numel():
        return values
    from scipy.signal import lfilter  # the recurrence of a stream, to the bit; imported late, since it takes a while

    return torch.from_numpy(lfilter([1.0], [1.0, -decay], values.numpy()))


def _decayed_sum(values: Tensor, decay: float) -> Tensor:
    """The last of such sums of log-likelihoods."""
    if decay == 0:
        values = values[..., -1:]
    elif decay < 1:
        ages = torch.arange(values.shape[-1] - 1, -1, -1, dtype=torch.float64)
        return values.double().clamp(min=FLOOR) @ decay**ages
    return values.clamp(min=FLOOR).sum(-1, dtype=torch.float64)


class UpdatingGate(PosteriorGate):
    """A posterior whose prior is updated after every `update_every` tokens of a stream, where evidence starts again.

    Blocks are read as one stream, one after another.
    """

    def __init__(
        self,
        prior: Sequence[float],
        evidence: AnyEvidence = "prefix",
        top_k: int | None = None,
        *,
        newest_weight: float = PAPER_NEWEST_WEIGHT,
        update_every: int = 256,
    ) -> None:
        super().__init__(prior, evidence, top_k)
        self.log_decay = math.log1p(-newest_weight) if newest_weight < 1 else -math.inf
        self.update_every = update_every

    def block(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> Tensor:
        log_weights = super().block(self._between_updates(logprobs_ENT))
        return log_weights.flatten(1)[:, : logprobs_ENT[0].numel()].view(logprobs_ENT.shape)

    def mixed(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> Tensor:
        mixed = super().mixed(self._between_updates(logprobs_ENT))
        return mixed.flatten()[: logprobs_ENT[0].numel()].view(logprobs_ENT.shape[1:])

    def total(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> float:
        return super().total(self._between_updates(logprobs_ENT))

    def _between_updates(self, logprobs_ENT: Tensor) -> Tensor:
        """The same tokens in blocks at whose ends the prior learns; the end of the last block is filled with 0."""
        num_experts, num_blocks, block_size = logprobs_ENT.shape
        size = min(self.update_every, num_blocks * block_size)
        if size == block_size:
            return logprobs_ENT
        missing = -(num_blocks * block_size) % size
        return torch.nn.functional.pad(logprobs_ENT.flatten(1), (0, missing)).view(num_experts, -1, size)

    def priors(self, logprobs_ENT: Tensor) -> Tensor:
        """The log-prior [E, N+1] before each of consecutive blocks of `update_every` tokens, and after the last."""
        seen_EN = self.evidence_at_end(logprobs_ENT).numpy()
        return torch.from_numpy(self.priors_after(self.log_prior_E.numpy(), seen_EN))

    def priors_after(self, log_prior_E: Floats, seen_EN: Floats) -> Floats:
        """The same from the evidence at the end of each block; also of several texts [E, N, …] side by side."""
        prior_E, log_mass = log_prior_E.reshape(-1, *[1] * (seen_EN.ndim - 2)), -math.inf
        priors = [np.broadcast_to(prior_E, seen_EN[:, 0].shape)]
        for evidence_E in np.ascontiguousarray(np.moveaxis(seen_EN, 1, 0)):
            prior_E, log_mass = self._updated_prior(prior_E, log_mass, evidence_E)
            priors.append(prior_E)
        return np.stack(priors, 1)

    def _updated_prior(self, log_prior_E: Floats, log_mass: float, evidence_E: Floats) -> tuple[Floats, float]:
        """The log-prior after a block, and the mass behind it (Eq. 9, as a running mean).

        In NumPy: for a few numbers a call of torch takes ten times as long.
        """
        joint_E = log_prior_E + evidence_E
        posterior_E = joint_E - np.logaddexp.reduce(joint_E)
        older = log_mass + self.log_decay
        mass = np.logaddexp(older, 0.0)
        return np.logaddexp(log_prior_E + older, posterior_E) - mass, float(mass)

    def learn(self, belief: StreamState) -> StreamState:
        if belief.position < self.update_every:
            return belief
        seen_E = self.evidence_of(belief).numpy()
        prior_E, log_mass = self._updated_prior(belief.log_prior_E.numpy(), belief.log_mass, seen_E)
        return self._unseen(torch.from_numpy(prior_E), log_mass)


class PosteriorStream:
    """The posterior on one growing text. `belief` is its full state: a stream started from it continues exactly."""

    def __init__(self, gate: PosteriorGate, belief: StreamState) -> None:
        self._gate = gate
        self.belief = belief

    def log_weights(self) -> Tensor:
        return self._gate.weigh(self._gate.evidence_of(self.belief), self.belief.log_prior_E)

    def begin(self, token: int) -> None:
        """Does nothing: a token that no expert predicted is not evidence."""

    def observe(self, logprobs_E: Tensor, _token: int) -> None:
        new_E = logprobs_E.cpu().double().clamp(min=FLOOR)
        before, rule = self.belief, self._gate.evidence
        evidence_E = rule.decay * before.evidence_E + new_E
        slow_E = None if before.slow_E is None else rule.slow_decay * before.slow_E + new_E
        after = replace(before, evidence_E=evidence_E, slow_E=slow_E, position=before.position + 1)
        self.belief = self._gate.learn(after)


def end_of_block_posteriors(gate: PosteriorGate, logprobs_ENT: Tensor) -> Tensor:
    """The posterior [E, N] at the end of each block, each from the gate's own prior."""
    return (gate.evidence_at_end(logprobs_ENT) + gate.log_prior_E[:, None]).softmax(0)


def estimate_prior(gate: PosteriorGate, logprobs_ENT: Tensor, num_blocks: int = PAPER_BLOCKS) -> Tensor:
    """The *cached* prior [E]: the mean end-of-block posterior of exactly the first `num_blocks` blocks (§5.1).

    Raises MixtureError when there are fewer.
    """
    available = logprobs_ENT.shape[1]
    if available < num_blocks:
        raise MixtureError(
            f"Estimating this prior needs {num_blocks} blocks; there are {available}.",
            "Score more held-out text, or choose fewer blocks.",
        )
    return end_of_block_posteriors(gate, logprobs_ENT[:, :num_blocks]).mean(1)
