"""DEMix's numbers (Gururangan et al., 2021), as printed: average perplexities, by model size."""

from __future__ import annotations

from collections.abc import Mapping

from workbench_studies.demix.names import Variant

SIZES = ("125M", "350M", "760M", "1.3B")
Row = tuple[float, float, float, float]

GPUS = (32, 64, 128, 128)  # this and the next lines: table 2
UPDATES = (556, 3279, 13_637, 23_250)  # TFLOPs, of Dense and DEMix alike
DENSE_SPEEDS, DEMIX_SPEEDS = (31, 37, 45, 51), (31, 37, 48, 55)  # TFLOPs/GPU
DEMIX_TOTALS = ("512M", "1.8B", "3.8B", "7.0B")  # parameters
TABLE_3: Mapping[Variant, Row] = {
    "dense": (20.6, 16.5, 14.5, 13.8),
    "dense-balanced": (19.9, 15.8, 14.3, 13.6),
    "domain-token": (19.2, 15.9, 14.3, 13.4),
    "naive": (18.4, 15.5, 14.2, 13.8),
    "cached": (17.8, 14.7, 13.9, 13.4),
}
TABLE_4: Mapping[str, tuple[float, float, float]] = {  # 1.3B: dense, naive, cached
    "1B": (11.8, 11.5, 11.3),
    "CS": (13.5, 12.2, 12.1),
    "Legal": (6.8, 6.7, 6.7),
    "Med": (9.5, 9.2, 9.1),
    "WebText": (13.8, 14.6, 14.3),
    "RealNews": (12.5, 13.3, 13.1),
    "Reddit": (28.4, 30.6, 28.1),
    "Reviews": (14.0, 12.6, 12.5),
    "Average": (13.8, 13.8, 13.4),
}
TABLE_5: Mapping[Variant, Row] = {
    "dense": (25.9, 21.4, 18.4, 17.8),
    "dense-balanced": (25.3, 19.6, 18.3, 17.1),
    "domain-token": (24.8, 20.4, 18.4, 18.0),
    "naive": (28.8, 23.8, 21.8, 21.1),
    "average": (27.2, 22.4, 21.5, 20.1),
    "uniform": (24.5, 20.5, 19.6, 18.7),
    "updating": (21.9, 18.7, 17.6, 17.1),
    "cached": (21.4, 18.3, 17.4, 17.0),
}
TABLE_6: Mapping[tuple[str, int], Row] = {  # (domains, experts)
    ("training", 8): (17.8, 14.7, 13.9, 13.4),
    ("training", 16): (17.7, 14.6, 13.7, 13.4),
    ("novel", 8): (21.4, 18.3, 17.4, 17.0),
    ("novel", 16): (16.0, 14.0, 13.5, 12.5),
}
TABLE_7: Mapping[str, tuple[float, float, float]] = {  # 125M: +Expert, –Expert, –Domain
    "1B": (13.7, 25.5, 30.4),
    "CS": (15.7, 22.4, 25.4),
    "Legal": (8.9, 20.9, 22.7),
    "Med": (12.4, 18.6, 21.9),
    "WebText": (20.9, 27.3, 25.4),
    "RealNews": (18.9, 26.7, 25.0),
    "Reddit": (34.4, 47.8, 51.3),
    "Reviews": (20.5, 39.0, 43.0),
    "Average": (18.2, 28.5, 30.6),
}
TABLE_13: Mapping[str, Row] = {  # change of perplexity after dense-DAPT, in %
    "training": (70.1, 21.4, 16.7, 20.6),
    "novel": (-55.1, -46.6, -38.3, -44.4),
}
STABLE_AFTER = 50  # blocks, “usually” (§A.6)
