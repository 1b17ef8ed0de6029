"""Figures 7 and 11: experts of two shapes, on the same clusters and the same tokens.

The paper has OPT-1.3B and 6.7B; here the smaller shape stands for the first, and the shape of all other arms for the
second. Both have a seed model of their own, which saw as many tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import ModelConfig
from engine.models.flops import elm_flops
from workbench_studies.cbtm.budgets import seeding_tokens, tokens_seen
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import DENSE_AT_LESS, System, balanced, smaller
from workbench_studies.cbtm.orders import has_less
from workbench_studies.cbtm.scored import few_smaller
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict, is_above, untestable

_NONE = "Needs experts of several shapes; a replication of this size has one."
_FIGURE = "in the figure, without numbers"
_GIGA = 1e9


def judge_shapes(evidence: CbtmEvidence) -> Iterator[Verdict]:
    """Clusters help both shapes, the larger one less; and few smaller experts against one larger model."""
    main = balanced(evidence.subject.main.num_models, at_less=True)
    both = Claim(
        "Figure 7",
        f"of smaller experts, too, {main} have less perplexity than one",
        "8 clusters best, of both",
        id="smaller-clusters",
    )
    leads = Claim(
        "Figure 7",
        f"{main} gain less over one where the experts are larger",
        "in the figure, without numbers",
        id="larger-gains-less",
    )
    if evidence.subject.size.smaller is None:
        yield from (untestable(claim, _NONE) for claim in (both, leads, _against_larger(evidence)))
        return
    yield has_less(evidence, both, smaller(main), smaller(DENSE_AT_LESS))
    systems = [smaller(DENSE_AT_LESS), smaller(main), System(DENSE_AT_LESS), System(main)]
    estimate = evidence.resampled.estimate(
        systems, evidence.subject.domains, lambda one, many, large, large_many: (one - many) - (large - large_many)
    )
    yield is_above(leads, estimate, unit="perplexity")
    yield has_less(evidence, _against_larger(evidence), smaller(main, few_smaller(main)), System(DENSE_AT_LESS))


def _against_larger(evidence: CbtmEvidence) -> Claim:
    """Figure 11 at one budget: the perplexity of the larger model, for a part of its operations."""
    main, shape = balanced(evidence.subject.main.num_models, at_less=True), evidence.subject.size.smaller
    saved = f" and {_times(evidence, shape):.1f} times fewer operations" if shape else ""
    sentence = f"{few_smaller(main)} of {main} of smaller experts have less perplexity than a larger model{saved}"
    return Claim(
        "Figure 11", sentence, "the same perplexity with 3.5 times fewer operations", id="smaller-below-larger"
    )


def _times(evidence: CbtmEvidence, shape: ModelConfig) -> float:
    return _operations(evidence, evidence.subject.size.shape) / _operations(evidence, shape)


def _operations(evidence: CbtmEvidence, shape: ModelConfig) -> float:
    """Of the seed model and all models of an arm together, at the smaller budget (§A.2)."""
    size, num_tokens = evidence.subject.size, seeding_tokens(evidence) + tokens_seen(evidence, at_less=True)
    return elm_flops(shape.num_layers, shape.width, size.vocab_size, num_tokens, size.block_size, 1)


def by_shape(evidence: CbtmEvidence) -> list[Row]:
    """Perplexity and operations of both shapes, with one model and with clusters; empty for a size of one shape."""
    size, main = evidence.subject.size, balanced(evidence.subject.main.num_models, at_less=True)
    if size.smaller is None:
        return []
    systems = (
        ("smaller", smaller(DENSE_AT_LESS)),
        ("smaller", smaller(main)),
        ("smaller", smaller(main, few_smaller(main))),
        ("larger", System(DENSE_AT_LESS)),
        ("larger", System(main)),
    )
    return [
        {
            "experts": name,
            "models": str(system.arm),
            "models used": system.top_k or (system.arm.num_models if system.arm else 1),
            "GFLOPs with the seed model": _operations(evidence, size.smaller if system.is_smaller else size.shape)
            / _GIGA,
            **interval_columns(evidence.resampled.average(system, evidence.subject.domains)),
        }
        for name, system in systems
    ]
