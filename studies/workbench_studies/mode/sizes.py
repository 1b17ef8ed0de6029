"""How large a replication of MoDE is. Every number of a size stands in `sizes.toml`.

The paper's own are §4.1: a backbone of 1.58B parameters in 18 layers, batches of 128, a rate of 1e-3, 50,000 steps.
Where a size differs, the report says so, because it prints what stands there.

How `tiny` spends its hours of one core, by `--plan` at 7,300 tokens/s: one backbone of 30.7 M tokens 70 minutes, the
arms of five seeds 110, starting 189 jobs 16, scoring 13: three and a half hours, and four at 6,300 tokens/s beside
other work. A backbone for each seed would take 350 minutes alone.
Blocks stay at 128: at 512 a token takes 13 to 22 % longer to train, and as much test text begins in a quarter as many
documents.
Table 1 and its rivals at equal steps have all seeds; what varies one thing (rates, ranks, shapes, amounts of text) has
three, since these are two thirds of all arms. Longer trainings of arms would be paid with seeds, or with the backbone.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import LoraConfig, TrainingConfig
from engine.methods.mode.config import ModeConfig
from workbench_studies.core.sizes import Size, read_sizes


@dataclass(frozen=True, kw_only=True)
class ModeSize(Size):
    """`training` is that of every method, on as much of each target in every batch; of one target on twice as much.

    Amounts given in sequences count blocks of text of each target.
    """

    seeding: TrainingConfig  # of the backbone
    mode: ModeConfig  # of each expert
    lora: LoraConfig
    ranks: tuple[int, ...]  # table 2, figure 3
    grid: tuple[tuple[int, int], ...]  # table 3: blocks, and layers of the expert in each
    layers: tuple[int, ...]  # figure 3: layers of the expert in each block
    sequences: tuple[int, ...]  # figure 3: training sequences, the fewest first; all there are come last
    mixed_sequences: tuple[int, ...]  # figure 5
    rates: tuple[float, ...]  # others than that of the training
    longer: int  # times as many steps; 3: a composed model has had three times as many
    prior_blocks: int = 0  # nothing is weighed by a prior
    patience: int | None = None  # of arms on fewer sequences, in evaluations; replications once had none
    own_starts: bool = False  # each training's experts have random layers of their own; replications once shared some
    shared_backbone: bool = False  # of all seeds, as in the paper; replications once trained one for each
    ablation_seeds: int | None = None  # the first so many train what is in neither table 1 nor “steps”; None: all


SIZES = read_sizes(__file__, ModeSize)
