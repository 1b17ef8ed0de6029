"""Figures 9 and 10 and table 9: how many models are used at each token, and how softly they are chosen."""

from __future__ import annotations

from collections.abc import Iterator

from workbench_studies.cbtm import paper
from workbench_studies.cbtm.budgets import tokens_seen
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import (
    DENSE,
    HEADLINE,
    OTHER,
    Arm,
    System,
    averaged,
    balanced,
    calibrated,
    sparse,
)
from workbench_studies.cbtm.orders import COMPARABLE, has_less, is_comparable
from workbench_studies.cbtm.paper import TEMPERATURES, T
from workbench_studies.cbtm.scored import OTHER_TEMPERATURES, SPARSE, frozen, in_grid, top_ks
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict

_FIGURE = "in the figure, without numbers"


def judge_weighing(evidence: CbtmEvidence) -> list[Verdict]:
    """Sparse, sparsified, too soft and too sharp, frozen; and of one set of weights for all text."""
    result = [*_sparse(evidence), *_sparsified(evidence), *_temperature(evidence), *_frozen(evidence)]
    return [*result, _average(evidence)]


def _sparse(evidence: CbtmEvidence) -> Iterator[Verdict]:
    """Figure 9: of the main arm, since table 9 prints its numbers."""
    arm = evidence.subject.main
    one = Claim(
        "Figure 9",
        f"the nearest of {arm} alone has less perplexity than Dense",
        _against(arm, 1, paper.DENSE),
        id="nearest-below-dense",
    )
    yield has_less(evidence, one, sparse(arm, 1), System(DENSE))
    for top_k in SPARSE:
        if 1 < top_k < arm.num_models:
            sentence = f"the nearest {top_k} of {arm} are as good as all (a rise of less than {COMPARABLE:g} %)"
            paper_values = _against(arm, top_k, paper.printed(arm.num_models, arm.num_models), sign="against")
            yield is_comparable(
                evidence, Claim("Figure 9", sentence, paper_values, id="few-as-all"), sparse(arm, top_k), System(arm)
            )


def _against(arm: Arm, top_k: int, other: float | None, sign: str = "<") -> str:
    own = paper.printed(arm.num_models, top_k)
    return _FIGURE if own is None or other is None else f"{own} {sign} {other} (table 9, 84B tokens)"


def _sparsified(evidence: CbtmEvidence) -> Iterator[Verdict]:
    """Figure 10: a few of many models against as many models that are all there is."""
    many = balanced(max(evidence.subject.size.clusters))
    for number in evidence.subject.size.clusters:
        if number in SPARSE and number < many.num_models:
            sentence = f"the nearest {number} of {many} have less perplexity than all of {balanced(number)}"
            if number == 1:
                sentence = f"the nearest of {many} alone has less perplexity than Dense"
            claim = Claim("Figure 10", sentence, _FIGURE, id="one-of-many" if number == 1 else "few-of-many")
            yield has_less(evidence, claim, sparse(many, number), System(balanced(number)))
    if many.num_models > max(SPARSE):
        sentence = f"the nearest {max(SPARSE)} of {many} are as good as all (a rise of less than {COMPARABLE:g} %)"
        claim = Claim("§4.3", sentence, "“performs comparably to using all experts”, of 128", id="four-of-many")
        yield is_comparable(evidence, claim, sparse(many, max(SPARSE)), System(many))


def _temperature(evidence: CbtmEvidence) -> Iterator[Verdict]:
    arm = evidence.subject.main
    everyone, few = arm.num_models, 2
    for other in (min(TEMPERATURES), max(TEMPERATURES)):
        paper_values = _cells(arm, (everyone, T), (everyone, other))
        claim = Claim(
            "Table 9",
            f"with all of {arm}, T = {T:g} has less perplexity than T = {other:g}",
            paper_values,
            id="temperature",
        )
        yield has_less(evidence, claim, System(arm), in_grid(arm, everyone, other))
    softest = max(TEMPERATURES)
    printed = paper.printed(everyone, everyone, softest)
    if printed is None or printed > paper.DENSE:  # of two clusters it has less
        claim = Claim(
            "Table 9",
            f"with all of {arm}, T = {softest:g} has more perplexity than Dense",
            f"{printed or '—'} > {paper.DENSE}",
            id="softest-above-dense",
        )
        yield has_less(evidence, claim, System(DENSE), in_grid(arm, everyone, softest))
    if everyone > few:
        paper_values = _cells(arm, (few, softest), (everyone, softest))
        claim = Claim(
            "Table 9",
            f"at T = {softest:g} the nearest {few} have less perplexity than all",
            paper_values,
            id="softest-few",
        )
        yield has_less(evidence, claim, in_grid(arm, few, softest), in_grid(arm, everyone, softest))


