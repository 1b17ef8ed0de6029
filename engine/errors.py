"""Failures a person can act on.

Problem                      what is wrong, and what to do next
└── EngineError
    ├── CorpusError          text that cannot be read as documents (path, line)
    ├── TokenizerError       a tokenizer that is missing, broken or not the one expected
    ├── ModelError           a model that cannot be loaded, split or matched
    ├── DamagedFile          a file that differs from its manifest
    ├── TrainingError        a training that cannot start or must not go on
    │   ├── NonFiniteLoss    the loss is NaN or infinite; nothing was updated
    │   └── LostRank         one of several training processes ended (rank)
    ├── MixtureError         experts, weights or priors that do not go together
    │   └── ContextLengthExceeded  more text than the models read at once
    └── ScoresError          stored log-likelihoods that do not fit the request
"""

from __future__ import annotations

from pathlib import Path


class Problem(Exception):
    """An error for users: one sentence for what is wrong, one for what to do next."""

    def __init__(self, problem: str, next_step: str = "") -> None:
        super().__init__(problem, next_step)
        self.problem = problem
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.problem} {self.next_step}".strip()


class EngineError(Problem):
    """Raised on purpose by the engine."""


class CorpusError(EngineError):
    """Text that cannot be read as documents; says where."""

    def __init__(
        self, problem: str, next_step: str = "", *, path: Path | str | None = None, line: int | None = None
    ) -> None:
        super().__init__(problem, next_step)
        self.path = path
        self.line = line

    def __str__(self) -> str:
        place = "" if self.path is None else f"{self.path}" + (f", line {self.line}" if self.line else "") + ": "
        return place + super().__str__()


class TokenizerError(EngineError):
    """A tokenizer that is missing, broken or not the one expected."""


class ModelError(EngineError):
    """A model that cannot be loaded, cut open or matched."""


class DamagedFile(EngineError):
    """Bytes that are not those of the manifest."""


class TrainingError(EngineError):
    """A training that cannot start or must not go on."""


class NonFiniteLoss(TrainingError):
    """A loss is NaN or infinite; raised before anything is updated or kept."""


class LostRank(TrainingError):
    """One of several training processes ended; says which, where that is known."""

    def __init__(self, problem: str, next_step: str = "", *, rank: int | None = None) -> None:
        super().__init__(problem, next_step)
        self.rank = rank


class MixtureError(EngineError):
    """Experts, weights or priors that do not go together."""


class ContextLengthExceeded(MixtureError):
    """More text than the models read at once."""


class ScoresError(EngineError):
    """Stored log-likelihoods that do not fit the request."""
