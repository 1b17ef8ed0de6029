"""How large a replication of C-BTM is. Every number of a size stands in `sizes.toml`.

The paper's own are §3: OPT-1.3B and 6.7B, up to 168B tokens, 2 to 128 clusters. Where a size differs, the report says
so, because it prints what stands there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.config import ModelConfig, MoeConfig, TrainingConfig
from workbench_studies.core.sizes import Size, read_sizes


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


SIZES = read_sizes(__file__, CbtmSize)


def shared(training: TrainingConfig, num_models: int, share: float = 1.0) -> TrainingConfig:
    """The training of one of several models that together see a share of the tokens of the dense one.

    Batches are divided among the models; where they do not divide, updates make up for it.
    """
    sequences = max(1, training.sequences_per_domain // num_models)
    total = share * training.num_steps * training.sequences_per_domain
    num_steps = max(1, round(total / (num_models * sequences)))
    return replace(training, sequences_per_domain=sequences, num_steps=num_steps)
