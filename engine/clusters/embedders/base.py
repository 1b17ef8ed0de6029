"""What turns texts into vectors: the one interface of every embedder. Shapes: N documents, D dimensions."""

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
    """Vectors [N, D], and which documents are blank: without anything the embedder knows, they all lie in one place."""

    vectors_ND: Vectors
    is_blank_N: NDArray[np.bool_]

    @property
    def num_blank(self) -> int:
        """Documents without anything the embedder knows."""
        return int(self.is_blank_N.sum())


class Embedder(ABC, Generic[State]):
    """Turns whole texts into vectors, and follows a growing one.

    A text given in pieces has, after each of them, the vector of all pieces joined (law L10). A state is never
    changed: one can be extended in several ways.
    """

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Numbers in a vector."""

    @property
    @abstractmethod
    def sha256(self) -> str:
        """What the embedder is, whatever folder it lies in: equal for embedders that give equal vectors."""

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
