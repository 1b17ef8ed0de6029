"""The findings of a replication of C-BTM, as JSON for its report, its page and other programs: tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import ModelConfig
from engine.statistics.estimates import Estimate, student_mean
from workbench_studies.cbtm.divisions import by_number, divisions, pictures, terms
from workbench_studies.cbtm.efficiency import MeasuredCost, elm_flops, speedup
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
    smaller,
    sparse,
)
from workbench_studies.cbtm.tasks import by_variant, routes
from workbench_studies.core.calibration import comparison, fit_row
from workbench_studies.core.findings import Row, interval_columns

_TERA, _GIGA = 1e12, 1e9
_MOE = "mixture of experts"


def findings_of(measured: CbtmMeasurements) -> Row:
    """What only this paper's findings have."""
    return {
        "seeding_tokens": _seeding_tokens(measured),
        "clusters": measured.subject.main.num_models,
        "calibrated": {
            "fits": [fit_row(seed, fit) for seed, fit in sorted(measured.fits.items())],
            "against": list(_calibrated(measured)),
        },
        "tables": {
            "clusters": by_clusters(measured),
            "domains": _by_domain(measured),
            "efficiency": efficiency(measured),
            "active": _by_active(measured),
            "9": _by_temperature(measured),
            "scaling": _by_scaling(measured),
            "rules": _by_rule(measured),
            "upcycled": by_budget(measured),
            "divisions": divisions(measured),
            "numbers": by_number(measured),
            "shapes": by_shape(measured),
            "updates": by_update(measured),
            "terms": terms(measured),
            "tasks": by_variant(measured),
            "routes": routes(measured),
        },
        "pictures": pictures(measured),
    }


# figures 5 to 8, 11 and 12: budgets and costs -----------------------------------------------------


def by_clusters(measured: CbtmMeasurements) -> list[Row]:
    """Perplexity by budget and number of clusters; the seed model first. The paper's table 9 is of one budget."""
    size = measured.subject.budget
    rows: list[Row] = [
        {"clusters": None, "tokens after branching": 0, "budget": "seed model", **measured.perplexity(SEED)}
        | {"paper": None}
    ]
    for at_less, numbers in ((True, size.clusters_at_less), (False, size.clusters)):
        for number in sorted(numbers):
            rows.append(
                {
                    "clusters": number,
                    "tokens after branching": _tokens_seen(measured, at_less=at_less),
                    "budget": f"{size.less:g} of the updates" if at_less else "whole",
                    **measured.perplexity(System(balanced(number, at_less=at_less))),
                    "paper": None if at_less else printed(number, number),
                }
            )
    return rows


def _by_domain(measured: CbtmMeasurements) -> list[Row]:
    """Perplexity on each training and novel domain, by the number of clusters at the full budget."""
    arms = map(balanced, sorted(measured.subject.budget.clusters))
    systems = {"seed model": SEED} | {str(arm): System(arm) for arm in arms}
    return [
        {
            "domain": domain,
            "role": measured.subject.role_of(domain),
            **{name: measured.value(system, [domain]) for name, system in systems.items()},
        }
        for domain in measured.subject.everywhere
    ]


def _tokens_seen(measured: CbtmMeasurements, *, at_less: bool) -> int:
    """The number of tokens that all models of an arm read together after branching."""
    size = measured.subject.budget
    share = size.less if at_less else 1.0
    return int(share * size.training.num_steps * size.training.sequences_per_domain * size.block_size)


def _seeding_tokens(measured: CbtmMeasurements) -> int:
    """The number of tokens the seed model read before branching; batches take as many sequences of each domain."""
    seeding = measured.subject.budget.seeding
    return seeding.num_steps * seeding.sequences_per_domain * len(measured.subject.domains) * seeding.block_size


def efficiency(measured: CbtmMeasurements) -> list[Row]:
    """§A.2 and §A.3: operations of all models of an arm, and how many times less than Dense for Dense's perplexity."""
    dense = _curve(measured, 1)
    rows: list[Row] = []
    for number in sorted({*measured.subject.budget.clusters_at_less, 1}):
        curve = _curve(measured, number)
        flops = _flops(measured, _tokens_seen(measured, at_less=False), number)
        rows.append(
            {
                "clusters": number,
                "TFLOPs of each model": flops / _TERA,
                "TFLOPs of all": number * flops / _TERA,
                "perplexity": curve[-1].performance if curve else None,
                "speed-up at Dense's last perplexity": speedup(dense[-1].performance, dense, curve)
                if dense and curve
                else None,
            }
        )
    return rows


def _curve(measured: CbtmMeasurements, number: int) -> list[MeasuredCost]:
    """Perplexity by operations: the seed model, the smaller budget, the full one; the seed model's cost is in all."""
    before = _flops(measured, _seeding_tokens(measured))
    points = [(SEED, 0)]
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
    num_tokens = _seeding_tokens(measured) + _tokens_seen(measured, at_less=True)
    return _flops(measured, num_tokens, 1, shape)


