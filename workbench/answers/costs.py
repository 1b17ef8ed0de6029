"""The answer to what a token costs a mixture. All counts are floating-point operations per token."""

from __future__ import annotations

from pydantic import Field

from engine.models.flops import Shape
from workbench.answers.base import Answer


class MixtureCosts(Answer):
    """Operations per token of a mixture, of one of its experts, and of training one."""

    context: int = Field(description="Tokens of context.")
    num_experts: int = Field(description="Active experts.")
    num_parts: list[int] = Field(description="Of each expert: the parts computed in its pass; 0 without parts.")
    forward: int = Field(description="One expert: the first, where bases differ.")
    mixture: int = Field(description="All active experts: one forward pass each.")
    training: int = Field(description="One sequence's expert with everything shared, as the dense model.")
    adapting: int = Field(description="One new expert (with parts: the first part), everything else frozen.")
    composing: dict[str, int] | None = Field(
        description="The first expert, by what learns: its parts (`experts`) or their `gates`. None without parts."
    )
    shape: Shape = Field(description="The decoder that was counted.")
