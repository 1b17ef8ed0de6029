"""Claim: the grid of 7 temperatures by 6 top-ks (C-BTM table 9) of 32 experts on 100,000 tokens answers in under 1 s.

The peer is the loop over the 42 gates, each weighing the same stored scores and distances; both give the same
perplexities (checked). Reading the memory-mapped files is part of the time.
Run: python benchmarks/cluster_grid.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import json  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from engine.clusters.distances import open_distances  # noqa: E402
from engine.inference.scores import mixed_perplexity, open_scores  # noqa: E402
from engine.mixing.cluster import ClusterGate, Routing  # noqa: E402
from engine.mixing.cluster_gate_grid import cluster_gate_grid  # noqa: E402
from harness.benchmark import Figure, Options, report, seconds_of  # noqa: E402

SIZES = {"tokens": (100_000, 1000), "experts": (32, 4), "runs": (5, 2)}
BLOCK, TEMPERATURES, TOP_KS = 256, [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0], [1, 2, 4, 8, 16, 32]


def write_set(root: Path, num_experts: int, num_tokens: int) -> list[Path]:
    """Random scores of each expert, the better the nearer it is, and the distances."""
    draw = np.random.default_rng(0)
    further = draw.gamma(2, 0.3, (num_experts, num_tokens)).astype(np.float32)
    further -= further.min(0)
    np.save(root / "further.npy", further)
    np.save(root / "nearest.npy", np.full(num_tokens, 0.5, dtype=np.float32))
    np.save(root / "known.npy", (np.arange(num_tokens) % BLOCK).astype(np.int32))
    card = json.dumps({"block_size": BLOCK, "num_tokens": num_tokens})
    (root / "distances.json").write_text(card, encoding="utf-8")
    for expert in range(num_experts):
        folder = root / str(expert)
        folder.mkdir()
        noise = draw.normal(0, 1, num_tokens)
        np.save(folder / "logprobs.npy", (-3 - further[expert] + noise).astype(np.float32))
        (folder / "scores.json").write_text(card, encoding="utf-8")
    return [root / str(expert) for expert in range(num_experts)]


def ours(root: Path, folders: list[Path]) -> np.ndarray:
    """The grid, from the files."""
    scores_EX, _ = open_scores(folders)
    return cluster_gate_grid(scores_EX, open_distances(root).further_KX, TEMPERATURES, TOP_KS).numpy()


def peer(root: Path, folders: list[Path]) -> np.ndarray:
    """Gate by gate."""
    (scores_EX, block_size), distances = open_scores(folders), open_distances(root)
    even, routing = [1.0] * len(folders), Routing(range(len(folders)))
    return np.array(
        [
            [
                mixed_perplexity(ClusterGate(even, routing, temperature=t, top_k=k), scores_EX, block_size, distances)
                for k in TOP_KS
            ]
            for t in TEMPERATURES
        ]
    )


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folders = write_set(root, options.experts, options.tokens)
        result = ours(root, folders)
        seconds = [seconds_of(lambda: ours(root, folders)) for _ in range(options.runs)]
        of_peer = seconds_of(lambda: np.testing.assert_allclose(result, peer(root, folders), rtol=1e-6))
    figures = [
        Figure("the grid of 42 gates", seconds, "s", at_most=1),
        Figure("the grid over the loop over its gates", [each / of_peer for each in seconds]),
    ]
    report(options, figures, loop_seconds=of_peer)


if __name__ == "__main__":
    main()
