"""The answer to which parts an expert has."""

from __future__ import annotations

from pydantic import Field

from workbench.answers.base import Answer


class ExpertPart(Answer):
    """A part of a MoDE expert."""

    name: str
    domains: list[str] = Field(description="Domains that it was trained on.")
    origin: str | None = Field(description="Name of the expert that it was trained as; None if that is deleted.")
    num_blocks: int
    layers: int = Field(description="Its layers in each block.")
    num_parameters: int
