"""Chooses an embedder by name."""

from __future__ import annotations

import json
from pathlib import Path

from engine.clusters.embedders.base import AnyEmbedder
from engine.clusters.embedders.hidden_states import HiddenStateEmbedder, load_hidden_states
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, load_tfidf
from engine.errors import DamagedFile


def load_embedder(folder: Path, seed: Path | None = None, device: str = "cpu") -> AnyEmbedder:
    """Loads an embedder that gives bit-identical vectors on the same device.

    `seed` is the model's folder for a hidden-state embedder, and `device` names where it computes. Raises DamagedFile
    for an invalid or changed embedder.
    """
    try:
        kind = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"The embedder in {folder} cannot be read ({error}).", "Cluster again.") from error
    if kind == HiddenStateEmbedder.kind:
        return load_hidden_states(folder, seed, device)
    if kind == TfidfEmbedder.kind:
        return load_tfidf(folder)
    raise DamagedFile(f"The embedder in {folder} is of an unknown kind: “{kind}”.", "Cluster again.")
