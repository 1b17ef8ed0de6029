"""Made-up replications of MoDE whose answers are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from studies.tests.made_up_losses import BLOCKS, TOKENS, losses_of
from workbench_studies.core.averages import Hits, Place
from workbench_studies.mode.arms import BACKBONE, SIZES, Arm, Arms, ReplicateMode
from workbench_studies.mode.claims import ModeMeasurements

SIZE = replace(SIZES["tiny"], ranks=(8, 16, 64), sequences=(16, 128), mixed_sequences=(8, 64), rates=(1e-3,))
DOMAINS = ["books", "cs", "law", "wiki"]
SUBJECT = ReplicateMode(
    name="rep", seeds=2, domains=DOMAINS, novel=["tweets"], budget=SIZE, targets=["cs", "law"], retention="books"
)
Accuracies = tuple[float, float, float]  # in %: on the first target, the second, what is retained
ROWS = Arms(SIZE).table_1


def as_printed() -> dict[Arm, Accuracies]:
    """Accuracies of every arm in the order of the paper, far enough apart to be distinguished."""
    result: dict[Arm, Accuracies] = {
        BACKBONE: (30, 30, 52),
        ROWS["full"]: (45.0, 45.0, 43.0),
        ROWS["lora"]: (42.0, 42.0, 46.0),
        ROWS["one"]: (44.5, 44.5, 48.5),
        ROWS["two"]: (45.0, 45.0, 50.0),
        ROWS["frozen"]: (44.6, 44.6, 49.0),
        ROWS["composed"]: (46.0, 46.0, 51.0),
        Arms(SIZE).copied: (44, 44, 48),
    }
    result |= dict.fromkeys(Arms(SIZE).longer.values(), (45.0, 45.0, 44.0))
    for row, by_rate in Arms(SIZE).by_rate.items():
        result |= dict.fromkeys(by_rate.values(), result[ROWS[row]])
    result |= dict(zip(Arms(SIZE).by_rank.values(), ((42, 42, 47.5), (42, 43, 46.5), (42, 35, 30)), strict=True))
    more = Arms(SIZE).in_more_layers
    result |= {more["ffn"]: (42, 44, 45), more["both"]: (42, 44, 44), more["embeddings"]: (42, 42, 45)}
    result |= {arm: (30, 45 + sum(cell), 47) for cell, arm in Arms(SIZE).by_shape.items()}
    result |= {arm: (30, 47 + layers, 47) for layers, arm in Arms(SIZE).by_layers.items() if layers != 2}
    lora, mode = Arms(SIZE).by_sequences.values()
    result |= {lora[16]: (30, 40, 45), mode[16]: (30, 38, 45), lora[128]: (30, 42.5, 45), mode[128]: (30, 45, 45)}
    fewest = {row: of[8] for row, of in Arms(SIZE).by_mixture.items()}
    result |= {arm: (40.0, 40.0, 41.0) for row, arm in fewest.items() if row != "frozen"}
    result |= {fewest["frozen"]: (43.0, 43.0, 48.0)}
    return result | {Arms(SIZE).by_mixture[row][64]: (44.0, 44.0, 48.0) for row in ("frozen", "composed")}


def hits_of(accuracies: Mapping[Arm, Accuracies], chance: int = 0, *, suits: float = 0.0) -> dict[Place, Hits]:
    """Hits of both seeds with these accuracies; documents differ, alike for all, and each arm by a little.

    By so much as it `suits` an arm a document differs for it alone, in both seeds.
    """
    draw, draw_suits = np.random.default_rng(chance), np.random.default_rng([chance, 1])
    hits: dict[Place, Hits] = {}
    for column, domain in enumerate(SUBJECT.judged):
        text_N = draw.normal(0, 0.05, BLOCKS)
        for arm, own in accuracies.items():
            suits_N = draw_suits.normal(0, suits, BLOCKS)
            for seed in range(SUBJECT.seeds):
                each_N = own[column] / 100 + text_N - text_N.mean() + suits_N + draw.normal(0, 0.001, BLOCKS)
                hits[arm, seed, domain] = Hits(each_N * TOKENS, np.full(BLOCKS, float(TOKENS)), np.arange(BLOCKS))
    return hits


def evidence_of(hits: Mapping[Place, Hits]) -> ModeMeasurements:
    """A replication that measured these, with a perplexity of every arm."""
    measured_arms = {arm: 3.0 for arm, _, _ in hits}
    losses = losses_of(measured_arms, SUBJECT.judged)
    run = SUBJECT.runs[0]
    parameters = {run.expert(arm, SUBJECT.targets): 1000 * arm.num_parts for arm in measured_arms}
    return ModeMeasurements(SUBJECT, losses, hits=dict(hits), num_parameters={run.backbone: 9000, **parameters})
