"""The findings of a replication of C-BTM, as JSON for its report, its page and other programs: its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.config import ModelConfig
from engine.statistics.estimates import Estimate, student_mean
from workbench_studies.cbtm.divisions import by_division, pictures
from workbench_studies.cbtm.measurements import (
    OTHER_TEMPERATURES,
    SPARSE,
    CbtmMeasurements,
    few_smaller,
    in_grid,
    top_ks,
)
from workbench_studies.cbtm.names import (
    DENSE,
    DENSE_AT_LESS,
    HEADLINE,
    MOE,
    OTHER,
    SEED,
    TEMPERATURES,
    Arm,
    System,
    balanced,
    printed,
    shared,
    sparse,
)
from workbench_studies.cbtm.tasks import by_variant, routes
from workbench_studies.core.averages import Row, interval_columns
from workbench_studies.core.measurements import comparison, fit_row

_TERA, _GIGA = 1e12, 1e9
_MOE = "mixture of experts"
_NEARNESS, _CACHED, _EQUAL = "nearness (Eq. 3)", "posterior, cached prior (BTM)", "posterior, equal prior"


def findings_of(measured: CbtmMeasurements) -> Row:
    """What only this paper's findings have. A calibrated posterior is ours: no claim is judged by it."""
    subject, main = measured.subject, measured.subject.main
    rivals = {_NEARNESS: System(main), _EQUAL: System(main, "uniform"), _CACHED: System(main, "cached")}
    against = [
        {"text": text, "against": name, **compared}
        for text, domains in (("training domains", subject.domains), ("novel domains", subject.novel))
        for name, other in (rivals | {"Dense": System(DENSE)}).items()
        if (compared := comparison(measured, System(main, "calibrated"), other, domains))
    ]
    return {
        "seeding_tokens": _seeding_tokens(measured),
        "clusters": main.num_models,
        "calibrated": {"fits": [fit_row(seed, fit) for seed, fit in sorted(measured.fits.items())], "against": against},
        "tables": _by_budget(measured)
        | _by_weights(measured)
        | by_division(measured)
        | {"tasks": by_variant(measured), "routes": routes(measured)},
        "pictures": pictures(measured),
    }


# figures 5 to 8, 11 and 12: budgets and costs -----------------------------------------------------


def _by_budget(measured: CbtmMeasurements) -> dict[str, list[Row]]:
    """Perplexity by number of clusters, tokens and operations; the paper's table 9 is of one budget."""
    subject, size = measured.subject, measured.subject.budget
    numbers = sorted(size.clusters)
    budgets = ((True, size.clusters_at_less), (False, size.clusters))
    sparsely = [(n, top_k) for n in numbers for top_k in sorted({*(one for one in SPARSE if one < n), n})]
    return {
        "clusters": [
            {"clusters": None, "tokens after branching": 0, "budget": "seed model", **measured.perplexity(SEED)}
            | {"paper": None},
            *(
                {
                    "clusters": number,
                    "tokens after branching": _tokens_seen(measured, at_less=at_less),
                    "budget": f"{size.less:g} of the updates" if at_less else "whole",
                    **measured.perplexity(System(balanced(number, at_less=at_less))),
                    "paper": None if at_less else printed(number, number),
                }
                for at_less, of_budget in budgets
                for number in sorted(of_budget)
            ),
        ],
        "domains": measured.by_domain(
            subject.everywhere,
            {"seed model": SEED} | {str(arm): System(arm) for arm in map(balanced, numbers)},
            with_role=True,
        ),
        "efficiency": [_costs(measured, number) for number in sorted({*size.clusters_at_less, 1})],
        "active": [
            {
                "clusters": number,
                "models asked": top_k,
                **measured.perplexity(sparse(balanced(number), top_k), with_novel=False),
                "paper": printed(number, top_k),
            }
            for number, top_k in sparsely
        ],
        "upcycled": [
            {"model": name, "tokens after branching": _tokens_seen(measured, at_less=at_less)}
            | measured.perplexity(system)
            for at_less in ((True, False) if size.moe else ())
            for one, main in [[balanced(number, at_less=at_less) for number in (1, subject.main.num_models)]]
            for name, system in ((str(one), System(one)), (str(main), System(main)), (_MOE, System(one, "moe")))
        ],
        "shapes": _by_shape(measured),
        "updates": _by_update(measured),
    }


def _tokens_seen(measured: CbtmMeasurements, *, at_less: bool) -> int:
    """The number of tokens that all models of an arm read together after branching."""
    size = measured.subject.budget
    share = size.less if at_less else 1.0
    return int(share * size.training.max_steps * size.training.sequences_per_domain * size.block_size)