def by_shape(measured: CbtmMeasurements) -> list[Row]:
    """Perplexity and operations of both shapes, with one model and with clusters; empty for a size of one shape."""
    size, main = measured.subject.budget, balanced(measured.subject.main.num_models, at_less=True)
    if size.smaller is None:
        return []
    systems = (
        *((size.smaller, smaller(arm, top_k)) for arm, top_k in ((DENSE_AT_LESS, None), (main, None))),
        (size.smaller, smaller(main, few_smaller(main))),
        *((size.shape, System(arm)) for arm in (DENSE_AT_LESS, main)),
    )
    return [
        {
            "experts": "smaller" if system.is_smaller else "larger",
            "models": str(system.arm),
            "models used": system.top_k or (system.arm.num_models if system.arm else 1),
            "GFLOPs with the seed model": operations(measured, shape) / _GIGA,
            **measured.perplexity(system, with_novel=False),
        }
        for shape, system in systems
    ]


def by_budget(measured: CbtmMeasurements) -> list[Row]:
    """Figure 12: perplexity of the mixture of experts, the main arm and the dense model at both budgets."""
    if measured.subject.budget.moe is None:
        return []
    rows: list[Row] = []
    for at_less in (True, False):
        one, main = (balanced(number, at_less=at_less) for number in (1, measured.subject.main.num_models))
        tokens = _tokens_seen(measured, at_less=at_less)
        rows += [
            {"model": name, "tokens after branching": tokens, **measured.perplexity(system)}
            for name, system in ((str(one), System(one)), (str(main), System(main)), (_MOE, System(one, "moe")))
        ]
    return rows


def by_update(measured: CbtmMeasurements) -> list[Row]:
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


# figures 9 and 10, table 9: how models are weighed ------------------------------------------------


def _by_active(measured: CbtmMeasurements) -> list[Row]:
    """Figures 9 and 10: perplexity by the number of clusters and of models used at each token."""
    return [
        {
            "clusters": number,
            "models asked": top_k,
            **measured.perplexity(sparse(balanced(number), top_k), with_novel=False),
            "paper": printed(number, top_k),
        }
        for number in sorted(measured.subject.budget.clusters)
        for top_k in sorted({*(one for one in SPARSE if one < number), number})
    ]


def column(name: str) -> str:
    """The column of the paper's numbers that stands next to a column of ours."""
    return f"paper: {name}"


def _by_temperature(measured: CbtmMeasurements) -> list[Row]:
    """Table 9 of the main arm, with the paper's columns next to ours."""
    arm, domains = measured.subject.main, measured.subject.domains
    names = {top_k: "all" if top_k == arm.num_models else f"top-{top_k}" for top_k in top_ks(arm)}
    return [
        {
            "T": temperature,
            **{name: measured.value(in_grid(arm, top_k, temperature), domains) for top_k, name in names.items()},
            **{column(name): printed(arm.num_models, top_k, temperature) for top_k, name in names.items()},
        }
        for temperature in TEMPERATURES
    ]


def _by_scaling(measured: CbtmMeasurements) -> list[Row]:
    """The two readings of the embedding, each at its temperatures."""
    main = measured.subject.main
    if not measured.subject.budget.scaled_otherwise:
        return []
    arms = ((HEADLINE, main, TEMPERATURES), (OTHER, Arm(main.division, main.num_models, OTHER), OTHER_TEMPERATURES))
    return [
        {
            "scaling": name,
            "T": one,
            "perplexity": measured.value(System(arm, temperature=one), measured.subject.domains),
        }
        for name, arm, temperatures in arms
        for one in temperatures
    ]


_NEARNESS, _CACHED, _EQUAL = "nearness (Eq. 3)", "posterior, cached prior (BTM)", "posterior, equal prior"


def _by_rule(measured: CbtmMeasurements) -> list[Row]:
    """Nearness and BTM's rules, of clusters and of metadata; the last at the budget of the ablations."""
    subject = measured.subject
    systems = [
        (System(subject.main), _NEARNESS),
        (System(subject.main, "uniform"), _EQUAL),
        (System(subject.main, "cached"), _CACHED),
        (System(subject.main, "calibrated"), "posterior, calibrated on dev text (ours)"),
        (System(subject.main, "average"), "nothing: one model, the average of their parameters"),
        (System(subject.metadata, "uniform"), _EQUAL),
        (System(subject.metadata, "cached"), _CACHED),
        (System(DENSE), "one model"),
    ]
    if subject.reference != subject.main:
        systems += [
            (System(subject.reference), _NEARNESS),
            (System(subject.reference, "cached"), _CACHED),
            (System(subject.dense_reference), "one model"),
        ]
    return [
        {
            "models": str(arm),
            "tokens after branching": _tokens_seen(measured, at_less=arm.at_less),
            "weighed by": rule,
            "training domains": measured.value(system, subject.domains),
            "novel domains": measured.value(system, subject.novel),
        }
        for system, rule in systems
        if (arm := system.arm)
    ]


def _calibrated(measured: CbtmMeasurements) -> Iterator[Row]:
    """A calibrated posterior against what the paper has; it is ours, and no claim is judged by it."""
    main = measured.subject.main
    others = {
        _NEARNESS: System(main),
        _EQUAL: System(main, "uniform"),
        _CACHED: System(main, "cached"),
        "Dense": System(DENSE),
    }
    for text, domains in (("training domains", measured.subject.domains), ("novel domains", measured.subject.novel)):
        for name, other in others.items():
            if compared := comparison(measured.resampled, System(main, "calibrated"), other, domains):
                yield {"text": text, "against": name, **compared}
