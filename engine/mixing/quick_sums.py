"""A mixture's log-likelihood of a text from likelihoods and evidence that are kept, in float32 with a float64 total.

It differs from the sum of a gate's `mixed` by the rounding of float32, some 1e-7 of it (a test). Where that is not
so, as for tokens that no expert finds possible, the total is NaN and `engine.mixing.score_sums` has to sum.
Letters: E experts, N blocks, X tokens, C consecutive tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_PORTION = 1 << 16  # numbers: of 256 KB in float32 a core's cache holds a few
_LEAST_WEIGHT, _LEAST_LIKELIHOOD = np.float32(-60), np.float32(-80)  # logs: less would take no part, and much longer
_UNSURE = 1e-19  # a sum below would be of raised numbers by more than the rounding of float32


def likelihoods_of(logprobs_X: Floats) -> Floats:
    """The probability of each token, without numbers so small that processors are slow with them."""
    powers_X: Floats = np.exp(np.maximum(logprobs_X, _LEAST_LIKELIHOOD))
    return powers_X


@np.errstate(invalid="ignore", divide="ignore")
def fixed_total(weights_E: NDArray[np.float64], likelihoods: Sequence[Floats]) -> float:
    """Σ_x log Σ_e w_e · p_e(x); NaN where that is not sure."""
    num_tokens, weights, total = len(likelihoods[0]), weights_E.astype(np.float32), 0.0
    scratch_2C = np.empty((2, min(num_tokens, _PORTION)), np.float32)
    for first in range(0, num_tokens, _PORTION):
        sums_C, one_C = scratch_2C[:, : min(_PORTION, num_tokens - first)]
        sums_C[:] = 0
        for weight, likelihoods_X in zip(weights, likelihoods, strict=True):
            sums_C += np.multiply(likelihoods_X[first : first + _PORTION], weight, out=one_C)
        total += _log_total(sums_C)
    return total


@np.errstate(invalid="ignore", divide="ignore")
def weighted_total(
    log_prior_EN: NDArray[np.float64],
    evidence: Sequence[Floats],
    likelihoods: Sequence[Floats],
    block_size: int,
    top_k: int | None,
) -> float:
    """The same with weights in proportion to prior · exp(evidence), of the best `top_k`; a prior for each block.

    All evidence may be beside the real one by a number of its own for each token.
    """
    num_experts, num_tokens = len(evidence), len(likelihoods[0])
    size = max(1, _PORTION // (num_experts * block_size)) * block_size
    scratch = np.empty((2, num_experts, min(size, num_tokens)), np.float32)
    priors_EN, total = log_prior_EN.astype(np.float32), 0.0
    is_constant = bool((priors_EN == priors_EN[:, :1]).all())
    for first in range(0, num_tokens, size):
        stop = min(first + size, num_tokens)
        joint_EC, other_EC = scratch[:, :, : stop - first]
        for place, evidence_X in enumerate(evidence):
            prior: Floats | np.float32 = priors_EN[place, 0]
            if not is_constant:
                of_blocks_N = priors_EN[place, first // block_size : -(-stop // block_size)]
                prior = np.repeat(of_blocks_N, block_size)[: stop - first]
            np.add(evidence_X[first:stop], prior, out=joint_EC[place])
        total += _portion_total(joint_EC, other_EC, [one_X[first:stop] for one_X in likelihoods], top_k)
    return total


def _portion_total(joint_EC: Floats, scratch_EC: Floats, likelihoods: Sequence[Floats], top_k: int | None) -> float:
    is_best_EC = None
    if top_k is not None and top_k < len(joint_EC):
        best = _best(joint_EC, top_k)
        is_best_EC, greatest_C = _is_best(joint_EC, best[-1], top_k), best[0]
    else:
        greatest_C = joint_EC.max(0)
    np.subtract(joint_EC, greatest_C, out=joint_EC)
    np.maximum(joint_EC, _LEAST_WEIGHT, out=joint_EC)
    np.exp(joint_EC, out=joint_EC)
    if is_best_EC is not None:
        np.multiply(joint_EC, is_best_EC, out=joint_EC)
    totals_C = joint_EC.sum(0)
    for weights_C, shares_C, likelihoods_C in zip(joint_EC, scratch_EC, likelihoods, strict=True):
        np.multiply(weights_C, likelihoods_C, out=shares_C)
    return _log_total(scratch_EC.sum(0), totals_C)


def _log_total(sums_C: Floats, totals_C: Floats | None = None) -> float:
    if not sums_C.min() > _UNSURE:  # also of NaN
        return float("nan")
    shares_C = sums_C if totals_C is None else np.divide(sums_C, totals_C, out=sums_C)
    return float(np.log(shares_C, out=shares_C).sum(dtype=np.float64))


def _is_best(logs_EC: Floats, least_C: Floats, top_k: int) -> NDArray[np.bool_]:
    """Which are the `top_k` largest of each column, of equal ones those that come first."""
    is_best_EC = logs_EC >= least_C
    if np.count_nonzero(is_best_EC) > top_k * logs_EC.shape[1]:
        counts_C = is_best_EC.view(np.uint8).sum(0, dtype=np.min_scalar_type(len(logs_EC)))
        columns = np.flatnonzero(counts_C > top_k)
        order_EM = np.argsort(-logs_EC[:, columns], axis=0, kind="stable")
        is_best_EC[order_EM[top_k:], columns] = False
    return is_best_EC


def _best(logs_EC: Floats, k: int) -> list[Floats]:
    """The k largest numbers of each column, in order: each row passes the best so far, and pushes out a smaller."""
    best = list(np.empty((k, logs_EC.shape[1]), np.float32))
    smaller = list(np.empty((2, logs_EC.shape[1]), np.float32))
    for number, passed_C in enumerate(logs_EC):
        for place in range(min(number, k - 1)):
            next_C = np.minimum(best[place], passed_C, out=smaller[place % 2])
            np.maximum(best[place], passed_C, out=best[place])
            passed_C = next_C
        if number < k:
            best[number][:] = passed_C
        else:
            np.maximum(best[-1], passed_C, out=best[-1])
    return best
