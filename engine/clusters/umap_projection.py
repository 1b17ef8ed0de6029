"""Projects documents to a map with UMAP: fitted on a sample, the rest transformed, with a flag for each.

Shapes: N documents, D dimensions.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.device import preserve_threads
from engine.errors import EngineError
from engine.events import Progress
from engine.files import reading_own
from engine.long_calls import BAR_OPTIONS, ProgressBar, run_long_call

FITTED = 20_000  # documents to fit on; more take long and change little
SHARD = 10_000
NEIGHBOURS = 15  # UMAP's own default
_COMPILING, _NEIGHBOURS, _EPOCH = 25.0, 1e-3, 1e-5  # seconds; the last two for each document
FEWEST = 5  # documents; UMAP's spectral start needs more points than directions


@dataclass(frozen=True)
class Map:
    """Coordinates, float32; which documents the map was fitted on; the seed."""

    coordinates_N2: NDArray[np.float32]
    is_fitted_N: NDArray[np.bool_]
    seed: int

    def save(self, folder: Path) -> None:
        """Writes the map into a folder."""
        tensors: dict[str, NDArray[Any]] = {"coordinates_N2": self.coordinates_N2, "is_fitted_N": self.is_fitted_N}
        save_file(tensors, folder / "map.safetensors")
        (folder / "map.json").write_text(json.dumps({"method": "umap", "seed": self.seed}), encoding="utf-8")


def load_map(folder: Path) -> Map:
    """Loads the map; raises DamagedFileError."""
    with reading_own(f"The map in {folder}", "Cluster again."):
        tensors = load_file(folder / "map.safetensors")
        card = json.loads((folder / "map.json").read_text(encoding="utf-8"))
        return Map(tensors["coordinates_N2"], tensors["is_fitted_N"], card["seed"])


def project(vectors_ND: NDArray[Any], *, num_fitted: int = FITTED, seed: int = 0) -> Iterator[Progress | Map]:
    """Yields progress of the fit and of each shard of the rest, then one Map; deterministic by seed."""
    total = len(vectors_ND)
    if total < FEWEST or num_fitted < FEWEST:
        problem = f"A map needs at least {FEWEST} documents, got {min(total, num_fitted)}."
        raise EngineError(problem, "Take a larger sample.")
    chosen = np.sort(np.random.default_rng(seed).permutation(total)[:num_fitted])
    is_fitted_N = np.isin(np.arange(total), chosen)
    vectors_ND = np.asarray(vectors_ND, dtype=np.float32)
    coordinates_N2 = np.empty((total, 2), dtype=np.float32)
    bar = ProgressBar()

    def fit() -> Any:
        reducer = _umap(len(chosen), seed, bar)  # here, since even its import compiles for up to a minute
        with preserve_threads():
            coordinates_N2[chosen] = reducer.fit_transform(vectors_ND[chosen])
        return reducer

    def epochs() -> Progress | None:
        return Progress(bar.done, bar.total, "epochs", "laying out the map", phase="layout") if bar.total else None

    note = f"neighbours of {len(chosen):,} documents on the map"
    reducer = yield from run_long_call(fit, neighbours_seconds(len(chosen)), note, "neighbours", epochs)
    rest = np.flatnonzero(~is_fitted_N)
    for start in range(0, len(rest), SHARD):
        yield Progress(start, len(rest), "documents", "placing the rest on the map", phase="rest")
        shard = rest[start : start + SHARD]
        with preserve_threads():
            coordinates_N2[shard] = reducer.transform(vectors_ND[shard])
    yield Progress(total, total, "documents", "on the map", phase="rest")
    yield Map(coordinates_N2, is_fitted_N, seed)


def neighbours_seconds(num_documents: int) -> float:
    """About how long the first part of a map takes on one core, of which UMAP reports nothing."""
    return _COMPILING + _NEIGHBOURS * num_documents


def layout_seconds(num_documents: int) -> float:
    """About how long the second part takes on one core: UMAP's own number of epochs, 200 for more than 10,000."""
    return _EPOCH * num_documents * (200 if num_documents > 10_000 else 500)


def _umap(num_documents: int, seed: int, bar: ProgressBar) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Tensorflow not installed", ImportWarning)  # not needed here
            from umap import UMAP
    except ImportError as error:
        raise EngineError(
            f"A map needs the package umap-learn, which cannot be imported here ({error}).",
            "Install it: pip install umap-learn.",
        ) from error
    return UMAP(
        n_neighbors=min(NEIGHBOURS, num_documents - 1),
        random_state=seed,
        transform_seed=seed,
        n_jobs=1,
        tqdm_kwds={**BAR_OPTIONS, "file": bar},
    )
