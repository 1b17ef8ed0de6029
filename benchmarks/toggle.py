"""Claim: with 8 experts and 16 evaluation sets of 100,000 tokens, a changed toggle or prior answers in at most 150 ms.

The peer is the straightforward way in NumPy (scipy's logsumexp over the same arrays); both read the same memory-mapped
files, give the same perplexities, and take turns. Peak memory of the process is printed.
Run: python benchmarks/toggle.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from scipy.special import log_softmax, logsumexp  # noqa: E402

from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.scores import mixed_perplexity, open_scores  # noqa: E402

BLOCK = 256


def write_sets(root: Path, num_experts: int, num_sets: int, num_tokens: int) -> list[list[Path]]:
    """Score folders [set][expert] with random log-likelihoods."""
    draw, sets = np.random.default_rng(0), []
    for number in range(num_sets):
        folders = []
        for expert in range(num_experts):
            folder = root / f"{number}-{expert}"
            folder.mkdir()
            np.save(folder / "logprobs.npy", -draw.exponential(3, num_tokens).astype(np.float32))
            card = {"block_size": BLOCK, "num_tokens": num_tokens}
            (folder / "scores.json").write_text(json.dumps(card), encoding="utf-8")
            folders.append(folder)
        sets.append(folders)
    return sets


def ours(sets: list[list[Path]], prior: list[float]) -> list[float]:
    """The perplexity of the mixture on every set."""
    answers = []
    for folders in sets:
        scores_EX, block_size = open_scores(folders)
        answers.append(mixed_perplexity(PosteriorGate(prior), scores_EX, block_size))
    return answers


def peer(sets: list[list[Path]], prior: list[float]) -> list[float]:
    """The same by NumPy and SciPy, as one would write it in a notebook."""
    log_prior, answers = np.log(np.array(prior) / np.sum(prior))[:, None, None], []
    for folders in sets:
        scores = np.stack([np.load(folder / "logprobs.npy", mmap_mode="r") for folder in folders]).astype(np.float64)
        total = scores.shape[1]
        blocks = np.pad(scores, ((0, 0), (0, -total % BLOCK))).reshape(len(folders), -1, BLOCK)
        seen = np.zeros_like(blocks)
        seen[..., 1:] = blocks[..., :-1].cumsum(-1)
        mixed = logsumexp(log_softmax(seen + log_prior, 0) + blocks, 0).ravel()[:total]
        answers.append(float(np.exp(-mixed.mean())))
    return answers


def seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        sets = write_sets(Path(root), 8, arguments.sets, arguments.tokens)
        priors = [[1.0 + (i == number % 8) for i in range(8)] for number in range(arguments.runs + 1)]
        np.testing.assert_allclose(ours(sets, priors[0]), peer(sets, priors[0]), rtol=1e-9)
        pairs = [(seconds(lambda p=p: ours(sets, p)), seconds(lambda p=p: peer(sets, p))) for p in priors[1:]]
    print(json.dumps({
        "claim": "a changed prior on 8 experts x 16 sets x 100k tokens answers in <= 0.15 s",
        "seconds_median": round(statistics.median(a for a, _ in pairs), 3),
        "seconds_max": round(max(a for a, _ in pairs), 3),
        "ratio_to_numpy_median": round(statistics.median(a / b for a, b in pairs), 3),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
