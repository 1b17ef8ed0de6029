"""The calibration of a mixture's evidence as sentences and as a table."""

from __future__ import annotations

from typing import Any

from engine.mixing.evidence import EvidenceRule, named
from ui.present.text.formatting import listed, pluralize
from ui.present.text.posteriors import evidence_words
from workbench.answers.posteriors import Change, EvidenceCalibration
from workbench.formatting.number_format import change as formatted
from workbench.formatting.shell_command import shell_command
from workbench.questions.calibration import NewMixture

_CELLS = "Each cell is the change of perplexity in % against the setting of now, on dev text of the training domains"


def how_to_read(answer: EvidenceCalibration) -> str:
    """What the cells of the table mean; which views they average depends on the number of experts."""
    if answer.gain_left_out is None:
        return f"{_CELLS} with all experts. Below 0 is better."
    return (
        f"{_CELLS}: the mean of reading it with all experts and without its own. Below 0 is better. "
        "Slow evidence, which the proposal may add, is not in these cells."
    )


def verdict_words(answer: EvidenceCalibration) -> str:
    """The proposed evidence and the reason, in words."""
    now, best = (setting_words(one) for one in (answer.now, answer.best))
    if not answer.keeps:
        return f"Proposed: {best}, instead of {now}. {gain_words(answer)}"
    if answer.too_short:
        few = f"the dev text of {listed(answer.too_short)} is a single block, so there is no interval"
        return f"Keep {now}: {few} that tells a gain from chance. Score more text. {gain_words(answer)}"
    if answer.best == answer.now:
        return f"Keep {now}: no other setting is clearly better on this text."
    if answer.gain.value >= 0:
        return f"Keep {now}: a setting chosen on other domains, such as {best}, is not better. {gain_words(answer)}"
    return f"Keep {now}: the gain of {best} is too small, or may be chance. {gain_words(answer)}"


def proposal_words(made: NewMixture) -> str:
    """What is proposed for a new mixture, and how to accept it; empty where its evidence was given."""
    if made.proposal is None:
        reason = f"Its evidence is not calibrated: {made.no_proposal}" if made.no_proposal else ""
        return f"{reason} {made.next_step}".strip()
    verdict = verdict_words(made.proposal)
    if made.proposal.keeps or made.accepted:
        return f"{verdict} {'It is saved.' if made.accepted else ''}".strip()
    kept = setting_words(made.proposal.now)
    command = shell_command("mixture", "calibrate", made.name)
    return f"{verdict} Accept it: {command}. Until then it has {kept}."


def setting_words(rule: EvidenceRule) -> str:
    """`decay 0.9, power 0.3`, or the name of a reading."""
    return evidence_words(named(rule))


def gain_words(answer: EvidenceCalibration) -> str:
    """How much perplexity changes, for each domain by the setting that is best on the others."""
    if answer.gain_left_out is None:
        return f"On these domains' text perplexity changes by {_change(answer.gain_present)} with all experts."
    views = f"{_change(answer.gain_present)} with all experts, {_change(answer.gain_left_out)} without a domain's own"
    return f"On these domains' text perplexity changes by {_change(answer.gain)}: {views}, as if it were novel."


def _change(gain: Change) -> str:
    return formatted(gain.value, gain.low, gain.high)


def text_words(answer: EvidenceCalibration) -> str:
    """Which text it was fitted on, and which is missing."""
    fitted = f"Fitted on dev text of {pluralize(len(answer.domains), 'training domain')}: {listed(answer.domains)}."
    missing = f" Not scored under every expert: {listed(answer.missing)}." if answer.missing else ""
    return f"{fitted}{missing} Each gain is of a setting that was chosen on the other domains."


def surface_rows(answer: EvidenceCalibration) -> list[dict[str, Any]]:
    """A row for each decay, a column for each power: the change of perplexity in %."""
    return [
        {"decay": decay}
        | {f"power {power:g}": round(value, 2) for power, value in zip(answer.powers, row, strict=True)}
        for decay, row in zip(answer.decays, answer.change, strict=True)
    ]
