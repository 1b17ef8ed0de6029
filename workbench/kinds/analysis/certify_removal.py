"""Certify what removing an expert changes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.config import MOST_SEED, MOST_TOKENS, PAPER_BLOCKS, Evidence
from engine.text.split_names import HeldOutSplit
from workbench.kinds.kind import Kind, expert_link, named, no_path, nothing
from workbench.specs.base import ExpertName, Name
from workbench.specs.base import Spec as Spec


class CertifyRemoval(Spec):
    """Certify a removal: a mixture with and without an expert, and what text can still be extracted (DEMix §7)."""

    kind: Literal["certify-removal"] = "certify-removal"
    expert: ExpertName = Field(description="Expert whose removal is certified; it is not deleted.")
    mixture: Name = Field(description="Mixture that holds it.")
    retrained: Name | None = Field(
        None, description="Mixture that was trained without its domain, to compare with (the paper's –Domain)."
    )
    split: HeldOutSplit = Field("test", description="Held-out split; priors always use dev.")
    block_size: int = Field(256, ge=8, le=MOST_TOKENS, description="Max tokens of context.")
    max_tokens: int = Field(20_000, ge=100, description="Max tokens per domain.")
    num_blocks: int = Field(
        PAPER_BLOCKS,
        ge=1,
        title="Blocks for each cached prior",
        description="Number of dev blocks for each cached prior (paper: 100).",
    )
    evidence: Evidence = Field(
        "prefix",
        title="Evidence: what the posterior sees",
        description="What the posterior sees: prefix (paper) or last_token (code).",
    )
    num_prefixes: int = Field(50, ge=10, le=10_000, description="Pieces of training text to continue.")
    prefix_length: int = Field(32, ge=1, le=MOST_TOKENS, description="Tokens of each piece given as the prompt.")
    continuation_length: int = Field(32, ge=1, le=MOST_TOKENS, description="Tokens of each piece to predict.")
    temperature: float = Field(0.0, ge=0, le=1e6, description="Sampling temperature; 0 takes the most probable token.")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="Seed of the pieces and of sampling.")


KIND = Kind(
    spec=CertifyRemoval,
    title="Certify removal",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert), *named("mixture", spec.mixture, spec.retrained)],
    reads=no_path,
    uses_gpu=True,
    command="expert certify-removal EXPERT",
    link=expert_link("See the certificate"),
)
