"""C-BTM's numbers (Gururangan et al., 2023), as printed; of most figures the paper prints no numbers."""

from __future__ import annotations

from collections.abc import Mapping

from engine.config import PAPER_TEMPERATURE

TEMPERATURES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
T = PAPER_TEMPERATURE
DENSE = 13.82  # one cluster, 84B tokens of C4, as all of table 9
TABLE_9: Mapping[int, Mapping[int, tuple[float | None, ...]]] = {  # clusters: top-k: by temperature
    2: {1: (13.64, *[None] * 6), 2: (13.60, 13.51, 13.50, 13.54, 13.59, 13.64, 13.69)},
    8: {
        1: (13.64, *[None] * 6),
        2: (13.50, 13.32, 13.27, 13.29, 13.33, 13.38, 13.43),
        4: (13.49, 13.25, 13.22, 13.34, 13.45, 13.59, 13.73),
        8: (13.49, 13.25, 13.24, 13.50, 13.72, 13.97, 14.19),
    },
    32: {
        1: (13.55, *[None] * 6),
        2: (13.45, 13.25, 13.16, 13.14, 13.17, 13.22, 13.30),
        4: (13.45, 13.19, 13.05, 13.06, 13.15, 13.30, 13.49),
        8: (13.45, 13.17, 13.00, 13.07, 13.27, 13.57, 13.89),
        16: (13.45, 13.17, 13.01, 13.07, 13.54, 14.02, 14.46),
        32: (13.45, 13.17, 13.01, 13.28, 13.78, 14.46, 15.04),
    },
}
TABLE_8 = {"metadata": 8.4, "clusters": 8.3, "dense": 8.5}  # 8 corpora of the Pile, 5.2B tokens
TABLE_11: Mapping[tuple[str, int | None], float] = {  # average accuracy of 16 clusters, in %, by routing and top-k
    ("cluster", 1): 65.4,
    ("cluster", 4): 68.8,
    ("cluster", None): 69.9,
    ("updating", 1): 63.3,
    ("updating", 4): 68.8,
    ("updating", None): 69.1,
    ("fixed", 1): 68.1,
    ("fixed", 4): 69.6,
    ("fixed", None): 69.6,
    ("fixed-validation", 1): 70.7,
    ("fixed-validation", 4): 71.9,
    ("fixed-validation", None): 70.6,
}
TABLE_1 = {"chance": 35.9, "seed": 65.3, "dense": 66.2}  # the seed model is OPT-1.3B
BEST = 16  # clusters, at the largest budget (figure 6)


def printed(num_clusters: int, top_k: int, temperature: float = T) -> float | None:
    """A cell of table 9; None where the paper prints none. T does not matter for one expert."""
    if num_clusters == 1:
        return DENSE
    row = TABLE_9.get(num_clusters, {}).get(top_k)
    if row is None:
        return None
    return row[0] if top_k == 1 else row[TEMPERATURES.index(temperature)]


def column(name: str) -> str:
    """The column of the paper's numbers that stands beside a column of ours."""
    return f"paper: {name}"
