"""The rows of the examples that pages show while they are empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Mapping[str, str]


def table(columns: Sequence[str], *rows: Sequence[str]) -> Sequence[Row]:
    """Rows of a table as mappings, each with a value for every column."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


DOMAINS = table(
    ("domain", "documents", "words", "role", "licence"),
    ("law", "1,204", "812,300", "train", "CC0"),
    ("medicine", "930", "640,120", "train", "CC BY 4.0"),
    ("poems", "310", "48,900", "novel", "public domain"),
)
CLUSTERS = table(
    ("cluster", "documents", "mostly from", "expert"),
    ("section · tenant · court", "412", "law (96 %)", "none yet"),
    ("dose · trial · patients", "411", "medicine (98 %)", "none yet"),
    ("night · heart · sea", "411", "poems (75 %)", "none yet"),
)
EXPERTS = table(
    ("expert", "method", "perplexity ↓", "parameters", "mixtures"),
    ("first/law", "demix", "63.4", "1.4 M", "first"),
    ("first/medicine", "demix", "88.1", "1.4 M", "first"),
    ("poet", "lora", "121.7", "1.5 M", "—"),
)
MIXTURE = table(
    ("domain", "saved", "now", "change", ""),
    ("law", "64.1", "64.0", "−0.2 %", "within 1 %"),
    ("medicine", "89.0", "211.3", "+137.4 %", "↑ worse"),
    ("poems", "118.2", "120.6", "+2.0 %", "↑ worse"),
)
SPECIALIZATION = table(
    ("expert", "law", "medicine", "poems"),
    ("first/law", "**1.00**", "2.41", "1.93"),
    ("first/medicine", "3.12", "**1.00**", "2.20"),
    ("poet", "2.75", "2.98", "**1.00**"),
)
POSTERIOR = table(
    ("token", "first/law", "first/medicine", "poet", "leads"),
    ("The", "34 %", "33 %", "33 %", "first/law"),
    ("tenant", "81 %", "7 %", "12 %", "first/law"),
    ("sings", "22 %", "2 %", "76 %", "poet"),
)
CERTIFICATE = table(
    ("domain", "before", "after", "change", "verdict"),
    ("poems", "211.2", "164.3", "−22.2 %", "better"),
    ("law", "63.4", "63.5", "+0.1 %", "no change shown"),
)
LAWS = table(
    ("law", "sentence", "tolerance", "measured", "if broken", "result"),
    ("L1", "a mixture with weight 1 on expert j is expert j", "bit-equal", "0", "0.683", "✓ ok"),
    ("L8", "add(j) leaves every other tensor's hash unchanged", "exact", "0", "1", "✓ ok"),
    ("L19", "mixing from stored scores is mixing from live forward passes", "1e-5", "2.38e-07", "0.412", "✓ ok"),
)
