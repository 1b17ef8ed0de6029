"""The answer to what a training of MoDE would take."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer


class Forecast(Answer):
    """Parameters, bytes, operations and time of a training."""

    num_learning: int = Field(description="Parameters that learn (matrices and gates, without norms and biases).")
    num_beside: int = Field(description="All parameters beside the backbone.")
    num_frozen: int = Field(description="Parameters of the backbone.")
    memory: int = Field(description="Bytes of weights, gradients and Adam's moments, without activations.")
    disk: int = Field(description="Bytes of the expert.")
    checkpoints: int = Field(description="Bytes of checkpoints while it trains.")
    num_tokens: int = Field(description="Of all updates.")
    num_flops: float = Field(description="Of all updates.")
    seconds: float | None = Field(description="By the speed of the newest training here; None before the first.")
    measured_by: str | None = Field(description="Title of the job whose speed it is.")
    is_alike: bool = Field(description="Whether that job was of the same kind and backbone.")
    seconds_between: tuple[float, float] | None = Field(
        description="Least and most by all such jobs; None: the time is a guess from another training."
    )
