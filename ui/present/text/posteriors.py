"""Posteriors of domains, the evidence of a mixture and its calibration, as text and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.config import Evidence
from engine.mixing.evidence import AnyEvidence, EvidenceRule, name_of_reading
from ui.present.text.formatting import listed, pluralize
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import Change, EvidenceCalibration
from workbench.formatting.number_format import change as formatted
from workbench.formatting.shell_command import evaluate_command, shell_command
from workbench.questions.calibration import NewMixture
from workbench.questions.posteriors import DomainPosterior, PosteriorMap

Weights = Sequence[Sequence[float]]  # token × expert
_ESTIMATES = {
    "updating": "by the updating method (newest block {newest_weight:.0%})",
    "mean": "as the mean of the blocks' posteriors",
}
_EVIDENCE: dict[Evidence, str] = {"prefix": "the whole prefix (paper)", "last_token": "the last token (released code)"}


def evidence_text(evidence: AnyEvidence | Mapping[str, Any]) -> str:
    """What a posterior sees: `the whole prefix (paper)`, or `decay 0.9, power 0.3`; also from stored JSON."""
    known = name_of_reading(evidence)
    return known.words if isinstance(known, EvidenceRule) else _EVIDENCE[known]


def posterior_title(answer: PosteriorMap) -> str:
    """`Posterior after 10 to 31 blocks of dev text, by the updating method …, evidence: the whole prefix (paper)`."""
    how = _ESTIMATES[answer.estimate].format(newest_weight=answer.newest_weight)
    used = sorted(row.num_blocks for row in answer.domains) or [answer.num_blocks]
    blocks = pluralize(used[-1], "block")
    blocks = blocks if used[0] == used[-1] else f"{used[0]:,} to {blocks}"
    return f"Posterior after {blocks} of {answer.split} text, {how}, evidence: {evidence_text(answer.evidence)}"


def stability_text(row: DomainPosterior) -> str:
    """The block after which no share moves by more than 0.05; none if that is in the last tenth."""
    if row.stable_after is None:
        return f"not within {pluralize(row.num_blocks, 'block')}"
    return f"after {row.stable_after} of {pluralize(row.num_blocks, 'block')}"


def describe_short_domains(answer: PosteriorMap) -> str:
    """Which domains have fewer blocks than requested; empty if none."""
    short = [f"{row.domain} ({row.num_blocks})" for row in answer.domains if row.num_blocks < answer.num_blocks]
    sentences = [
        f"Fewer blocks than requested, since no more are scored: {', '.join(short)}." if short else "",
        f"Less than one full block: {', '.join(answer.too_short)}." if answer.too_short else "",
    ]
    return " ".join(filter(None, sentences))


_CELLS = "Each cell is the change of perplexity in % against the setting of now, on dev text of the training domains"


def how_to_read(answer: EvidenceCalibration) -> str:
    """What the cells of the table mean; which views they average depends on the number of experts."""
    if answer.gain_left_out is None:
        return f"{_CELLS} with all experts. Below 0 is better."
    return (
        f"{_CELLS}: the mean of reading it with all experts and without its own. Below 0 is better. "
        "Slow evidence, which the proposal may add, is not in these cells."
    )


def describe_verdict(answer: EvidenceCalibration) -> str:
    """A sentence with the proposed evidence and the reason."""
    now, best = (setting_text(one) for one in (answer.now, answer.best))
    if not answer.keeps:
        return f"Proposed: {best}, instead of {now}. {describe_gain(answer)}"
    if answer.too_short:
        few = f"the dev text of {listed(answer.too_short)} is a single block, so there is no interval"
        return f"Keep {now}: {few} that tells a gain from chance. Score more text. {describe_gain(answer)}"
    if answer.best == answer.now:
        return f"Keep {now}: no other setting is clearly better on this text."
    if answer.gain.value >= 0:
        return f"Keep {now}: a setting chosen on other domains, such as {best}, is not better. {describe_gain(answer)}"
    return f"Keep {now}: the gain of {best} is too small, or may be chance. {describe_gain(answer)}"


def describe_proposal(made: NewMixture) -> str:
    """What is proposed for a new mixture, and how to accept it; empty where its evidence was given."""
    if made.proposal is None:
        reason = f"Its evidence is not calibrated: {made.no_proposal}" if made.no_proposal else ""
        return f"{reason} {made.next_step}".strip()
    verdict = describe_verdict(made.proposal)
    if made.proposal.keeps or made.accepted:
        return f"{verdict} {'It is saved.' if made.accepted else ''}".strip()
    kept = setting_text(made.proposal.now)
    command = shell_command("mixture", "calibrate", made.name)
    return f"{verdict} Accept it: {command}. Until then it has {kept}."


def setting_text(rule: EvidenceRule) -> str:
    """`decay 0.9, power 0.3`, or the name of a reading."""
    return evidence_text(name_of_reading(rule))


def describe_gain(answer: EvidenceCalibration) -> str:
    """How much perplexity changes, for each domain by the setting that is best on the others."""
    if answer.gain_left_out is None:
        return f"On these domains' text perplexity changes by {_change(answer.gain_present)} with all experts."
    views = f"{_change(answer.gain_present)} with all experts, {_change(answer.gain_left_out)} without a domain's own"
    return f"On these domains' text perplexity changes by {_change(answer.gain)}: {views}, as if it were novel."


def _change(gain: Change) -> str:
    return formatted(gain.value, gain.low, gain.high)


def describe_fitted_text(answer: EvidenceCalibration) -> str:
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


SINGLE_EXPERT = "One expert takes part, so all gates give the same result: that expert's own perplexity."


def describe_calibration(mixture: MixtureCard) -> str:
    """The next step of a mixture with the paper's evidence; empty once it was calibrated, or cannot be."""
    experts = [member for member in mixture.members if member.takes_part]
    if len(experts) < 2 or mixture.notes or not isinstance(mixture.gate.get("evidence"), str):
        return ""
    command = evaluate_command(mixture.name, "dev", "--calibrate")
    return f"Its evidence is not calibrated: its decay and power can be fitted on dev text. Next: {command}"


def describe_inner_gates(mixture: MixtureCard) -> str:
    """A sentence on the gates inside MoDE experts of a mixture; empty where it has none."""
    inside = [f"{member.expert} ({', '.join(member.parts)})" for member in mixture.members if member.parts]
    if not inside:
        return ""
    gates = "gates mix the frozen backbone and the parts, again at every token in each block"
    if len(mixture.members) == 1:
        return f"One model: inside {inside[0]} {gates}. As it is the only expert, there is no posterior."
    return f"This mixture's gate weighs whole models. Inside {listed(inside)} {gates}: that is not changed here."


_EQUAL = 1e-6  # weights that differ by rounding


def leaders(weights: Weights) -> list[int]:
    """The index of the leading expert at every token.

    Among equal ones it is that of the token before; where a text begins so, as under a uniform prior, the next to lead.
    """
    places: list[int] = []
    num_tied = 0  # tokens at the beginning
    for row in weights:
        tied = [place for place, value in enumerate(row) if max(row) - value <= _EQUAL]
        if not places and len(tied) > 1:
            num_tied += 1
        else:
            places.append(places[-1] if places and places[-1] in tied else tied[0])
    return places[:1] * num_tied + places if places else [0] * num_tied
