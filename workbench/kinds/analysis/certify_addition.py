"""Certify that adding an expert changed nothing else."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.config import (
    MOST_TOKENS,
)
from engine.text.split_names import HeldOutSplit
from workbench.kinds.kind import Kind, expert_link, no_path, nothing
from workbench.specs.base import ExpertName, Name, Spec


class CertifyAddition(Spec):
    """Certify an addition: existing files are unchanged, and what each domain gained or lost (DEMix §6)."""

    kind: Literal["certify-addition"] = "certify-addition"
    expert: ExpertName = Field(description="Expert that was added.")
    mixture: Name = Field(description="Mixture that holds it.")
    split: HeldOutSplit = Field("test", description="Held-out split.")
    block_size: int | None = Field(
        None,
        ge=8,
        le=MOST_TOKENS,
        description="Max tokens of context; empty: as in its stored scores, or as in its training.",
    )
    max_tokens: int | None = Field(
        None, ge=100, description="Max tokens per domain; empty: as in its stored scores, or 20,000."
    )


KIND = Kind(
    spec=CertifyAddition,
    title="Certify addition",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert), ("mixture", spec.mixture)],
    reads=no_path,
    uses_gpu=True,
    command="expert certify EXPERT",
    link=expert_link("See the certificate"),
)
