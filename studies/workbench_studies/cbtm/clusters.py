"""Figures 13 to 16 and 18, and table 8: what clusters must be like, who specializes, and how labels go with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engine.statistics.bootstrap import Change, Counted
from engine.statistics.estimates import Estimate, Floats
from workbench_studies.cbtm import paper
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import Arm, Division, System, single_model
from workbench_studies.cbtm.orders import COMPARABLE, has_less
from workbench_studies.cbtm.sizes import shared
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict, is_above, is_below, is_within, untestable

_FIGURE = "in the figure, without numbers"
_DIVISIONS: tuple[Division, ...] = ("balanced", "random", "unbalanced")
_BALANCE_MATTERS = 32  # clusters, from which on the paper sees it (§7.2)
DIAGONAL = Claim(
    "Figure 15", "on each cluster its own expert has the least perplexity", "32 of 32 clusters", id="own-expert"
)
OWN = Claim(
    "Figure 16",
    "some label lies mostly (more than half of it) in one cluster",
    "such as Environmental Science",
    id="label-in-one",
)
SPREAD = Claim(
    "Figure 16", "another label has no cluster with half of it", "such as Computer Science", id="label-spread"
)
RANGE = Claim(
    "Figure 18", "balancing narrows the range of cluster sizes on held-out documents", _FIGURE, id="size-range"
)
MEDIAN = Claim(
    "Figure 18", "balancing raises the median of cluster sizes on held-out documents", _FIGURE, id="size-median"
)


def judge_clusters(evidence: CbtmEvidence) -> list[Verdict]:
    """All claims on the clusters themselves."""
    return [*_ablated(evidence), _diagonal(evidence), *_labels(evidence), *_sizes(evidence), *_metadata(evidence)]


# figures 13 and 14 --------------------------------------------------------------------------------


def _ablated(evidence: CbtmEvidence) -> Iterator[Verdict]:
    subject = evidence.subject
    main, dense, random = subject.reference, subject.dense_reference, subject.ablated("random")
    claim = Claim("Figure 13", f"{random} have more perplexity than Dense", _FIGURE, id="random-above-dense")
    yield has_less(evidence, claim, System(dense), System(random))
    claim = Claim("Figure 13", f"{random} have more perplexity than {main}", _FIGURE, id="random-above-balanced")
    yield has_less(evidence, claim, System(main), System(random))
    yield _harm_grows(evidence)
    yield _balance(evidence, main, subject.ablated("unbalanced"))
    yield _balance_grows(evidence)


def _harm_grows(evidence: CbtmEvidence) -> Verdict:
    """Random clusters in the most numbers against the fewest."""
    few, many = _numbers(evidence)
    numbers = f": {many} against {few}" if few != many else ""
    claim = Claim(
        "Figure 13", f"random clusters do more harm the more there are{numbers}", _FIGURE, id="random-harm-grows"
    )
    if few == many:
        return untestable(claim, "Random clusters are in one number only.")
    lower, higher = (System(evidence.subject.ablated("random", number)) for number in (few, many))
    return has_less(evidence, claim, lower, higher)


def _balance(evidence: CbtmEvidence, main: Arm, unbalanced: Arm) -> Verdict:
    """Figure 14 for many clusters; for few the paper sees little effect (§7.2)."""
    if main.num_models >= _BALANCE_MATTERS:
        claim = Claim("Figure 14", f"{main} have less perplexity than {unbalanced}", _FIGURE, id="balance-many")
        return has_less(evidence, claim, System(main), System(unbalanced))
    sentence = f"with {main.num_models} clusters balancing has little effect (less than {COMPARABLE:g} %)"
    changes = [Change(System(unbalanced), System(main), domain) for domain in evidence.subject.domains]
    results = evidence.resampled.changes(changes)
    return is_within(
        Claim("§7.2", sentence, "“little effect” with 8 clusters", id="balance-few"), results, COMPARABLE, unit="%"
    )


def _balance_grows(evidence: CbtmEvidence) -> Verdict:
    """What balancing gains with the most clusters minus what it gains with the fewest."""
    subject, (few, many) = evidence.subject, _numbers(evidence)
    numbers = f"{many} clusters than with {few}" if few != many else "more clusters"
    claim = Claim("§7.2", f"balancing gains more with {numbers}", "8 and 32 clusters, in words", id="balance-grows")
    if few == many:
        return untestable(claim, "Unbalanced clusters are in one number only.")
    arms = [subject.ablated("unbalanced", many), subject.ablated("balanced", many)]
    arms += [subject.ablated("unbalanced", few), subject.ablated("balanced", few)]
    gains = evidence.resampled.estimate(
        [System(arm) for arm in arms],
        subject.domains,
        lambda many_free, many_even, few_free, few_even: (many_free - many_even) - (few_free - few_even),
    )
    return is_above(claim, gains, unit="perplexity")


def _numbers(evidence: CbtmEvidence) -> tuple[int, int]:
    """The fewest and the most clusters that are also random and unbalanced."""
    numbers = {evidence.subject.main.num_models, *evidence.subject.size.also_ablated}
    return min(numbers), max(numbers)


# figure 15 ----------------------------------------------------------------------------------------


def _diagonal(evidence: CbtmEvidence) -> Verdict:
    """The least certain lead of a cluster's own expert, over the clusters of every seed."""
    leads = [lead for run in evidence.subject.runs for lead in _leads(evidence, run.domains(evidence.subject.main, ()))]
    known = [lead for lead in leads if lead is not None]
    if not leads or len(known) < len(leads):
        return untestable(DIAGONAL)
    ahead = sum(lead.high < 0 for lead in known)
    ours = f"{ahead} of {len(known)} clusters of all seeds; the least certain lead is shown"
    return is_below(DIAGONAL, max(known, key=lambda lead: lead.high), ours=ours, unit="% against another expert")


