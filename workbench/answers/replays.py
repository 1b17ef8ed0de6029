"""The answer to whether a stored expert is what its training makes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.answers.base import Answer

Verdict = Literal["equal", "differs", "unknown"]


class PlannedReplay(Answer):
    """Which steps of a training would be made again."""

    expert: str
    from_step: int = Field(
        description="Step of the kept checkpoint; 0: none is kept, so the whole training is repeated."
    )
    to_step: int
    seconds: float | None = Field(description="At the speed of the training; None if it was not measured.")
    environment_changes: list[str] = Field(description="What is not as it was, such as `torch 2.12.0, now 2.13.0`.")


class TensorDifference(Answer):
    """A stored tensor that is not the one that the training makes."""

    thing: str = Field(description="The expert, or the base that was trained with it.")
    tensor: str
    largest: float | None = Field(description="Largest absolute difference; None where the tensors cannot be compared.")
    problem: str = Field(description="Why they cannot be compared; else empty.")


class LossDifference(Answer):
    """A stored point of the training's curves that its replay does not give."""

    metric: str
    step: int
    stored: float
    replayed: float


class Replay(Answer):
    """The last steps of a training made again, compared with what is stored."""

    plan: PlannedReplay
    verdict: Verdict = Field(description="`unknown`: it could not be made again, or not where equal bits are promised.")
    reasons: list[str] = Field(description="Why the verdict is `unknown`.")
    num_tensors: int
    num_points: int = Field(description="Losses and gate weights that were compared.")
    tensors: list[TensorDifference]
    losses: list[LossDifference]
    seconds: float