def _seeding_tokens(measured: CbtmMeasurements) -> int:
    """The number of tokens the seed model read before branching; batches take as many sequences of each domain."""
    seeding = measured.subject.budget.seeding
    return seeding.max_steps * seeding.sequences_per_domain * len(measured.subject.domains) * seeding.block_size


def _costs(measured: CbtmMeasurements, number: int) -> Row:
    """§A.2 and §A.3: operations of all models of an arm, and how many times less than Dense for Dense's perplexity."""
    dense, curve = _curve(measured, 1), _curve(measured, number)
    flops = _flops(measured, _tokens_seen(measured, at_less=False), number)
    return {
        "clusters": number,
        "TFLOPs of each model": flops / _TERA,
        "TFLOPs of all": number * flops / _TERA,
        "perplexity": curve[-1].performance if curve else None,
        "speed-up at Dense's last perplexity": speedup(dense[-1].performance, dense, curve)
        if dense and curve
        else None,
    }


def _curve(measured: CbtmMeasurements, number: int) -> list[MeasuredCost]:
    """Perplexity by operations: the seed model, the smaller budget, the full one; the seed model's cost is in all."""
    before, points = _flops(measured, _seeding_tokens(measured)), [(SEED, 0)]
    for at_less in (True, False):
        points.append((System(balanced(number, at_less=at_less)), _tokens_seen(measured, at_less=at_less)))
    known = [(measured.value(system, measured.subject.domains), tokens) for system, tokens in points]
    return [MeasuredCost(value, before + _flops(measured, tokens)) for value, tokens in known if value is not None]


def _flops(
    measured: CbtmMeasurements, num_tokens: int, num_clusters: int = 1, shape: ModelConfig | None = None
) -> float:
    """Operations of one of so many models when all together see these tokens (§A.2)."""
    size = measured.subject.budget
    shape = shape or size.shape
    return elm_flops(shape.num_layers, shape.width, size.vocab_size, num_tokens, size.block_size, num_clusters)


def operations(measured: CbtmMeasurements, shape: ModelConfig) -> float:
    """Of the seed model and all models of an arm together, at the smaller budget (§A.2)."""
    return _flops(measured, _seeding_tokens(measured) + _tokens_seen(measured, at_less=True), 1, shape)


def _by_shape(measured: CbtmMeasurements) -> list[Row]:
    """Perplexity and operations of both shapes, with one model and with clusters; empty for a size of one shape."""
    size, main = measured.subject.budget, balanced(measured.subject.main.num_models, at_less=True)
    if size.smaller is None:
        return []
    small = (
        System(DENSE_AT_LESS, is_smaller=True),
        System(main, is_smaller=True),
        System(main, top_k=few_smaller(main), is_smaller=True),
    )
    return [
        {
            "experts": "smaller" if system.is_smaller else "larger",
            "models": str(system.arm),
            "models used": system.top_k or (system.arm.num_models if system.arm else 1),
            "GFLOPs with the seed model": operations(measured, size.smaller if system.is_smaller else size.shape)
            / _GIGA,
            **measured.perplexity(system, with_novel=False),
        }
        for system in (*small, System(DENSE_AT_LESS), System(main))
    ]


def _by_update(measured: CbtmMeasurements) -> list[Row]:
    """Figure 8: seconds of an update of each arm's slowest model, at the full budget; empty where none is known."""
    size = measured.subject.budget
    arms = [(str(arm), arm.key, arm) for arm in map(balanced, sorted(size.clusters))]
    return [
        {
            "models": name,
            "clusters": arm.num_models,
            "tokens in an update of each": training.sequences_per_domain * training.block_size,
            **interval_columns(estimate),
        }
        for name, key, arm in (*arms, (_MOE, MOE, DENSE))
        if (training := shared(size.training, arm.num_models))
        and (estimate := over_seeds(list(seconds_of_slowest(measured, key).values())))
    ]


def seconds_of_slowest(measured: CbtmMeasurements, key: str) -> dict[int, float]:
    """Seconds of an update of an arm's slowest model, by seed, without the start of its training.

    The paper divides GPUs among the models, and those of one model wait for each other. Here each model has one
    process, so a model of many clusters has a smaller batch, and nothing waits.
    """
    return {seed: max(seconds) for (seed, name), seconds in measured.updates.items() if name == key and seconds}


