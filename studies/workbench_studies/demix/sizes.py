"""How large a replication of DEMix is. Every number of a size stands in `sizes.toml`.

The paper's own numbers are DEMix tables 2 and 9: 125M parameters, 300,000 steps on 32 GPUs. Where a size differs, the
report says so, because it prints what stands there.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import TrainingConfig
from workbench_studies.core.sizes import Size, read_sizes


@dataclass(frozen=True, kw_only=True)
class DemixSize(Size):
    """Everything that the jobs are made of, apart from names and text."""

    adapting: TrainingConfig  # to a novel domain, at a tenth of the training's learning rate (DEMix §6.1)
    retrained_domains: int = 2  # –Domain (table 7) is a whole training for each
    retrained_seeds: int = 1
    interleaved_every: int | None = None  # experts in every so-manieth layer (§3.3); replications once had no such arm
    interleaved_seeds: int = 1


SIZES = read_sizes(__file__, DemixSize)
