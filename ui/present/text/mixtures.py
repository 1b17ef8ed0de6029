"""Sentences on a mixture's gate, and on the gates inside MoDE experts."""

from __future__ import annotations

from ui.present.text.formatting import listed
from workbench.answers.cards import MixtureCard
from workbench.formatting.shell_command import evaluate_command

SINGLE_EXPERT = "One expert takes part, so all gates give the same result: that expert's own perplexity."


def calibration_words(mixture: MixtureCard) -> str:
    """The next step of a mixture with the paper's evidence; empty once it was calibrated, or cannot be."""
    experts = [one for one in mixture.members if one.active and one.enabled]
    if len(experts) < 2 or mixture.notes or not isinstance(mixture.gate.get("evidence"), str):
        return ""
    command = evaluate_command(mixture.name, "dev", "--calibrate")
    return f"Its evidence is not calibrated: its decay and power can be fitted on dev text. Next: {command}"


def inside_words(mixture: MixtureCard) -> str:
    """A sentence on the gates inside MoDE experts of a mixture; empty where it has none."""
    inside = [f"{one.expert} ({', '.join(one.parts)})" for one in mixture.members if one.parts]
    if not inside:
        return ""
    gates = "gates mix the frozen backbone and the parts, anew for every token in each block"
    if len(mixture.members) == 1:
        return f"One model: inside {inside[0]} {gates}. With no other expert beside it there is no posterior."
    return f"This mixture's gate weighs whole models. Inside {listed(inside)} {gates}: that is not changed here."