def _cells(arm: Arm, lower: tuple[int, float], higher: tuple[int, float]) -> str:
    return " < ".join(str(paper.printed(arm.num_models, *cell) or "—") for cell in (lower, higher))


def _frozen(evidence: CbtmEvidence) -> Iterator[Verdict]:
    """The paper's own border, no drop at all, and a weaker one by itself."""
    system, main = frozen(evidence.subject), System(evidence.subject.main)
    printed = "“no drop in performance”"
    own = Claim(
        "§2.2", "weights that stay after half of a text do not raise the perplexity", printed, id="frozen-no-rise"
    )
    yield is_comparable(evidence, own, system, main, 0.0)
    weaker = f"weights that stay after half a block's tokens raise the perplexity by less than {COMPARABLE:g} %"
    claim = Claim(
        "§2.2", "weights may stay after half of a text without a drop", printed, weaker, id="frozen-small-rise"
    )
    yield is_comparable(evidence, claim, system, main)


def _average(evidence: CbtmEvidence) -> Verdict:
    """BTM's average, with equal weights: the paper leaves it out, since it fixes the weights for all text."""
    main = evidence.subject.main
    sentence = f"the average of the parameters of {main} has more perplexity than asking them by nearness"
    claim = Claim("§2.4", sentence, "“not well suited to our setting”", id="average-above")
    return has_less(evidence, claim, System(main), averaged(main))


# tables -------------------------------------------------------------------------------------------


def by_active(evidence: CbtmEvidence) -> list[Row]:
    """Figures 9 and 10: perplexity by the number of clusters and of models used at each token."""
    rows: list[Row] = []
    for number in sorted(evidence.subject.size.clusters):
        arm = balanced(number)
        for top_k in sorted({*(one for one in SPARSE if one < number), number}):
            result = evidence.resampled.average(sparse(arm, top_k), evidence.subject.domains)
            paper_values = {"clusters": number, "models asked": top_k, **interval_columns(result)}
            rows.append(paper_values | {"paper": paper.printed(number, top_k)})
    return rows


def by_temperature(evidence: CbtmEvidence) -> list[Row]:
    """Table 9 of the main arm, with the paper's columns beside ours."""
    arm = evidence.subject.main
    names = {top_k: "all" if top_k == arm.num_models else f"top-{top_k}" for top_k in top_ks(arm)}
    return [
        {
            "T": temperature,
            **{name: _value(evidence, in_grid(arm, top_k, temperature)) for top_k, name in names.items()},
            **{paper.column(name): paper.printed(arm.num_models, top_k, temperature) for top_k, name in names.items()},
        }
        for temperature in TEMPERATURES
    ]


def by_scaling(evidence: CbtmEvidence) -> list[Row]:
    """The two readings of the embedding, each at its temperatures."""
    main = evidence.subject.main
    if not evidence.subject.size.scaled_otherwise:
        return []
    arms = ((HEADLINE, main, TEMPERATURES), (OTHER, Arm(main.division, main.num_models, OTHER), OTHER_TEMPERATURES))
    return [
        {"scaling": name, "T": one, "perplexity": _value(evidence, System(arm, temperature=one))}
        for name, arm, temperatures in arms
        for one in temperatures
    ]


def by_rule(evidence: CbtmEvidence) -> list[Row]:
    """Nearness beside BTM's rules, of clusters and of metadata; the last at the budget of the ablations."""
    subject = evidence.subject
    systems = [
        (System(subject.main), "nearness (Eq. 3)"),
        (System(subject.main, "uniform"), "posterior, equal prior"),
        (System(subject.main, "cached"), "posterior, cached prior (BTM)"),
        (calibrated(subject.main), "posterior, calibrated on dev text (ours)"),
        (averaged(subject.main), "nothing: one model, the average of their parameters"),
        (System(subject.metadata, "uniform"), "posterior, equal prior"),
        (System(subject.metadata, "cached"), "posterior, cached prior (BTM)"),
        (System(DENSE), "one model"),
    ]
    if subject.reference != subject.main:
        systems += [
            (System(subject.reference), "nearness (Eq. 3)"),
            (System(subject.reference, "cached"), "posterior, cached prior (BTM)"),
            (System(subject.dense_reference), "one model"),
        ]
    return [
        {
            "models": str(arm),
            "tokens after branching": tokens_seen(evidence, at_less=arm.at_less),
            "weighed by": rule,
            "training domains": _value(evidence, system),
            "novel domains": _value(evidence, system, novel=True),
        }
        for system, rule in systems
        if (arm := system.arm)
    ]


def _value(evidence: CbtmEvidence, system: System, novel: bool = False) -> float | None:
    result = evidence.resampled.average(system, evidence.subject.novel if novel else evidence.subject.domains)
    return result.value if result else None
