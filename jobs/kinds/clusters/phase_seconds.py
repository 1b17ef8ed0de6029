"""About how many seconds each phase of finding clusters takes, by the size of the text, for its share of the progress.

Those of words and clusters were measured on one core with 10,000 documents of 3,000 characters, those of a seed model
and of documents placed on a finished map are guesses. Only their ratios matter for the progress; the job's own speed
corrects the time left.
"""

from __future__ import annotations

from engine.clusters.embedders.tfidf_svd import SVD_SECONDS
from engine.clusters.umap_projection import FITTED, layout_seconds, neighbours_seconds
from workbench.kinds.clusters import ClusteringSpec

_READ, _COUNT, _EMBED = 2e-8, 4e-7, 3.6e-7  # for each byte
_BYTES_OF_WORD = 20  # of a document's text for each word that it counts
_READ_BY_MODEL = 2e-3  # for each token, of a model of some hundred million parameters
_ROUND = 7e-7  # for each document and cluster
_TRANSFORM = 2e-3  # for each document that is placed on a map after its fit


def fit_seconds(spec: ClusteringSpec, num_documents: int, num_bytes: int) -> dict[str, float]:
    """The phases of the fit, in their order, for a text of so many documents and bytes."""
    share = min(1.0, spec.sample_size / max(1, num_documents))
    documents, sampled = num_documents * share, num_bytes * share
    words = {
        "sample": num_bytes * _READ,
        "words": sampled * _COUNT,
        "svd": sampled / _BYTES_OF_WORD * spec.dimension * SVD_SECONDS,
        "embed": _embed_seconds(spec, documents, sampled),
        "clusters": documents * spec.num_clusters * spec.max_iterations * _ROUND,
    }
    return words if spec.embedder == "tfidf" else {**words, "describe": sampled * _EMBED}


def assign_seconds(spec: ClusteringSpec, num_documents: int, num_bytes: int) -> dict[str, float]:
    """The assignment of so many documents."""
    return {"assign": _embed_seconds(spec, num_documents, num_bytes)}


def map_seconds(spec: ClusteringSpec, num_documents: int) -> dict[str, float]:
    """The phases of the map; nothing where there is none."""
    mapped = min(spec.map_size, num_documents)
    fitted = min(mapped, FITTED)
    if not fitted:
        return {}
    rest = (mapped - fitted) * _TRANSFORM
    return {"neighbours": neighbours_seconds(fitted), "layout": layout_seconds(fitted), "rest": rest}


def _embed_seconds(spec: ClusteringSpec, documents: float, num_bytes: float) -> float:
    if spec.embedder == "tfidf":
        return num_bytes * _EMBED
    return documents * spec.max_tokens * _READ_BY_MODEL
