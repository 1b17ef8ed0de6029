"""Made-up replications of C-BTM whose answers are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from engine.statistics.estimates import Loss
from studies.tests.made_up_losses import losses_of
from workbench_studies.cbtm.measurements import CbtmMeasurements, Grouping, few_smaller, frozen, in_grid, top_ks
from workbench_studies.cbtm.names import (
    DENSE,
    DENSE_AT_LESS,
    SEED,
    SIZES,
    TEMPERATURES,
    Arm,
    ReplicateCbtm,
    System,
    balanced,
    sparse,
)
from workbench_studies.core.averages import Place

DOMAINS, NOVEL = ("law", "code", "sea", "mail"), ("tweets",)
SIZE = replace(
    SIZES["tiny"],
    clusters=(1, 2, 4, 8),
    num_ablated=4,
    clusters_at_less=(1, 4),
    ablations_at_less=False,
    also_ablated=(2,),
    scaled_otherwise=True,
)
SUBJECT = ReplicateCbtm(name="rep", seeds=2, domains=list(DOMAINS), novel=list(NOVEL), budget=SIZE)
MAIN = SUBJECT.main
UPDATES = {  # seconds of each model of an arm
    (seed, key): [second * (1 + 0.01 * seed) for second in seconds]
    for seed in range(2)
    for key, seconds in {"k1": [2.0], "k2": [1.1, 1.0], "k4": [0.5, 0.6, 0.5, 0.5], "moe": [5.0]}.items()
}


def as_printed() -> dict[System, float]:
    """Nats per token of every system in the order of the paper."""
    nats = {SEED: 3.6, System(DENSE): 3.0, System(balanced(1, at_less=True)): 3.3}
    nats |= {System(balanced(2)): 2.9, System(MAIN): 2.7, System(balanced(8)): 2.8}
    nats |= {System(balanced(4, at_less=True)): 3.31}
    nats |= {System(DENSE, "moe"): 3.1, System(DENSE_AT_LESS, "moe"): 3.2, System(MAIN, "average"): 3.05}
    nats |= {sparse(balanced(8), top_k): 2.65 for top_k in (1, 2, 4)} | {sparse(balanced(2), 1): 2.95}
    nats |= {in_grid(MAIN, k, t): _soft(k, t) for k in top_ks(MAIN) for t in TEMPERATURES if (k, t) != (4, 0.1)}
    nats |= {sparse(MAIN, 1): 2.8, sparse(MAIN, 2): 2.7, frozen(SUBJECT): 2.69}
    nats |= {System(Arm("random", 4)): 3.2, System(Arm("unbalanced", 4)): 2.7}
    nats |= {System(Arm("random", 2)): 3.1, System(Arm("unbalanced", 2)): 2.85}
    less = balanced(4, at_less=True)
    nats |= {
        System(DENSE_AT_LESS, is_smaller=True): 3.6,
        System(less, is_smaller=True): 3.4,
        System(less, top_k=few_smaller(less), is_smaller=True): 3.2,
    }
    return nats | {System(SUBJECT.metadata, "cached"): 2.85, System(SUBJECT.metadata, "uniform"): 2.86}


def _soft(top_k: int, temperature: float) -> float:
    """Least at 0.1; at 1 the more models the worse."""
    return 2.7 + 0.2 * abs(np.log10(temperature / 0.1)) * top_k / 2


def homes(own: float, away: float, changed: Mapping[tuple[int, int], float] | None = None) -> dict[Place, Loss]:
    """Each model's loss on its cluster's text and on others'; `changed` by (model, cluster)."""
    losses: dict[Place, Loss] = {}
    for run in SUBJECT.runs:
        for cluster, home in enumerate(run.domains(MAIN, DOMAINS)):
            nats = {
                System(MAIN, "alone", expert=n): own if n == cluster else (changed or {}).get((n, cluster), away)
                for n in range(MAIN.num_models)
            }
            result = losses_of(nats, [home])
            losses |= {place: one for place, one in result.items() if place[1] == run.seed}
    return losses


def grouping(counts: list[list[int]], held_out: list[int]) -> Grouping:
    """A clustering with so many documents by label and cluster, and so many held-out ones in each cluster."""
    cells = np.repeat(np.arange(np.size(counts)), 20 * np.ravel(counts))
    labels_D, clusters_D = np.divmod(cells, len(counts[0]))
    of_D = np.random.default_rng(0).permutation(np.repeat(np.arange(len(held_out)), held_out))
    is_held_out_D = np.arange(len(cells) + len(of_D)) >= len(cells)
    places = np.arange(len(is_held_out_D))
    return Grouping(
        DOMAINS[:2],
        np.append(labels_D, 0 * of_D),
        np.append(clusters_D, of_D),
        places,
        is_held_out_D,
        0.5,
        (("a", "b"),) * 4,
    )


def groupings(counts: list[list[int]], balanced: list[int], unbalanced: list[int]) -> dict[tuple[int, str], Grouping]:
    """The same in both seeds."""
    arms = {MAIN.clustering: balanced, Arm("unbalanced", 4).clustering: unbalanced}
    return {(seed, name): grouping(counts, sizes) for seed in range(2) for name, sizes in arms.items()}


def answers(
    shares: Mapping[tuple[str, int | None], float], num_test: int = 1000, apart: float = 0.01
) -> dict[int, dict[str, Any]]:
    """Classifications of both seeds with so many right by routing and top-k; three draws, two tasks."""
    result: dict[int, dict[str, Any]] = {}
    for run in SUBJECT.runs:
        beside = {"dense": run.experts(DENSE, DOMAINS)[0], "seed": run.seed_expert}
        rows = [
            {
                "way": "beside" if variant in beside else variant,
                "top_k": top_k,
                "expert": beside.get(variant, ""),
                "tasks": {task: {"seeds": [share - moved, share, share + moved]} for task in ("news", "mood")},
            }
            for (variant, top_k), share in shares.items()
            for moved in [apart * (1 + share)]
        ]
        clusters = [{"terms": ["a", "b", "c", "d"]}, {"terms": ["e"]}]
        tasks = [{"name": name, "clusters": clusters, "num_test": num_test} for name in ("news", "mood")]
        result[run.seed] = {"rows": rows, "tasks": tasks}
    return result


def evidence_of(
    losses: Mapping[Place, Loss],
    result: Mapping[tuple[int, str], Grouping] | None = None,
    shown: Mapping[int, dict[str, Any]] | None = None,
) -> CbtmMeasurements:
    """A replication that measured these."""
    more = {"groupings": dict(result or {}), "answers": dict(shown or {}), "updates": dict(UPDATES if losses else {})}
    return CbtmMeasurements(SUBJECT, dict(losses), num_draws=500, **more)
