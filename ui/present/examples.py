"""The rows of the examples that pages show while they are empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Mapping[str, str]


def _table(columns: Sequence[str], *rows: Sequence[str]) -> Sequence[Row]:
    """Rows of a table as mappings, each with a value for every column."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


DOMAINS = _table(
    ("domain", "documents", "words", "role", "licence"),
    ("law", "1,204", "812,300", "train", "CC0"),
    ("medicine", "930", "640,120", "train", "CC BY 4.0"),
    ("poems", "310", "48,900", "novel", "public domain"),
)
CLUSTERS = _table(
    ("cluster", "documents", "mostly from", "expert"),
    ("section · tenant · court", "412", "law (96 %)", "none yet"),
    ("dose · trial · patients", "411", "medicine (98 %)", "none yet"),
    ("night · heart · sea", "411", "poems (75 %)", "none yet"),
)
EXPERTS = _table(
    ("expert", "method", "perplexity ↓", "parameters", "mixtures"),
    ("first/law", "demix", "63.4", "1.4 M", "first"),
    ("first/medicine", "demix", "88.1", "1.4 M", "first"),
    ("poet", "lora", "121.7", "1.5 M", "—"),
)
MIXTURE = _table(
    ("domain", "saved", "now", "change", ""),
    ("law", "64.1", "64.0", "−0.2 %", "within 1 %"),
    ("medicine", "89.0", "211.3", "+137.4 %", "↑ worse"),
    ("poems", "118.2", "120.6", "+2.0 %", "↑ worse"),
)
SPECIALIZATION = _table(
    ("expert", "law", "medicine", "poems"),
    ("first/law", "**1.00**", "2.41", "1.93"),
    ("first/medicine", "3.12", "**1.00**", "2.20"),
    ("poet", "2.75", "2.98", "**1.00**"),
)
POSTERIOR = _table(
    ("token", "first/law", "first/medicine", "poet", "leads"),
    ("The", "34 %", "33 %", "33 %", "first/law"),
    ("tenant", "81 %", "7 %", "12 %", "first/law"),
    ("sings", "22 %", "2 %", "76 %", "poet"),
)
CERTIFICATE = _table(
    ("domain", "before", "after", "change", "verdict"),
    ("poems", "211.2", "164.3", "−22.2 %", "better"),
    ("law", "63.4", "63.5", "+0.1 %", "no change shown"),
)
LAWS = _table(
    ("law", "sentence", "tolerance", "measured", "if broken", "result"),
    ("L1", "a mixture with weight 1 on expert j is expert j", "bit-equal", "0", "0.683", "✓ ok"),
    ("L8", "add(j) leaves every other tensor's hash unchanged", "exact", "0", "1", "✓ ok"),
    ("L19", "mixing from stored scores is mixing from live forward passes", "1e-5", "2.38e-07", "0.412", "✓ ok"),
)

_CLAIM = ("where", "claim", "paper", "ours", "difference [95 %]", "mark")
# By the name of the paper: reports of this project on other text, each with the mark its interval has by the rule.
CLAIMS: Mapping[str, Sequence[Row]] = {
    "demix": _table(
        _CLAIM,
        (
            "Table 3",
            "DEMix (naive) has less perplexity than Dense on the training domains",
            "18.4 < 20.6",
            "51.66 against 57.04",
            "−5.38 [−5.86, −4.86]",
            "✓ reproduced",
        ),
        (
            "Table 5",
            "DEMix (cached) has less perplexity than Dense on the novel domains",
            "21.4 < 25.9",
            "181.26 against 162.66",
            "+18.60 [+11.89, +25.35]",
            "✕ contradicted",
        ),
        (
            "Table 5",
            "DEMix (updating) has less perplexity than DEMix (uniform) on the novel domains",
            "21.9 < 24.5",
            "183.49 against 183.10",
            "+0.39 [−0.16, +1.07]",
            "○ undecided",
        ),
    ),
    "cbtm": _table(
        _CLAIM,
        (
            "Figure 5",
            "8 clusters have less perplexity than one, at equal tokens",
            "13.24 < 13.82",
            "68.48 against 72.97",
            "−4.48 [−5.54, −3.34]",
            "✓ reproduced",
        ),
        (
            "Figure 9",
            "the nearest 2 of 8 clusters are as good as all (a rise of less than 1 %)",
            "13.27 against 13.24",
            "—",
            "+1.76 % [+1.43, +2.12]",
            "✕ contradicted",
        ),
        (
            "Figure 9",
            "the nearest of 8 clusters alone has less perplexity than Dense",
            "13.64 < 13.82",
            "74.23 against 72.97",
            "+1.26 [−0.45, +3.44]",
            "○ undecided",
        ),
    ),
    "mode": _table(
        _CLAIM,
        (
            "Table 1",
            "MoDE with 2 trained experts is above full fine-tuning on average",
            "64.93 > 64.34",
            "23.36 against 22.95",
            "+0.41 [+0.11, +0.72]",
            "✓ reproduced",
        ),
        (
            "Table 1",
            "MoDE with 1 fresh expert is above full fine-tuning on average",
            "64.39 > 64.34",
            "21.77 against 22.95",
            "−1.19 [−1.57, −0.81]",
            "✕ contradicted",
        ),
        (
            "Table 1",
            "MoDE with 2 fresh experts is above MoDE with 1 fresh expert on average",
            "64.58 > 64.39",
            "21.91 against 21.77",
            "+0.14 [−0.00, +0.27]",
            "○ undecided",
        ),
    ),
}
