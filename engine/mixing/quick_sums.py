"""A mixture's log-likelihood of a text from kept likelihoods and weights, in float32 with a float64 total.

It differs from the sum of a gate's `mixed` by the rounding of float32, some 1e-7 of it (a test). What takes a processor
longest, the exponential of each log-weight, is taken once, when it is kept: a toggle or a prior then needs products and
sums. Float32 cannot hold the weights of all tokens side by side, so a few consecutive positions of a block make a
group: kept are a power of two for each group, and each position's weight relative to that. A power of two rounds
nothing, so that weights which are equal, as they may be before there is evidence, stay equal under it.
Tokens at which that does not suffice are summed from logarithms. Where even these are not known, as for tokens that
no expert finds possible, the total is NaN and `engine.mixing.score_sums` has to sum.
Letters: E experts, N blocks, T positions, M groups, G positions of a group, C consecutive groups, U unsure tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.mixing.score_sums import Number, largest

Floats = NDArray[np.float32]
Places = tuple[NDArray[np.intp], NDArray[np.intp]]  # of tokens: the position in the group, and the group

_BIAS, _MANTISSA_BITS = 127, 23  # of float32: 2^n is the bits of (n + 127) << 23, and 0 those of n = -127
_GROUP = 8  # positions at most: over these a text seldom changes evidence by more than float32 can hold
_PORTION = 1 << 20  # numbers: 4 MB in float32; with fewer, calls take longer than arithmetic
_LOG_2 = np.log(2.0)
_TOP, _LEAST = 115, -86.0  # the largest weight that is kept is 2^114 to 2^115, the smallest e^-86; e^-87 is the last
_LEAST_POWER = -121  # of two: less leaves weights below 1/64, which take no part in sums that are sure
_LEAST_LIKELIHOOD = np.float32(-80)  # log: less would take no part, and much longer
_LEAST_SUM = 1e-19  # of likelihoods: a sum below would be of raised numbers by more than the rounding of float32
_EQUAL_DECIMALS = 9  # of logs in float64: those of equal weights may differ by their rounding
_TINY = np.finfo(np.float32).tiny
_SURE = np.float32(np.exp(13))  # a sum above that is changed by what is left out by less than float32 rounds


def likelihoods_of(logprobs_NT: Floats) -> Floats:
    """The probability [G, M] of each token; 1 at positions that only fill a group."""
    powers_GM: Floats = np.exp(_group(np.maximum(logprobs_NT, _LEAST_LIKELIHOOD)))
    return powers_GM


def weights_of(log_weights_NT: NDArray[np.float64]) -> Floats:
    """[1 + G, M]: the power of two of each group, and then the weights relative to it, the largest being about 2^115.

    Log-weights may lack a number of their own for each token, the same for all experts.
    """
    logs_GM = _group(log_weights_NT, mode="edge")
    kept = np.empty((len(logs_GM) + 1, logs_GM.shape[1]), np.float32)
    kept[0] = np.ceil(logs_GM.max(0) / _LOG_2)
    kept[1:] = np.exp(np.maximum(logs_GM + (_TOP - kept[0].astype(np.float64)) * _LOG_2, _LEAST))
    return kept


def _group(values_NT: NDArray[Number], **padding: Any) -> NDArray[Number]:
    """Values [G, M]; the groups of a block are of one size, and the last may be longer than the block."""
    num_blocks, block_size = values_NT.shape
    num_groups = -(-block_size // _GROUP)
    padded_NT = np.pad(values_NT, ((0, 0), (0, -block_size % num_groups)), **padding)
    return np.ascontiguousarray(padded_NT.reshape(num_blocks * num_groups, -1).T)


def _portions(height: int, num_groups: int) -> list[slice]:
    """Consecutive groups, about `_PORTION` numbers of them at once where there are `height` of each."""
    num_portions = min(num_groups, -(-height * num_groups // _PORTION))
    bounds = [num_groups * number // num_portions for number in range(num_portions + 1)]
    return [slice(first, stop) for first, stop in pairwise(bounds)]


@np.errstate(invalid="ignore", divide="ignore")
def fixed_total(weights_E: NDArray[np.float64], likelihoods: Sequence[Floats]) -> float:
    """Σ log Σ_e w_e · p_e over all tokens; NaN where that is not sure."""
    weights, total = weights_E.astype(np.float32), 0.0
    for some in _portions(3 * len(likelihoods[0]), likelihoods[0].shape[1]):
        sums_GC = likelihoods[0][:, some] * weights[0]
        one_GC = np.empty_like(sums_GC)
        for weight, likelihoods_GM in zip(weights[1:], likelihoods[1:], strict=True):
            sums_GC += np.multiply(likelihoods_GM[:, some], weight, out=one_GC)
        total += _log_total(sums_GC) if sums_GC.min() > _LEAST_SUM else float("nan")  # that also of NaN
    return total


@np.errstate(invalid="ignore", divide="ignore")
def weighted_total(
    log_prior_EN: NDArray[np.float64], weights: Sequence[Floats], likelihoods: Sequence[Floats], top_k: int | None
) -> float:
    """The same with weights in proportion to prior · weight, of the best `top_k`.

    The prior is one of each block, or [E, 1] where all have the same.
    """
    num_experts, (size, num_groups) = len(weights), likelihoods[0].shape
    log_prior_EM = _of_groups(log_prior_EN, num_groups)
    scales_EM = _scales(log_prior_EN, weights)
    total, unsure = 0.0, list[Places]()
    for some in _portions(num_experts * size, num_groups):
        joint_EGC = np.empty((num_experts, size, some.stop - some.start), np.float32)
        for of_expert, scales_M, joint_GC in zip(weights, scales_EM, joint_EGC, strict=True):
            np.multiply(of_expert[1:, some], scales_M[some], out=joint_GC)
        shares_GC, totals_GC = _shares(joint_EGC, [of_expert[:, some] for of_expert in likelihoods], top_k)
        mixed_GC = np.divide(shares_GC, totals_GC, out=totals_GC)
        if not shares_GC.min() > _SURE:  # also of NaN
            positions, groups = np.nonzero(~(shares_GC > _SURE))
            mixed_GC[positions, groups] = 1
            unsure.append((positions, groups + some.start))
        total += _log_total(mixed_GC)
    if unsure:
        positions, groups = map(np.concatenate, zip(*unsure, strict=True))
        total += _unsure_total(log_prior_EM, weights, likelihoods, (positions, groups), top_k)
    return total


def _of_groups(values_EN: NDArray[Number], num_groups: int) -> NDArray[Number]:
    """[E, M], or [E, 1] of one value for all."""
    return values_EN if values_EN.shape[1] == 1 else np.repeat(values_EN, num_groups // values_EN.shape[1], 1)


def _scales(log_prior_EN: NDArray[np.float64], weights: Sequence[Floats]) -> Floats:
    """Prior times the power of two [E, M] of each group, relative to the largest power; 0 where it is too small."""
    priors_EN = log_prior_EN / _LOG_2
    prior_powers_EN = np.ceil(priors_EN)
    powers_EM = np.stack([one[0] for one in weights])
    powers_EM += _of_groups(prior_powers_EN.astype(np.float32), powers_EM.shape[1])
    powers_EM -= powers_EM.max(0)
    powers_EM[~(powers_EM >= _LEAST_POWER)] = -_BIAS
    scales_EM: Floats = (powers_EM.astype(np.int32) + _BIAS << _MANTISSA_BITS).view(np.float32)
    scales_EM *= _of_groups(np.exp2(priors_EN - prior_powers_EN).astype(np.float32), scales_EM.shape[1])
    return scales_EM


def _shares(joint_EGC: Floats, likelihoods: Sequence[Floats], top_k: int | None) -> tuple[Floats, Floats]:
    """The sums [G, C] of joint · likelihood and of joint, over the best `top_k`. Overwrites `joint_EGC`."""
    if top_k is None or top_k >= len(joint_EGC):
        totals_GC = joint_EGC.sum(0)
    else:
        best = largest(joint_EGC, top_k)
        np.multiply(joint_EGC, _is_best(joint_EGC, best), out=joint_EGC)
        totals_GC = np.add.reduce(best)
    for joint_GC, likelihoods_GC in zip(joint_EGC, likelihoods, strict=True):
        joint_GC *= likelihoods_GC
    return joint_EGC.sum(0), totals_GC


def _log_total(numbers_GC: Floats) -> float:
    """The sum of their logarithms. Of a group's numbers, the product is one in float64."""
    return float(np.log(np.multiply.reduce(numbers_GC, 0, dtype=np.float64)).sum())


