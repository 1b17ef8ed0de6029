"""The right of figure 3, and figure 5: how much text a model needs, with as many updates on less of it."""

from __future__ import annotations

from collections.abc import Iterator

from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict, is_above, on_the_floor, untestable
from workbench_studies.mode import arms, paper
from workbench_studies.mode.evidence import ModeEvidence, on
from workbench_studies.mode.names import Arm
from workbench_studies.mode.orders import POINTS, floor, has_more

ALL = "all"


def judge_amounts(evidence: ModeEvidence) -> list[Verdict]:
    """Where LoRA is better than an expert, and where frozen experts are better than those that learn."""
    return [*_sequences(evidence), *_mixtures(evidence)]


def _sequences(evidence: ModeEvidence) -> Iterator[Verdict]:
    by_method, target = arms.by_sequences(evidence.subject.size), evidence.subject.targets[1]
    lora, mode = by_method["lora"], by_method["mode"]
    amounts = list(mode)
    fewest = amounts[0]
    sentence = f"on {fewest} sequences LoRA is above MoDE on {target}"
    claim = Claim("Figure 3", sentence, "up to ∼1k examples", id="fewest-lora")
    yield has_more(evidence, claim, lora[fewest], mode[fewest], [target])
    sentence = f"on all sequences MoDE is above LoRA on {target}"
    claim = Claim("Figure 3", sentence, paper.IN_FIGURE, id="all-mode")
    yield has_more(evidence, claim, mode[None], lora[None], [target])
    before = amounts[-2]
    claim = Claim(
        "Figure 3",
        f"from {before} sequences to all of them MoDE gains more than LoRA on {target}",
        "LoRA stops at about 1k",
        id="mode-gains-more",
    )
    gains = evidence.accuracies.estimate(
        [mode[None], mode[before], lora[None], lora[before]],
        [target],
        lambda most, less, lora_most, lora_less: 100 * ((most - less) - (lora_most - lora_less)),
    )
    compared = [mode[None], mode[before], lora[None], lora[before]]
    yield on_the_floor(is_above(claim, gains, unit=POINTS), floor(evidence, compared, [target]))


def _mixtures(evidence: ModeEvidence) -> Iterator[Verdict]:
    by_row, judged = arms.by_mixture(evidence.subject.size), evidence.subject.judged
    frozen, composed = by_row["frozen"], by_row["composed"]
    fewest = next(iter(frozen))
    for row in ("composed", "two", "full", "lora"):
        other = by_row[row][fewest]
        claim = Claim(
            "Figure 5",
            f"{frozen[fewest]} of each target is above {other} on average",
            paper.IN_FIGURE,
            id=f"frozen-above-{row}",
        )
        yield has_more(evidence, claim, frozen[fewest], other, judged)
    sentence = f"from {fewest} sequences of each target to all of them trained experts gain more than frozen ones"
    gains = evidence.accuracies.estimate(
        [composed[None], composed[fewest], frozen[None], frozen[fewest]],
        judged,
        lambda most, less, frozen_most, frozen_less: 100 * ((most - less) - (frozen_most - frozen_less)),
    )
    compared = [composed[None], composed[fewest], frozen[None], frozen[fewest]]
    verdict = is_above(Claim("Figure 5", sentence, paper.IN_FIGURE, id="trained-gain-more"), gains, unit=POINTS)
    yield on_the_floor(verdict, floor(evidence, compared, judged))
    yield _highest(evidence)


def _highest(evidence: ModeEvidence) -> Verdict:
    """The composed model on all text against every other, on each domain: the least certain lead."""
    by_row = arms.by_mixture(evidence.subject.size)
    composed = by_row["composed"][None]
    sentence = f"on all mixed text {composed} is above every other, on each domain"
    claim = Claim("Figure 5", sentence, "“the highest accuracy across all domains”", id="composed-highest")
    leads = {
        (str(other[None]), domain): evidence.lead(composed, other[None], [domain])
        for row, other in by_row.items()
        if row != "composed"
        for domain in evidence.subject.judged
    }
    known = {pair: lead for pair, lead in leads.items() if lead is not None}
    if len(known) < len(leads):
        return untestable(claim)
    least = min(known, key=lambda pair: known[pair].low)
    ahead = sum(lead.low > 0 for lead in known.values())
    ours = f"ahead in {ahead} of {len(known)}; the least certain is shown: {least[0]} on {least[1]}"
    compared = [other[None] for other in by_row.values()]
    return on_the_floor(
        is_above(claim, known[least], ours=ours, unit=POINTS), floor(evidence, compared, evidence.subject.judged)
    )


# tables -------------------------------------------------------------------------------------------


def by_sequences(evidence: ModeEvidence) -> list[Row]:
    """Figure 3, right."""
    target = evidence.subject.targets[1]
    return [
        {
            "method": {"lora": "LoRA", "mode": "MoDE"}[method],
            "sequences": amount_words(amount),
            **interval_columns(evidence.accuracy(arm, [target]), on(target)),
            **_retained(evidence, arm),
        }
        for method, of_method in arms.by_sequences(evidence.subject.size).items()
        for amount, arm in of_method.items()
    ]


def _retained(evidence: ModeEvidence, arm: Arm) -> Row:
    result = evidence.accuracy(arm, [evidence.subject.retention])
    return {on(evidence.subject.retention): result.value if result else None}


def by_mixture(evidence: ModeEvidence) -> list[Row]:
    """Figure 5."""
    subject, rows = evidence.subject, arms.table_1(evidence.subject.size)
    return [
        {
            "model": str(rows[row]),
            "sequences of each": amount_words(amount),
            **{on(domain): _one(evidence, arm, domain) for domain in subject.judged},
            **interval_columns(evidence.accuracy(arm, subject.judged), "average"),
        }
        for row, from_fields in arms.by_mixture(subject.size).items()
        for amount, arm in from_fields.items()
    ]


def _one(evidence: ModeEvidence, arm: Arm, domain: str) -> float | None:
    result = evidence.accuracy(arm, [domain])
    return result.value if result else None


def amount_words(amount: int | None) -> str:
    return ALL if amount is None else f"{amount:,}"
