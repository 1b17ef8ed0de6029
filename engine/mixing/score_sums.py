"""The mixture's log-likelihood of stored tokens, in NumPy and in portions that fit a processor's cache.

The same numbers as `base.mix` of a gate's weights, up to the rounding of float64; those of a single expert to the
bit. Nothing here uses torch's threads, and NumPy lets other threads run: several texts can be summed side by side.
Letters: E experts, N blocks, T positions, C consecutive positions. Evidence goes from one position to the next, so
that each step is taken for all blocks at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.mixing.evidence import EvidenceRule

Floats = NDArray[np.float64]
Scores = NDArray[np.float32] | NDArray[np.float64]
Number = TypeVar("Number", np.float32, np.float64)

_PORTION = 1 << 16  # numbers: of 512 KB in float64 a core's cache holds a few
_MOST_BLOCKS = 1024  # side by side
_LEAST = math.log(np.finfo(np.float64).tiny) + 1  # exponentials that underflow take processors fifty times as long
_UNSURE = 1e-280  # a sum below has lost digits


@np.errstate(invalid="ignore", divide="ignore")
def fixed_sums(log_weights_E: Floats, logprobs_EM: Scores) -> Floats:
    """log Σ_e w_e · p_e of each of M tokens, under the same weights at every one."""
    active = np.flatnonzero(log_weights_E > -np.inf)
    if len(active) == 1:
        return np.asarray(logprobs_EM[active[0]], dtype=np.float64)
    logs_E1, num_tokens, size = log_weights_E[active, None], logprobs_EM.shape[1], max(1, _PORTION // len(active))
    pieces = (logprobs_EM[active, first : first + size] + logs_E1 for first in range(0, num_tokens, size))
    return np.concatenate([_log_sum(logs_EM, 0) for logs_EM in pieces])


@np.errstate(invalid="ignore", divide="ignore")
def posterior_sums(
    log_prior_EN: Floats, logprobs_ENT: Scores, rule: EvidenceRule, top_k: int | None, floor: float
) -> Floats:
    """The mixture's log-likelihood [N, T] of every token, each block from its own prior.

    NaN where an expert's log-likelihood is, and where none of the experts that take part can predict a token.
    """
    possible = np.flatnonzero((log_prior_EN > -np.inf).any(1))
    if len(possible) == 1:
        return np.asarray(logprobs_ENT[possible[0]], dtype=np.float64)
    if len(possible) < len(log_prior_EN):
        log_prior_EN, logprobs_ENT = log_prior_EN[possible], logprobs_ENT[possible]
    _, num_blocks, num_positions = logprobs_ENT.shape
    mixed_TN = np.empty((num_positions, num_blocks))
    for first in range(0, num_blocks, _MOST_BLOCKS):
        some = slice(first, first + _MOST_BLOCKS)
        done, scratch = 0, np.empty(0)
        for joint_CEN, new_CEN in _joint(log_prior_EN[:, some], logprobs_ENT[:, some], rule, floor):
            if scratch.shape[1:] != new_CEN.shape:
                scratch = np.empty((2, *new_CEN.shape))
            mixed_TN[done : done + len(new_CEN), some] = _mixed(joint_CEN, new_CEN, top_k, scratch)
            done += len(new_CEN)
    return mixed_TN.T


def _joint(
    log_prior_EN: Floats, logprobs_ENT: Scores, rule: EvidenceRule, floor: float
) -> Iterator[tuple[Floats, Floats]]:
    """The log of prior times evidence before each of some positions [C, E, N], and their log-likelihoods.

    Both are overwritten by the next ones. The evidence is that of a stream, to the bit.
    """
    num_experts, num_blocks, num_positions = logprobs_ENT.shape
    size = min(num_positions, max(1, _PORTION // max(1, num_experts * num_blocks)))
    new, joint = np.empty((2, size, num_experts, num_blocks))
    kinds = [(rule.decay, rule.power)] + ([(rule.slow_decay, rule.slow_power)] if rule.slow_power else [])
    seen = [np.zeros((num_experts, num_blocks)) for _ in kinds]
    powered_EN, log_prior_EN = np.empty((num_experts, num_blocks)), np.ascontiguousarray(log_prior_EN)
    for first in range(0, num_positions, size):
        together = np.ascontiguousarray(logprobs_ENT[:, :, first : first + size])  # three quick steps, not a slow one
        stored = np.ascontiguousarray(together.transpose(2, 0, 1))
        new_CEN, joint_CEN = new[: len(stored)], joint[: len(stored)]
        np.copyto(new_CEN, stored)
        floored_CEN = new_CEN if stored.min() >= floor else np.maximum(new_CEN, floor)
        for joint_EN, floored_EN in zip(joint_CEN, floored_CEN, strict=True):
            before_EN = log_prior_EN
            for (decay, power), seen_EN in zip(kinds, seen, strict=True):
                term_EN = seen_EN if power == 1 else np.multiply(seen_EN, power, out=powered_EN)
                before_EN = np.add(before_EN, term_EN, out=joint_EN)
                if decay != 1:
                    np.multiply(seen_EN, decay, out=seen_EN)
                np.add(seen_EN, floored_EN, out=seen_EN)
        yield joint_CEN, new_CEN


def _mixed(joint_CEN: Floats, new_CEN: Floats, top_k: int | None, scratch: Floats) -> Floats:
    """log Σ_e w_e · p_e [C, N], with weights w in proportion to exp(joint) among the best `top_k`. Overwrites `joint`.

    `scratch` [2, C, E, N] is overwritten: new memory for each portion takes as long as arithmetic.
    """
    weights_CEN, shares_CEN = scratch
    if top_k is not None and top_k < joint_CEN.shape[1]:
        _keep_best(joint_CEN, top_k, scratch[0])
    joint_CEN -= joint_CEN.max(1, keepdims=True)
    totals_CN = _exp(joint_CEN, weights_CEN).sum(1)
    np.multiply(weights_CEN, _exp(new_CEN, shares_CEN), out=shares_CEN)
    shares_CN = shares_CEN.sum(1)
    if not shares_CN.min() > _UNSURE:  # also of NaN
        mixed_CN: Floats = _log_sum(joint_CEN + new_CEN, 1) - np.log(totals_CN)
        return mixed_CN
    return np.asarray(np.log(shares_CN / totals_CN))


def _log_sum(logs: Floats, axis: int) -> Floats:
    """log Σ exp over an axis. Overwrites its input."""
    top = logs.max(axis, keepdims=True)
    logs -= top
    summed: Floats = np.log(_exp(logs).sum(axis)) + top.squeeze(axis)
    return summed


def _exp(logs: Floats, out: Floats | None = None) -> Floats:
    """exp, of what is too small to count no less than what just does not underflow."""
    if logs.min() < _LEAST:
        logs = np.maximum(logs, np.full(logs.shape[1:], _LEAST), out=out)  # faster than with one number
    powers: Floats = np.exp(logs, out=out)
    return powers


def _keep_best(logs_CEN: Floats, top_k: int, scratch_CEN: Floats) -> None:
    """Leaves the `top_k` largest of each column, of equal ones those that come first; the others become -inf."""
    least_C1N = largest(logs_CEN.swapaxes(0, 1), top_k)[-1][:, None]
    counts_CN = (logs_CEN >= least_C1N).view(np.uint8).sum(1, dtype=np.min_scalar_type(logs_CEN.shape[1]))
    positions, blocks = np.nonzero(counts_CN > top_k)
    if len(positions):
        ties_ME = logs_CEN[positions, :, blocks]
        np.put_along_axis(ties_ME, np.argsort(-ties_ME, axis=1, kind="stable")[:, top_k:], -np.inf, axis=1)
        logs_CEN[positions, :, blocks] = ties_ME
    np.copysign(np.inf, np.subtract(logs_CEN, least_C1N, out=scratch_CEN), out=scratch_CEN)
    np.minimum(logs_CEN, scratch_CEN, out=logs_CEN)  # several times as fast as a mask


def largest(logs_ECN: NDArray[Number], k: int) -> NDArray[Number]:
    """The k largest numbers of each column, in order: each row passes the best so far, and pushes out a smaller."""
    best = np.empty((k, *logs_ECN.shape[1:]), logs_ECN.dtype)
    smaller = np.empty((2, *logs_ECN.shape[1:]), logs_ECN.dtype)
    for number, passed_CN in enumerate(logs_ECN):
        for rank in range(min(number, k - 1)):
            next_CN = np.minimum(best[rank], passed_CN, out=smaller[rank % 2])
            np.maximum(best[rank], passed_CN, out=best[rank])
            passed_CN = next_CN
        if number < k:
            best[number] = passed_CN
        else:
            np.maximum(best[-1], passed_CN, out=best[-1])
    return best