def _leads(evidence: CbtmEvidence, homes: Sequence[str]) -> Iterator[Estimate | None]:
    """How much less perplexity each cluster's own expert has than the one against which that is least certain, in %."""
    arm = evidence.subject.main
    for own, home in enumerate(homes):
        others = [number for number in range(arm.num_models) if number != own]
        results = [
            evidence.resampled.changes([Change(single_model(arm, own), single_model(arm, one), home)]) for one in others
        ]
        known = [one for one in results if one is not None]
        yield max(known, key=lambda one: one.high) if known and len(known) == len(results) else None


def ratios(evidence: CbtmEvidence, seed: int) -> list[list[float]] | None:
    """Figure 15 in one seed: each expert's perplexity on each cluster over that of the cluster's own expert."""
    arm, losses = evidence.subject.main, evidence.measured.losses
    homes = evidence.subject.runs[seed].domains(arm, ())
    numbers = range(arm.num_models)
    if any((single_model(arm, number), seed, home) not in losses for number in numbers for home in homes):
        return None
    table = [[losses[single_model(arm, number), seed, home].value for home in homes] for number in numbers]
    return [[cell / table[place][place] for place, cell in enumerate(row)] for row in table]


# figures 16 and 18 --------------------------------------------------------------------------------


def _labels(evidence: CbtmEvidence) -> list[Verdict]:
    results = list(evidence.groupings(evidence.subject.main.clustering).values())
    if not results:
        return [untestable(OWN), untestable(SPREAD)]
    sentence = ", ".join(f"{one.information:.2f}" for one in results)
    ours = f"normalised mutual information {sentence}"
    tables = [one.counted for one in results]
    most, least = (
        evidence.resampled.draws.of_counts(tables, lambda counts, pick=pick: pick(_largest_shares(counts), axis=-1))
        for pick in (np.max, np.min)
    )
    return [
        is_above(OWN, most, 0.5, ours=ours, unit="of the label that lies most in one cluster"),
        is_below(SPREAD, least, 0.5, ours=ours, unit="of the label that lies least in one cluster"),
    ]


def _largest_shares(counts_RLK: Floats) -> Floats:
    """The share [R, L] of each label in the cluster that has most of it."""
    return np.asarray(counts_RLK.max(-1) / np.maximum(counts_RLK.sum(-1), 1))


def _sizes(evidence: CbtmEvidence) -> list[Verdict]:
    tables = held_out(evidence)
    if not tables:
        return [untestable(RANGE), untestable(MEDIAN)]
    draws = evidence.resampled.draws

    def ranges(counts_RBU: Floats) -> Floats:
        return np.asarray(np.ptp(counts_RBU.sum(2), axis=-1) - np.ptp(counts_RBU.sum(1), axis=-1))

    def medians(counts_RBU: Floats) -> Floats:
        return np.asarray(np.median(counts_RBU.sum(2), axis=-1) - np.median(counts_RBU.sum(1), axis=-1))

    return [
        is_below(RANGE, draws.of_counts(tables, ranges), unit="documents"),
        is_above(MEDIAN, draws.of_counts(tables, medians), unit="documents"),
    ]


