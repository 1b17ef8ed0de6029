"""How large a replication of C-BTM is. Every number of a size stands here.

The paper's own are §3: OPT-1.3B and 6.7B, up to 168B tokens, 2 to 128 clusters. Where a size differs, the report says
so, because it prints what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.config import ModelConfig, MoeConfig, TrainingConfig
from workbench_studies.core.sizes import Size, SizeName


@dataclass(frozen=True, kw_only=True)
class CbtmSize(Size):
    """Clusters are balanced by documents, so long ones are cut (`piece_length`).

    `training` is that of the dense model: all models of a clustering together see as many tokens in as many
    updates. What `tiny` leaves at less than the full budget, and the time that this saves, is in
    docs/replication/README.md. The fields with a default were added later: a replication that was started before keeps
    what it had.
    """

    seeding: TrainingConfig  # of the seed model, on all training text
    clusters: tuple[int, ...]  # how many to compare; 1 is the dense model
    less: float  # share of the updates in the smaller budget
    clusters_at_less: tuple[int, ...]
    num_ablated: int  # clusters where they are random, unbalanced, or scaled in another way
    moe: MoeConfig | None = MoeConfig()  # figure 12; None: no mixture of experts can be made of this family
    moe_seeds: int | None = None  # how many seeds have one; None: all
    ablations_at_less: bool = False  # other ways to divide the text see the smaller budget; they once saw the full one
    also_ablated: tuple[int, ...] = ()  # other numbers of clusters that are random and unbalanced (figures 13 and 14)
    scaled_otherwise: bool = True  # whether vectors are also scaled in the other way, which no claim is about
    smaller: ModelConfig | None = None  # shape of the smaller experts of figures 7 and 11; None: there are none
    extra_seeds: int | None = None  # how many seeds have these numbers and that shape; None: all


_WRITTEN: Mapping[SizeName, CbtmSize] = {
    "tiny": CbtmSize(
        about="2 layers, width 64, up to 8 clusters on 11.5M tokens: two CPU cores, some two hours with five seeds",
        shape=ModelConfig(num_layers=2, width=64, num_heads=4, ffn_width=256, max_positions=512),
        vocab_size=1024,
        seeding=TrainingConfig(
            num_steps=700,
            block_size=256,
            sequences_per_domain=2,
            learning_rate=6e-3,
            clip=1.0,
            checkpoint_every=700,
            evaluate_every=350,
            evaluation_blocks=4,
            precision="fp32",
        ),
        training=TrainingConfig(
            num_steps=2800,
            block_size=256,
            sequences_per_domain=16,
            learning_rate=2e-3,
            clip=1.0,
            warmup=0.0,
            checkpoint_every=1400,
            evaluate_every=1400,
            evaluation_blocks=4,
            precision="fp32",
        ),
        clusters=(1, 4, 8),
        less=0.25,
        clusters_at_less=(1, 4, 8),
        num_ablated=8,
        moe_seeds=1,
        ablations_at_less=True,
        also_ablated=(4,),
        scaled_otherwise=False,
        smaller=ModelConfig(num_layers=1, width=32, num_heads=2, ffn_width=128, max_positions=512),
        extra_seeds=3,
        piece_length=2500,
        max_bytes=4_000_000,
        test_tokens=16_384,
        prior_blocks=40,
    ),
    "small": CbtmSize(
        about="12 layers, width 768, up to 32 clusters: one GPU, some hours",
        shape=ModelConfig(family="opt", num_layers=12, width=768, num_heads=12, ffn_width=3072, max_positions=2048),
        vocab_size=32_768,
        seeding=TrainingConfig(
            num_steps=4000,
            block_size=1024,
            sequences_per_domain=4,
            learning_rate=5e-4,
            clip=1.0,
            precision="bf16",
            checkpoint_every=500,
            evaluate_every=500,
            evaluation_blocks=16,
        ),
        training=TrainingConfig(
            num_steps=4000,
            block_size=1024,
            sequences_per_domain=32,
            learning_rate=2e-4,
            clip=1.0,
            warmup=0.0,
            precision="bf16",
            checkpoint_every=500,
            evaluate_every=2000,
            evaluation_blocks=16,
        ),
        clusters=(1, 2, 4, 8, 16, 32),
        less=0.25,
        clusters_at_less=(1, 4, 8),
        num_ablated=8,
        moe=None,
        piece_length=8000,
        max_bytes=None,
        test_tokens=131_072,
    ),
    "smoke": CbtmSize(
        about="one layer, width 32, up to 4 clusters: a minute, to see that everything runs; its numbers say nothing",
        shape=ModelConfig(num_layers=1, width=32, num_heads=2, ffn_width=64, max_positions=64),
        vocab_size=320,
        seeding=TrainingConfig(
            num_steps=10,
            block_size=32,
            sequences_per_domain=4,
            learning_rate=5e-3,
            clip=1.0,
            checkpoint_every=10,
            evaluate_every=10,
            evaluation_blocks=2,
            precision="fp32",
        ),
        training=TrainingConfig(
            num_steps=8,
            block_size=32,
            sequences_per_domain=4,
            learning_rate=2e-3,
            clip=1.0,
            warmup=0.0,
            checkpoint_every=8,
            evaluate_every=8,
            evaluation_blocks=2,
            precision="fp32",
        ),
        clusters=(1, 2, 3),
        less=0.5,
        clusters_at_less=(1, 2, 3),
        num_ablated=2,
        moe_seeds=1,
        ablations_at_less=True,
        also_ablated=(3,),
        smaller=ModelConfig(num_layers=1, width=16, num_heads=2, ffn_width=32, max_positions=64),
        extra_seeds=1,
        piece_length=2500,
        max_bytes=None,
        test_tokens=512,
        prior_blocks=4,
    ),
}
_QUICK = replace(
    _WRITTEN["tiny"],
    about="as tiny, a twentieth of its tokens after branching: half an hour of one CPU core for each seed",
    seeding=replace(_WRITTEN["tiny"].seeding, num_steps=200, evaluate_every=100, checkpoint_every=200),
    training=replace(_WRITTEN["tiny"].training, num_steps=120, evaluate_every=120, checkpoint_every=120),
    clusters=(1, 2, 4, 8),
    clusters_at_less=(1, 2, 8),
    moe_seeds=None,
    ablations_at_less=False,
    also_ablated=(),
    smaller=None,
    extra_seeds=None,
    max_bytes=1_500_000,
    test_tokens=8192,
    prior_blocks=20,
)
SIZES: Mapping[SizeName, CbtmSize] = {"quick": _QUICK, **_WRITTEN}


def shared(training: TrainingConfig, num_models: int, share: float = 1.0) -> TrainingConfig:
    """The training of one of several models that together see a share of the tokens of the dense one.

    Batches are divided among the models; where they do not divide, updates make up for it.
    """
    sequences = max(1, training.sequences_per_domain // num_models)
    total = share * training.num_steps * training.sequences_per_domain
    num_steps = max(1, round(total / (num_models * sequences)))
    return replace(training, sequences_per_domain=sequences, num_steps=num_steps)
