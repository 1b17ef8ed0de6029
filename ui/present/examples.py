"""The rows of the examples that pages show while they are empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Mapping[str, str]

DOMAINS: Sequence[Row] = (
    {"domain": "law", "documents": "1,204", "words": "812,300", "role": "train", "licence": "CC0"},
    {"domain": "medicine", "documents": "930", "words": "640,120", "role": "train", "licence": "CC BY 4.0"},
    {"domain": "poems", "documents": "310", "words": "48,900", "role": "novel", "licence": "public domain"},
)
CLUSTERS: Sequence[Row] = (
    {"cluster": "section · tenant · court", "documents": "412", "mostly from": "law (96 %)", "expert": "none yet"},
    {"cluster": "dose · trial · patients", "documents": "411", "mostly from": "medicine (98 %)", "expert": "none yet"},
    {"cluster": "night · heart · sea", "documents": "411", "mostly from": "poems (75 %)", "expert": "none yet"},
)
EXPERTS: Sequence[Row] = (
    {"expert": "first/law", "method": "demix", "perplexity ↓": "63.4", "parameters": "1.4 M", "mixtures": "first"},
    {"expert": "first/medicine", "method": "demix", "perplexity ↓": "88.1", "parameters": "1.4 M", "mixtures": "first"},
    {"expert": "poet", "method": "lora", "perplexity ↓": "121.7", "parameters": "1.5 M", "mixtures": "—"},
)
MIXTURE: Sequence[Row] = (
    {"domain": "law", "saved": "64.1", "now": "64.0", "change": "−0.2 %", "": "within 1 %"},
    {"domain": "medicine", "saved": "89.0", "now": "211.3", "change": "+137.4 %", "": "↑ worse"},
    {"domain": "poems", "saved": "118.2", "now": "120.6", "change": "+2.0 %", "": "↑ worse"},
)
SPECIALIZATION: Sequence[Row] = (
    {"expert": "first/law", "law": "**1.00**", "medicine": "2.41", "poems": "1.93"},
    {"expert": "first/medicine", "law": "3.12", "medicine": "**1.00**", "poems": "2.20"},
    {"expert": "poet", "law": "2.75", "medicine": "2.98", "poems": "**1.00**"},
)
POSTERIOR: Sequence[Row] = (
    {"token": "The", "first/law": "34 %", "first/medicine": "33 %", "poet": "33 %", "leads": "first/law"},
    {"token": "tenant", "first/law": "81 %", "first/medicine": "7 %", "poet": "12 %", "leads": "first/law"},
    {"token": "sings", "first/law": "22 %", "first/medicine": "2 %", "poet": "76 %", "leads": "poet"},
)
CERTIFICATE: Sequence[Row] = (
    {"domain": "poems", "before": "211.2", "after": "164.3", "change": "−22.2 %", "verdict": "better"},
    {"domain": "law", "before": "63.4", "after": "63.5", "change": "+0.1 %", "verdict": "no change shown"},
)
LAWS: Sequence[Row] = (
    {"law": "L1", "sentence": "a mixture with weight 1 on expert j is expert j", "tolerance": "bit-equal"}
    | {"measured": "0", "if broken": "0.683", "result": "✓ ok"},
    {"law": "L8", "sentence": "add(j) leaves every other tensor's hash unchanged", "tolerance": "exact"}
    | {"measured": "0", "if broken": "1", "result": "✓ ok"},
    {"law": "L19", "sentence": "mixing from stored scores is mixing from live forward passes", "tolerance": "1e-5"}
    | {"measured": "2.38e-07", "if broken": "0.412", "result": "✓ ok"},
)


def _claim(where: str, claim: str, paper: str, ours: str, difference: str, mark: str) -> Row:
    """A row of a report of this project on other text, with the mark that its interval has by the rule."""
    return {
        "where": where,
        "claim": claim,
        "paper": paper,
        "ours": ours,
        "difference [95 %]": difference,
        "mark": mark,
    }


CLAIMS: Mapping[str, Sequence[Row]] = {  # by the name of the paper
    "demix": (
        _claim(
            "Table 3",
            "DEMix (naive) has less perplexity than Dense on the training domains",
            "18.4 < 20.6",
            "51.66 against 57.04",
            "−5.38 [−5.86, −4.86]",
            "✓ reproduced",
        ),
        _claim(
            "Table 5",
            "DEMix (cached) has less perplexity than Dense on the novel domains",
            "21.4 < 25.9",
            "181.26 against 162.66",
            "+18.60 [+11.89, +25.35]",
            "✕ contradicted",
        ),
        _claim(
            "Table 5",
            "DEMix (updating) has less perplexity than DEMix (uniform) on the novel domains",
            "21.9 < 24.5",
            "183.49 against 183.10",
            "+0.39 [−0.16, +1.07]",
            "○ undecided",
        ),
    ),
    "cbtm": (
        _claim(
            "Figure 5",
            "8 clusters have less perplexity than one, at equal tokens",
            "13.24 < 13.82",
            "68.48 against 72.97",
            "−4.48 [−5.54, −3.34]",
            "✓ reproduced",
        ),
        _claim(
            "Figure 9",
            "the nearest 2 of 8 clusters are as good as all (a rise of less than 1 %)",
            "13.27 against 13.24",
            "—",
            "+1.76 % [+1.43, +2.12]",
            "✕ contradicted",
        ),
        _claim(
            "Figure 9",
            "the nearest of 8 clusters alone has less perplexity than Dense",
            "13.64 < 13.82",
            "74.23 against 72.97",
            "+1.26 [−0.45, +3.44]",
            "○ undecided",
        ),
    ),
    "mode": (
        _claim(
            "Table 1",
            "MoDE with 2 trained experts is above full fine-tuning on average",
            "64.93 > 64.34",
            "23.36 against 22.95",
            "+0.41 [+0.11, +0.72]",
            "✓ reproduced",
        ),
        _claim(
            "Table 1",
            "MoDE with 1 fresh expert is above full fine-tuning on average",
            "64.39 > 64.34",
            "21.77 against 22.95",
            "−1.19 [−1.57, −0.81]",
            "✕ contradicted",
        ),
        _claim(
            "Table 1",
            "MoDE with 2 fresh experts is above MoDE with 1 fresh expert on average",
            "64.58 > 64.39",
            "21.91 against 21.77",
            "+0.14 [−0.00, +0.27]",
            "○ undecided",
        ),
    ),
}