def over_seeds(values: list[float]) -> Estimate | None:
    """The mean with Student's interval; None without values."""
    if not values:
        return None
    result = student_mean(values)
    return Estimate(result.mean, result.low, result.high, tuple(values))


# table 9, §2.4: how models are weighed ------------------------------------------------------------


def column(name: str) -> str:
    """The column of the paper's numbers that stands next to a column of ours."""
    return f"paper: {name}"


def _by_weights(measured: CbtmMeasurements) -> dict[str, list[Row]]:
    """Table 9 of the main arm with the paper's columns next to ours, readings of the embedding, and BTM's rules."""
    subject, main = measured.subject, measured.subject.main
    names = {top_k: "all" if top_k == main.num_models else f"top-{top_k}" for top_k in top_ks(main)}
    otherwise = Arm(main.division, main.num_models, OTHER)
    scalings = ((HEADLINE, main, TEMPERATURES), (OTHER, otherwise, OTHER_TEMPERATURES))
    return {
        "9": [
            {
                "T": temperature,
                **{
                    name: measured.value(in_grid(main, top_k, temperature), subject.domains)
                    for top_k, name in names.items()
                },
                **{column(name): printed(main.num_models, top_k, temperature) for top_k, name in names.items()},
            }
            for temperature in TEMPERATURES
        ],
        "scaling": [
            {
                "scaling": name,
                "T": one,
                "perplexity": measured.value(System(arm, temperature=one), subject.domains),
            }
            for name, arm, temperatures in (scalings if subject.budget.scaled_otherwise else ())
            for one in temperatures
        ],
        "rules": [
            {
                "models": str(arm),
                "tokens after branching": _tokens_seen(measured, at_less=arm.at_less),
                "weighed by": rule,
                "training domains": measured.value(system, subject.domains),
                "novel domains": measured.value(system, subject.novel),
            }
            for system, rule in _rules(measured)
            if (arm := system.arm)
        ],
    }


def _rules(measured: CbtmMeasurements) -> list[tuple[System, str]]:
    """Nearness and BTM's rules, of clusters and of metadata; the last at the budget of the ablations."""
    subject, main = measured.subject, measured.subject.main
    systems = [
        (System(main), _NEARNESS),
        (System(main, "uniform"), _EQUAL),
        (System(main, "cached"), _CACHED),
        (System(main, "calibrated"), "posterior, calibrated on dev text (ours)"),
        (System(main, "average"), "nothing: one model, the average of their parameters"),
        (System(subject.metadata, "uniform"), _EQUAL),
        (System(subject.metadata, "cached"), _CACHED),
        (System(DENSE), "one model"),
    ]
    if subject.reference != main:
        systems += [
            (System(subject.reference), _NEARNESS),
            (System(subject.reference, "cached"), _CACHED),
            (System(subject.dense_reference), "one model"),
        ]
    return systems


class MeasuredCost(NamedTuple):
    """A performance (such as a perplexity) and what reaching it cost (such as operations, or seconds)."""

    performance: float
    cost: float


def cost_of(performance: float, curve: Sequence[MeasuredCost]) -> float | None:
    """The cost of a performance, log-interpolated between the nearest measured performances.

    None outside the measured range: nothing is extrapolated (after Artetxe et al. 2021). Of two costs for one
    performance the lower counts.
    """
    cheapest = {point.performance: point.cost for point in sorted(curve, key=lambda point: -point.cost)}
    known = sorted(cheapest.items())
    if not known or not known[0][0] <= performance <= known[-1][0]:
        return None
    performances, costs = zip(*known, strict=True)
    return float(np.exp(np.interp(performance, performances, np.log(costs))))


def speedup(performance: float, dense: Sequence[MeasuredCost], other: Sequence[MeasuredCost]) -> float | None:
    """The dense model's cost for a performance over the other's; None when either was not measured."""
    dense_cost, other_cost = cost_of(performance, dense), cost_of(performance, other)
    return None if dense_cost is None or other_cost is None else dense_cost / other_cost


def elm_flops(num_layers: int, width: int, vocab_size: int, num_tokens: int, context: int, num_clusters: int) -> float:
    """Operations to train one of `num_clusters` expert language models when all together see `num_tokens` (C-BTM §A.2).

    Narayanan's formula as printed, which counts each forward pass twice. Each sees its share, so that all of them cost
    what the one dense model costs.
    """
    of_layers = 96 * num_tokens * num_layers * width**2
    return of_layers * (1 + context / (6 * width) + vocab_size / (16 * num_layers * width)) / num_clusters
