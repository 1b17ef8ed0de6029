"""Figure 8: how long an update takes, by the number of clusters and for a mixture of experts, at equal tokens.

The paper divides GPUs among the models, and those of one model wait for each other. Here each model has one process, so
a model of many clusters has a smaller batch, and nothing waits. Times are those of trainings without their start.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.statistics.estimates import Estimate, student_mean
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import DENSE, MOE, Arm, balanced
from workbench_studies.cbtm.sizes import shared
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict, is_above, is_below

_FIGURE = "in the figure, in seconds, by the number of GPUs"


def judge_updates(evidence: CbtmEvidence) -> Iterator[Verdict]:
    """The slowest model of many clusters against the one model, and a mixture of experts against that."""
    main = evidence.subject.main
    faster = Claim(
        "Figure 8",
        f"an update of the slowest of {main} takes less time than one of Dense",
        _FIGURE,
        "each model has one process and its share of the batch; the paper's has its share of GPUs that wait",
        id="slowest-faster",
    )
    slower = Claim(
        "Figure 8",
        "an update of a mixture of experts takes more time than one of Dense",
        _FIGURE,
        "on one process it has more operations; the paper's also exchanges tokens between GPUs",
        id="moe-slower",
    )
    yield is_below(faster, _ratio(evidence, main.key), 1.0, unit="times Dense's")
    yield is_above(slower, _ratio(evidence, MOE), 1.0, unit="times Dense's")


def _ratio(evidence: CbtmEvidence, key: str) -> Estimate | None:
    """The time of an update over that of the dense model, with Student's interval over seeds."""
    own, dense = _slowest(evidence, key), _slowest(evidence, DENSE.key)
    return _over_seeds([own[seed] / dense[seed] for seed in sorted(own.keys() & dense.keys())])


def _slowest(evidence: CbtmEvidence, key: str) -> dict[int, float]:
    """Seconds of an update of an arm's slowest model, by seed."""
    updates = evidence.measured.updates
    return {seed: max(seconds) for (seed, name), seconds in updates.items() if name == key and seconds}


def _over_seeds(values: list[float]) -> Estimate | None:
    if not values:
        return None
    result = student_mean(values)
    return Estimate(result.mean, result.low, result.high, tuple(values))


def by_update(evidence: CbtmEvidence) -> list[Row]:
    """Seconds of an update of each arm's slowest model, at the full budget; empty where none is known."""
    size = evidence.subject.size
    arms: list[tuple[str, str, Arm]] = [(str(arm), arm.key, arm) for arm in map(balanced, sorted(size.clusters))]
    rows: list[Row] = []
    for name, key, arm in (*arms, ("mixture of experts", MOE, DENSE)):
        training = shared(size.training, arm.num_models)
        if estimate := _over_seeds(list(_slowest(evidence, key).values())):
            rows.append(
                {
                    "models": name,
                    "clusters": arm.num_models,
                    "tokens in an update of each": training.sequences_per_domain * training.block_size,
                    **interval_columns(estimate),
                }
            )
    return rows
