"""What mixes in a mixture: its gate, or of MoDE the gates inside an expert. Pure."""

from __future__ import annotations

from ui.present.text.formatting import listed
from workbench.registry.cards import MixtureCard

ALONE = "One expert takes part, so all ways to weigh experts are the same: that expert's own perplexity."


def inside_words(mixture: MixtureCard) -> str:
    """What is mixed inside experts of MoDE, and what this mixture adds to it; empty where it holds none."""
    inside = [f"{one.expert} ({', '.join(one.parts)})" for one in mixture.members if one.parts]
    if not inside:
        return ""
    gates = "gates mix the frozen backbone and the parts, anew for every token in each block"
    if len(mixture.members) == 1:
        return f"One model: inside {inside[0]} {gates}. With no other expert beside it there is no posterior."
    return f"This mixture's gate weighs whole models. Inside {listed(inside)} {gates}: that is not changed here."
