"""Claim: a 2,048-token document is embedded after every token in under 1 s (law L10's vectors, C-BTM §2.2).

The peer embeds the text so far from scratch after each token, as one would without the workbench; it is timed at some
positions only, which stand for the others. Both give the same vectors (checked there). The vocabulary is as large as
that of a corpus: 50,000 words, 100 dimensions, 128 centres whose distances are part of the time.
Run: python benchmarks/gate_embedding.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process(1)

import time  # noqa: E402

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from engine.clusters.centroids import squared_distances  # noqa: E402
from engine.clusters.config import TfidfConfig  # noqa: E402
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf  # noqa: E402
from harness.benchmark import Figure, Options, report  # noqa: E402

SIZES = {"tokens": (2048, 128), "runs": (5, 2), "words": (50_000, 2000), "documents": (3000, 100)}
NUM_CENTRES, EVERY = 128, 64


def invented_texts(num_documents: int, length: int, num_words: int, generator: np.random.Generator) -> list[str]:
    """Texts of invented words, frequent and rare as in a language (Zipf)."""
    shares = 1 / np.arange(1, num_words + 1)
    numbers = generator.choice(num_words, (num_documents, length), p=shares / shares.sum())
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
    options = Options(__doc__, SIZES).parse_args()
    generator = np.random.default_rng(0)
    *_, embedder = fit_tfidf(invented_texts(options.documents, 300, options.words, generator), TfidfConfig())
    assert isinstance(embedder, TfidfEmbedder)
    centres_KD = generator.normal(size=(NUM_CENTRES, embedder.dimension))
    text = invented_texts(1, options.tokens, options.words, generator)[0]
    cuts = np.sort(generator.choice(np.arange(1, len(text)), options.tokens - 1, replace=False))  # also within words
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    runs = [grow(embedder, pieces, centres_KD) for _ in range(options.runs)]
    scratch, difference = 0.0, 0.0
    for position in range(EVERY - 1, options.tokens, EVERY):
        full = "".join(pieces[: position + 1])
        began = time.perf_counter()
        vectors_ND = embedder.embed([full]).vectors_ND
        squared_distances(vectors_ND, centres_KD)
        scratch += EVERY * (time.perf_counter() - began)
        difference = max(difference, float(np.abs(vectors_ND[0] - runs[0][1][position]).max()))
    figures = [
        Figure("a document embedded after every token, with all distances", [run[0] for run in runs], "s", at_most=1),
        Figure("the same over embedding from scratch", [run[0] / scratch for run in runs]),
    ]
    sizes = {"vocabulary": len(embedder.vocabulary), "dimension": embedder.dimension, "centres": NUM_CENTRES}
    report(options, figures, from_scratch_seconds=scratch, largest_difference=difference, **sizes)


if __name__ == "__main__":
    main()
