"""How large a replication of DEMix is. Every number of a size stands here.

The paper's own numbers are DEMix tables 2 and 9: 125M parameters, 300,000 steps on 32 GPUs. Where a size differs, the
report says so, because it prints what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.config import ModelConfig, TrainingConfig
from workbench_studies.core.sizes import Size, SizeName


@dataclass(frozen=True, kw_only=True)
class DemixSize(Size):
    """Everything that the jobs are made of, apart from names and text."""

    adapting: TrainingConfig  # to a novel domain, at a tenth of the training's learning rate (DEMix §6.1)
    retrained_domains: int = 2  # –Domain (table 7) is a whole training for each
    retrained_seeds: int = 1
    interleaved_every: int | None = None  # experts in every so-manieth layer (§3.3); replications once had no such arm
    interleaved_seeds: int = 1


_WRITTEN: Mapping[SizeName, DemixSize] = {
    "tiny": DemixSize(
        about="2 layers, width 64: two CPU cores, some two hours with five seeds",
        shape=ModelConfig(num_layers=2, width=64, num_heads=4, ffn_width=256, max_positions=528),
        vocab_size=2048,
        training=TrainingConfig(
            num_steps=2000,
            block_size=512,
            sequences_per_domain=1,
            learning_rate=6e-3,
            clip=1.0,
            checkpoint_every=500,
            evaluate_every=200,
            evaluation_blocks=8,
            precision="fp32",
        ),
        adapting=TrainingConfig(
            num_steps=300,
            block_size=512,
            sequences_per_domain=4,
            learning_rate=6e-4,
            clip=1.0,
            checkpoint_every=100,
            evaluate_every=30,
            evaluation_blocks=8,
            patience=3,
            precision="fp32",
        ),
        retrained_domains=4,
        interleaved_every=2,
        max_bytes=25_000_000,
        test_tokens=65_536,  # 128 blocks: 60 documents of 2 kB are read, though some fill two blocks
    ),
    "small": DemixSize(
        about="12 layers, width 768, as the paper's 125M: one GPU, some hours",
        shape=ModelConfig(family="gpt2", num_layers=12, width=768, num_heads=12, ffn_width=3072, max_positions=1040),
        vocab_size=32_768,
        training=TrainingConfig(
            num_steps=4000,
            block_size=1024,
            sequences_per_domain=2,
            accumulate=2,
            learning_rate=5e-4,
            clip=0.1,
            precision="bf16",
            checkpoint_every=500,
            evaluate_every=200,
            evaluation_blocks=16,
        ),
        adapting=TrainingConfig(
            num_steps=400,
            block_size=1024,
            sequences_per_domain=8,
            learning_rate=5e-5,
            clip=0.1,
            precision="bf16",
            checkpoint_every=100,
            evaluate_every=40,
            evaluation_blocks=16,
            patience=3,
        ),
        max_bytes=None,
        test_tokens=131_072,
    ),
    "smoke": DemixSize(
        about="one layer, width 32: seconds, to see that everything runs; its numbers say nothing",
        shape=ModelConfig(num_layers=1, width=32, num_heads=2, ffn_width=64, max_positions=64),
        vocab_size=320,
        training=TrainingConfig(
            num_steps=30,
            block_size=32,
            sequences_per_domain=2,
            learning_rate=5e-3,
            clip=1.0,
            checkpoint_every=30,
            evaluate_every=10,
            evaluation_blocks=2,
            precision="fp32",
        ),
        adapting=TrainingConfig(
            num_steps=10,
            block_size=32,
            sequences_per_domain=2,
            learning_rate=5e-4,
            clip=1.0,
            checkpoint_every=10,
            evaluate_every=5,
            evaluation_blocks=2,
            patience=3,
            precision="fp32",
        ),
        max_bytes=None,
        test_tokens=1024,
        prior_blocks=4,
        retrained_domains=1,
    ),
}
_QUICK = replace(
    _WRITTEN["tiny"],
    about="as tiny, a fifth of its steps: half an hour of one CPU core for each seed",
    training=replace(
        _WRITTEN["tiny"].training,
        num_steps=400,
        learning_rate=3e-3,  # at tiny's, so few steps end 20 perplexity higher or lower by the seed
        evaluate_every=40,
        checkpoint_every=200,
        evaluation_blocks=4,
    ),
    adapting=replace(
        _WRITTEN["tiny"].adapting, num_steps=80, learning_rate=3e-4, evaluate_every=10, checkpoint_every=80
    ),
    max_bytes=4_000_000,
    test_tokens=16_384,
    retrained_domains=1,
)
SIZES: Mapping[SizeName, DemixSize] = {"quick": _QUICK, **_WRITTEN}
