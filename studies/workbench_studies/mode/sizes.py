"""How large a replication of MoDE is. Every number of a size stands here.

The paper's own are §4.1: a backbone of 1.58B parameters in 18 layers, batches of 128, a rate of 1e-3, 50,000 steps.
Where a size differs, the report says so, because it prints what stands here.

How `tiny` spends its hours of one core, by `--plan` at 7,300 tokens/s: one backbone of 30.7 M tokens 70 minutes, the
arms of five seeds 110, starting 189 jobs 16, scoring 13: three and a half hours, and four at 6,300 tokens/s beside
other work. A backbone for each seed would take 350 minutes alone.
Blocks stay at 128: at 512 a token takes 13 to 22 % longer to train, and as much test text begins in a quarter as many
documents.
Table 1 and its rivals at equal steps have all seeds; what varies one thing (rates, ranks, shapes, amounts of text) has
three, since these are two thirds of all arms. Longer trainings of arms would be paid with seeds, or with the backbone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.config import LoraConfig, ModelConfig, TrainingConfig
from engine.methods.mode.config import ModeConfig
from workbench_studies.core.sizes import Size, SizeName


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


_WRITTEN: Mapping[SizeName, ModeSize] = {
    "tiny": ModeSize(
        about="6 layers, width 128, experts of 3 x 2 layers: two CPU cores, some two and a half hours with five seeds",
        shape=ModelConfig(num_layers=6, width=128, num_heads=4, ffn_width=384, max_positions=256),
        vocab_size=1024,
        seeding=TrainingConfig(
            num_steps=20_000,
            block_size=128,
            sequences_per_domain=2,
            learning_rate=4e-3,
            clip=1.0,
            checkpoint_every=1000,
            evaluate_every=2000,
            evaluation_blocks=8,
            precision="fp32",
        ),
        training=TrainingConfig(
            num_steps=180,
            block_size=128,
            sequences_per_domain=4,
            learning_rate=3e-3,
            clip=1.0,
            checkpoint_every=180,
            evaluate_every=90,
            evaluation_blocks=8,
            precision="fp32",
        ),
        mode=ModeConfig(num_blocks=3, expert_layers=2, init="random"),
        lora=LoraConfig(rank=16, alpha=32.0, targets="attention"),
        ranks=(4, 16, 64, 128),
        grid=((2, 1), (2, 2), (3, 1), (3, 2), (6, 1), (6, 2)),
        layers=(1, 2, 4),
        sequences=(16, 256),
        mixed_sequences=(8, 128),
        rates=(1e-3, 1e-2, 3e-2),
        longer=3,
        patience=3,
        own_starts=True,
        shared_backbone=True,
        ablation_seeds=3,
        max_bytes=20_000_000,
        test_tokens=16_384,
    ),
    "small": ModeSize(
        about="12 layers, width 768, experts of 3 x 2 layers: one GPU, some hours",
        shape=ModelConfig(num_layers=12, width=768, num_heads=12, ffn_width=2048, max_positions=1024),
        vocab_size=32_768,
        seeding=TrainingConfig(
            num_steps=8000,
            block_size=1024,
            sequences_per_domain=8,
            learning_rate=6e-4,
            clip=1.0,
            precision="bf16",
            checkpoint_every=500,
            evaluate_every=1000,
            evaluation_blocks=16,
        ),
        training=TrainingConfig(
            num_steps=1000,
            block_size=1024,
            sequences_per_domain=16,
            learning_rate=1e-3,
            clip=1.0,
            precision="bf16",
            checkpoint_every=500,
            evaluate_every=250,
            evaluation_blocks=16,
        ),
        mode=ModeConfig(num_blocks=3, expert_layers=2, init="random"),
        lora=LoraConfig(rank=16, alpha=32.0, targets="attention"),
        ranks=(8, 16, 32, 64, 256, 768),
        grid=((2, 1), (2, 2), (3, 1), (3, 2), (6, 1), (6, 2)),
        layers=(1, 2, 4),
        sequences=(16, 128, 1024),
        mixed_sequences=(16, 128, 1024),
        rates=(1e-4, 3e-4),
        longer=3,
        patience=3,
        own_starts=True,
        shared_backbone=True,
        max_bytes=None,
        test_tokens=131_072,
    ),
    "smoke": ModeSize(
        about="2 layers, width 32: some minutes, to see that everything runs; its numbers say nothing",
        shape=ModelConfig(num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64),
        vocab_size=320,
        seeding=TrainingConfig(
            num_steps=20,
            block_size=32,
            sequences_per_domain=4,
            learning_rate=5e-3,
            clip=1.0,
            checkpoint_every=20,
            evaluate_every=20,
            evaluation_blocks=2,
            precision="fp32",
        ),
        training=TrainingConfig(
            num_steps=4,
            block_size=32,
            sequences_per_domain=2,
            learning_rate=5e-3,
            clip=1.0,
            checkpoint_every=4,
            evaluate_every=4,
            evaluation_blocks=2,
            precision="fp32",
        ),
        mode=ModeConfig(num_blocks=2, expert_layers=1, init="random"),
        lora=LoraConfig(rank=4, alpha=8.0, targets="attention"),
        ranks=(4, 8),
        grid=((1, 1), (1, 2), (2, 1), (2, 2)),
        layers=(1, 2),
        sequences=(2,),
        mixed_sequences=(2,),
        rates=(1e-2,),
        longer=3,
        patience=3,
        own_starts=True,
        shared_backbone=True,
        max_bytes=None,
        test_tokens=512,
    ),
}
_QUICK = replace(
    _WRITTEN["tiny"],
    about="as tiny, width 64 and fewer steps: some 25 minutes of one CPU core with two seeds",
    shape=replace(_WRITTEN["tiny"].shape, width=64, ffn_width=192),
    seeding=replace(_WRITTEN["tiny"].seeding, num_steps=2000, evaluate_every=500, checkpoint_every=500),
    training=replace(_WRITTEN["tiny"].training, num_steps=80, evaluate_every=40, checkpoint_every=80),
    ranks=(4, 16, 64),
    ablation_seeds=1,
    max_bytes=4_000_000,
    test_tokens=8192,
)
SIZES: Mapping[SizeName, ModeSize] = {"quick": _QUICK, **_WRITTEN}
