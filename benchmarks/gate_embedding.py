"""Claim: a 2,048-token document is embedded after every token in under 1 s (law L10's vectors, C-BTM §2.2).

The peer embeds the text so far from scratch after each token, as one would without the workbench; it is timed at some
positions only, which stand for the others. Both give the same vectors (checked there). The vocabulary is as large as
that of a corpus: 50,000 words, 100 dimensions, 128 centres whose distances are part of the time.
Run: python benchmarks/gate_embedding.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process(1)

import argparse  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import time  # noqa: E402

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from engine.clusters.centroids import squared_distances  # noqa: E402
from engine.clusters.config import TfidfConfig  # noqa: E402
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf  # noqa: E402

NUM_WORDS, NUM_DOCUMENTS, NUM_CENTRES, EVERY = 50_000, 3000, 128, 64


def invented_texts(num_documents: int, length: int, generator: np.random.Generator) -> list[str]:
    """Texts of invented words, frequent and rare as in a language (Zipf)."""
    shares = 1 / np.arange(1, NUM_WORDS + 1)
    numbers = generator.choice(NUM_WORDS, (num_documents, length), p=shares / shares.sum())
    return [" ".join(f"w{number:x}ord" for number in row) for row in numbers]


def grow(embedder: TfidfEmbedder, pieces: list[str], centres_KD: NDArray[np.float64]) -> tuple[float, list[object]]:
    """Seconds for the distances to all centres after every piece, and the vectors."""
    vectors: list[object] = []
    began = time.perf_counter()
    state = embedder.start()
    for piece in pieces:
        state = embedder.extend(state, piece)
        vector_D = embedder.vector(state)
        squared_distances(vector_D[None], centres_KD)
        vectors.append(vector_D)
    return time.perf_counter() - began, vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    *_, embedder = fit_tfidf(invented_texts(NUM_DOCUMENTS, 300, generator), TfidfConfig())
    assert isinstance(embedder, TfidfEmbedder)
    centres_KD = generator.normal(size=(NUM_CENTRES, embedder.dimension))
    text = invented_texts(1, arguments.tokens, generator)[0]
    cuts = np.sort(generator.choice(np.arange(1, len(text)), arguments.tokens - 1, replace=False))  # within words, too
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    runs = [grow(embedder, pieces, centres_KD) for _ in range(arguments.runs)]
    scratch, difference = [], 0.0
    for position in range(EVERY - 1, arguments.tokens, EVERY):
        full = "".join(pieces[: position + 1])
        began = time.perf_counter()
        vectors_ND = embedder.embed([full]).vectors_ND
        squared_distances(vectors_ND, centres_KD)
        scratch.append(time.perf_counter() - began)
        difference = max(difference, float(np.abs(vectors_ND[0] - runs[0][1][position]).max()))
    seconds = statistics.median(run[0] for run in runs)
    print(
        json.dumps(
            {
                "claim": "2,048 tokens, each with an embedding and all distances, in under 1 s",
                "seconds_median": round(seconds, 3),
                "seconds_max": round(max(run[0] for run in runs), 3),
                "from_scratch_seconds": round(sum(scratch) * EVERY, 1),
                "ratio": round(seconds / (sum(scratch) * EVERY), 4),
                "largest_difference": difference,
                "words": len(embedder.vocabulary),
                "dimension": embedder.dimension,
                "centres": NUM_CENTRES,
                "tokens": arguments.tokens,
            }
        )
    )


if __name__ == "__main__":
    main()
