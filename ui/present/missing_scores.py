"""The experts whose stored scores are missing for a mixture's perplexity."""

from __future__ import annotations

from collections.abc import Sequence

from engine.text.split_names import HeldOutSplit
from ui.present.text.formatting import listed


def without_scores(experts: Sequence[str], split: HeldOutSplit) -> list[str]:
    """The experts that are not scored on any domain of a split."""
    from workbench.analysis.perplexity_tables import list_evaluations
    from workbench.registry.database import reading

    with reading() as session:
        scored = {one.expert for one in list_evaluations(session, split=split)}
    return [expert for expert in experts if expert not in scored]


def gap_words(experts: Sequence[str], split: HeldOutSplit) -> str:
    """Why there is no perplexity: the experts without scores."""
    unscored = without_scores(experts, split)
    if len(unscored) == len(experts):
        return f"There are no stored scores on the {split} split yet."
    if not unscored:
        return f"No domain was scored on the {split} split with every expert that takes part."
    return f"No stored scores on the {split} split yet: {listed(unscored)}."
