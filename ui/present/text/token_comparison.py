"""Where two experts differ, as sentences."""

from __future__ import annotations

from workbench.formatting.number_format import nats
from workbench.questions.token_comparison import Passage, TokenComparison


def contrast_words(answer: TokenComparison) -> str:
    """Which expert is better overall, by how much, and on how much text."""
    overall = answer.overall
    verb = "predicts better than" if overall > 0 else "predicts worse than"
    return (
        f"On {answer.domain} ({answer.split}), {answer.expert} {verb} {answer.rival} by {nats(abs(overall))} "
        f"over {answer.num_passages:,} passages from {answer.num_documents:,} documents."
    )


def passage_words(passage: Passage) -> str:
    """One passage: its document, length and mean difference."""
    shown = len(passage.tokens)
    cut = f", the first {shown:,} shown" if shown < passage.num_tokens else ""
    length = f"{passage.num_tokens:,} tokens{cut}"
    return f"From document {passage.document + 1}: {nats(passage.mean, signed=True)} over {length}"
