"""The one place that chooses an embedder by name."""

from __future__ import annotations

import json
from pathlib import Path

from engine.clusters.embedders.base import AnyEmbedder
from engine.clusters.embedders.hidden_states import HiddenStateEmbedder, load_hidden_states
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, load_tfidf
from engine.errors import DamagedFile


def load_embedder(folder: Path, seed: Path | None = None) -> AnyEmbedder:
    """The embedder that was saved in a folder, giving the same vectors to the last bit.

    `seed`: the model's folder, for one of hidden states. Raises DamagedFile for what is no embedder, or another one.
    """
    try:
        kind = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{folder} must hold an embedder, but does not ({error}).", "Cluster again.") from error
    if kind == HiddenStateEmbedder.kind:
        return load_hidden_states(folder, seed)
    if kind == TfidfEmbedder.kind:
        return load_tfidf(folder)
    raise DamagedFile(f"The embedder in {folder} must be of a known kind, but is “{kind}” instead.", "Cluster again.")