def held_out(evidence: CbtmEvidence) -> list[Counted]:
    """The held-out documents of each seed by balanced and unbalanced cluster [B, U]."""
    subject = evidence.subject
    balanced, unbalanced = (evidence.groupings(subject.ablated(one).clustering) for one in _DIVISIONS[::2])
    tables = []
    for seed in sorted(balanced.keys() & unbalanced.keys()):
        one, other = balanced[seed], unbalanced[seed]
        cells_D = one.clusters_D * other.num_clusters + other.clusters_D
        held_out_D, shape = one.is_held_out_D, (one.num_clusters, other.num_clusters)
        tables.append(Counted(cells_D[held_out_D], one.wholes_D[held_out_D], shape))
    return tables


# table 8 ------------------------------------------------------------------------------------------


def _metadata(evidence: CbtmEvidence) -> list[Verdict]:
    """Metadata experts weighed as BTM weighs them: nothing tells how near a text is to a label."""
    main, metadata = System(evidence.subject.reference), System(evidence.subject.metadata, "cached")
    clusters, labels, dense = (paper.TABLE_8[name] for name in ("clusters", "metadata", "dense"))
    than_labels = Claim(
        "Table 8",
        f"{main.arm} have less perplexity than metadata experts",
        f"{clusters} < {labels}",
        id="clusters-below-labels",
    )
    than_dense = Claim(
        "Table 8",
        "metadata experts have less perplexity than one cluster",
        f"{labels} < {dense}",
        id="labels-below-one",
    )
    if evidence.subject.metadata.num_models == evidence.subject.main.num_models:
        against_labels = has_less(evidence, than_labels, main, metadata)
    else:
        subject = evidence.subject
        why = f"The paper compares as many models; here there are {subject.metadata} and {subject.main}."
        against_labels = untestable(than_labels, why)
    return [
        against_labels,
        has_less(evidence, than_dense, metadata, System(evidence.subject.dense_reference)),
    ]


# tables -------------------------------------------------------------------------------------------


def divisions(evidence: CbtmEvidence) -> list[Row]:
    """Figures 13 and 14 and table 8: ways to divide the text among models, at equal tokens."""
    subject, size = evidence.subject, evidence.subject.size
    share = size.less if size.ablations_at_less else 1.0
    dense, main = System(subject.dense_reference), System(subject.reference)
    metadata = System(subject.metadata, "cached")
    numbers = sorted({main_number := subject.main.num_models, *size.also_ablated}, key=lambda one: one != main_number)
    others = [System(subject.ablated(one, number)) for number in numbers for one in _DIVISIONS[1:]]
    fewer = [System(subject.ablated("balanced", number)) for number in numbers[1:]]
    printed = {dense: paper.TABLE_8["dense"], metadata: paper.TABLE_8["metadata"], main: paper.TABLE_8["clusters"]}
    return [
        {
            "models": str(arm),
            "updates": shared(size.training, arm.num_models, share).num_steps,
            **interval_columns(evidence.resampled.average(one, subject.domains)),
            "novel domains": _novel(evidence, one),
            "paper, table 8": printed.get(one),
        }
        for one in (dense, main, *fewer, *others, metadata)
        if (arm := one.arm)
    ]


def by_number(evidence: CbtmEvidence) -> list[Row]:
    """Figures 13 and 14: perplexity by the number of clusters, for each way to make them, at the same tokens."""
    subject = evidence.subject
    numbers = sorted({subject.main.num_models, *subject.size.also_ablated})
    one = evidence.resampled.average(System(subject.dense_reference), subject.domains)
    return [
        {"made": division, "clusters": number, **interval_columns(result)}
        for division in _DIVISIONS
        for number, result in (
            (1, one),
            *((n, evidence.resampled.average(System(subject.ablated(division, n)), subject.domains)) for n in numbers),
        )
    ]


def _novel(evidence: CbtmEvidence, system: System) -> float | None:
    results = evidence.resampled.average(system, evidence.subject.novel)
    return results.value if results else None


def terms(evidence: CbtmEvidence) -> list[Row]:
    """Tables 2 to 7: the first words of each cluster of the main arm, in the first seed that has it."""
    results = list(evidence.groupings(evidence.subject.main.clustering).values())
    if not results:
        return []
    sizes = results[0].counted.table.sum(0)
    return [
        {"cluster": number, "documents": int(sizes[number]), "words": ", ".join(words)}
        for number, words in enumerate(results[0].terms)
    ]
