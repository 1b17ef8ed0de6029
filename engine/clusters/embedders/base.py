"""The interface of embedders, which turn texts into vectors. Shapes: N documents, D dimensions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]
State = TypeVar("State")


@dataclass(frozen=True)
class Embedding:
    """Vectors [N, D], and which documents are blank: without known words, all at the same point."""

    vectors_ND: Vectors
    is_blank_N: NDArray[np.bool_]


class Embedder(ABC, Generic[State]):
    """Turns texts into vectors, at once or piece by piece.

    A text given in pieces has, after each piece, the vector of all pieces joined (law L10). States are immutable.
    """

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Numbers in a vector."""

    @property
    def rounding(self) -> float:
        """Relative differences up to which vectors are equal."""
        return 1e-5

    @property
    @abstractmethod
    def sha256(self) -> str:
        """The identity of the embedder: equal for embedders that give equal vectors."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> Embedding:
        """The vectors of a batch of texts; never NaN."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes what `load_embedder` needs into an empty folder: safetensors and JSON."""

    @abstractmethod
    def start(self) -> State:
        """The state of an empty text."""

    @abstractmethod
    def extend(self, state: State, piece: str) -> State:
        """The state after more text."""

    @abstractmethod
    def vector(self, state: State) -> Vectors:
        """The vector [D] of the text so far."""


AnyEmbedder = Embedder[Any]
