"""Files of scores as evaluations write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from engine.files import ArtifactRef
from workbench_studies.core.measurements import ScoreKey, Stored

BLOCK = 16
COUNTS = {"test": 160, "dev": 80}  # tokens of a text


def write_scores(folder: Path, keys: Iterable[ScoreKey], *, with_hits: bool = False) -> dict[ScoreKey, Stored]:
    """Scores by chance, in a folder for each expert, domain and split; two blocks are a document."""
    draw, result = np.random.default_rng(0), {}
    for key in keys:
        own, count = folder / f"{len(result)}", COUNTS[key[2]]
        own.mkdir()
        np.save(own / "logprobs.npy", draw.normal(-4, 1, count).astype(np.float32))
        if with_hits:
            np.save(own / "hits.npy", draw.random(count) < 0.3)
        np.save(own / "documents.npy", np.arange(count // BLOCK, dtype=np.int32) // 2)
        (own / "scores.json").write_text(json.dumps({"block_size": BLOCK, "num_tokens": count}))
        result[key] = Stored(ArtifactRef(own, ""), count)
    return result