def _unsure_total(
    log_prior_EM: NDArray[np.float64],
    weights: Sequence[Floats],
    likelihoods: Sequence[Floats],
    places: Places,
    top_k: int | None,
) -> float:
    """The sum over a few tokens from logarithms; NaN where one of them was raised when it was kept."""
    positions, groups = places
    weights_EU = np.array([one[positions + 1, groups] for one in weights], dtype=np.float64)
    likelihoods_EU = np.array([one[places] for one in likelihoods], dtype=np.float64)
    if not (weights_EU.min() > np.exp(_LEAST + 1) and likelihoods_EU.min() > np.exp(_LEAST_LIKELIHOOD + 1)):
        return float("nan")
    powers_EU = np.array([one[0, groups] for one in weights], dtype=np.float64)
    logs_EU = np.log(weights_EU) + powers_EU * _LOG_2 + log_prior_EM[:, groups if log_prior_EM.shape[1] > 1 else [0]]
    ranked_EU = -np.round(logs_EU, _EQUAL_DECIMALS)
    others_EU = np.argsort(ranked_EU, axis=0, kind="stable")[top_k:] if top_k else np.empty((0, len(groups)), int)
    np.put_along_axis(logs_EU, others_EU, -np.inf, axis=0)
    shares_EU = np.exp(logs_EU - logs_EU.max(0))
    return float(np.log((shares_EU * likelihoods_EU).sum(0) / shares_EU.sum(0)).sum())


def _is_best(joint_EGC: Floats, best: Floats) -> NDArray[np.bool_]:
    """Which are the best at each token, of equal ones those that come first; nothing so small as not to count."""
    is_best_EGC: NDArray[np.bool_] = joint_EGC >= np.clip(best[-1], _TINY, None)
    if np.count_nonzero(is_best_EGC) > np.count_nonzero(best >= _TINY):
        counts_GC = is_best_EGC.view(np.uint8).sum(0, dtype=np.min_scalar_type(len(joint_EGC)))
        positions, groups = np.nonzero(counts_GC > len(best))
        order_EU = np.argsort(-joint_EGC[:, positions, groups], axis=0, kind="stable")
        is_best_EGC[order_EU[len(best) :], positions, groups] = False
    return is_best_EGC
