"""The fields of a replication's size, common to all papers. The numbers are in each paper's `sizes.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import Checked, ModelConfig, TrainingConfig
from engine.mixing.papers import PAPER_BLOCKS

SizeName = Literal["tiny", "quick", "small", "smoke"]
SMOKE: SizeName = "smoke"  # whose numbers say nothing
TOO_SHORT: frozenset[SizeName] = frozenset({"quick"})  # to tell DEMix from Dense: seeds differ by more than they do
SEEDS = 5  # unless another number is given: with two the rule says *reproduced* too often where nothing differs
ENOUGH_DOCUMENTS = 60  # of test text of a novel domain; a report and a plan name the domains with fewer


@dataclass(frozen=True, kw_only=True)
class Size(Checked):
    """Model, training and text of one size; a paper adds what only it needs."""

    about: str
    shape: ModelConfig
    vocab_size: int
    training: TrainingConfig
    max_bytes: int | None  # of text per domain
    piece_length: int | None = None  # characters of a document at most, in text that it imports
    test_tokens: int  # per domain
    prior_blocks: int = PAPER_BLOCKS

    @property
    def block_size(self) -> int:
        return self.training.block_size

    @property
    def dev_tokens(self) -> int:
        """Exactly the blocks behind a cached prior."""
        return self.prior_blocks * self.block_size
