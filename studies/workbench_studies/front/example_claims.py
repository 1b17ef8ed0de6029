"""Claims as the page of replications shows them while there is no replication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ui.present.examples import Row, table

_CLAIM = ("where", "claim", "paper", "ours", "difference [95 %]", "mark")
# By the name of the paper: claims of the reports in docs/replication that KEPT names, as they stand there.
KEPT: Mapping[str, str] = {
    "demix": "world1-demix-tiny",
    "cbtm": "corpora-cbtm-quick",
    "mode": "corpora-mode-quick",
}
CLAIMS: Mapping[str, Sequence[Row]] = {
    "demix": table(
        _CLAIM,
        (
            "Table 3",
            "DEMix (naive) has less perplexity than Dense on the training domains",
            "18.4 < 20.6",
            "55.34 against 58.15",
            "−2.81 [−3.71, −1.91]",
            "✓ reproduced",
        ),
        (
            "Table 5",
            "DEMix (cached) has less perplexity than +Domain-token on the novel domains",
            "21.4 < 24.8",
            "232.75 against 196.69",
            "+36.06 [+12.92, +59.20]",
            "✕ contradicted (prefix), undecided (last_token)",
        ),
        (
            "Table 5",
            "DEMix (cached) has less perplexity than Dense on the novel domains",
            "21.4 < 25.9",
            "232.75 against 214.02",
            "+18.74 [−1.21, +38.68]",
            "○ undecided (prefix), reproduced (last_token)",
        ),
    ),
    "cbtm": table(
        _CLAIM,
        (
            "Figure 5",
            "8 clusters have less perplexity than one, at equal tokens",
            "13.24 < 13.82 (table 9, 84B tokens)",
            "148.22 against 158.80",
            "−10.58 [−13.35, −7.81]",
            "✓ reproduced",
        ),
        (
            "Figure 12",
            "at the smaller budget a mixture of experts has less perplexity than 8 clusters",
            "in the figure, without numbers; 16 clusters, 32 networks",
            "177.79 against 168.92",
            "+8.88 [+7.46, +10.29]",
            "✕ contradicted",
        ),
        (
            "Figure 10",
            "the nearest 4 of 8 clusters have less perplexity than all of 4 clusters",
            "in the figure, without numbers",
            "148.28 against 148.75",
            "−0.47 [−1.88, +0.94]",
            "○ undecided",
        ),
    ),
    "mode": table(
        _CLAIM,
        (
            "Table 1",
            "MoDE with 2 trained experts is above LoRA of rank 16 on average",
            "64.93 > 63.52",
            "22.23 against 21.07",
            "+1.16 [+0.64, +1.69]",
            "✓ reproduced",
        ),
        (
            "§3.2, §4.1",
            "MoDE with 2 trained experts is above full fine-tuning with 3 times the steps on average",
            "64.93 > 64.34, steps not stated",
            "22.23 against 23.73",
            "−1.49 [−1.94, −1.05]",
            "✕ contradicted",
        ),
        (
            "Table 1",
            "MoDE with 2 trained experts is above full fine-tuning on average",
            "64.93 > 64.34",
            "22.23 against 22.08",
            "+0.15 [−0.19, +0.50]",
            "○ undecided",
        ),
    ),
}
