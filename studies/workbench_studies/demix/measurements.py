"""The losses and posteriors that DEMix's claims are about, from stored scores; curves, and the words of tables 1 and 2.

The experts' scores of one text become one loss for each way of using them; a way whose scores are not there yet is left
out. Nothing here reads the registry. Shapes: E experts, X tokens, N blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import fmean
from typing import Any, Literal

import numpy as np

from engine.config import Evidence
from engine.methods.registry import get_method
from engine.mixing.evidence import AnyEvidence
from engine.statistics.estimates import Floats, Ints, Loss
from engine.statistics.perplexity import perplexity_of
from workbench_studies.core.averages import Row
from workbench_studies.core.measurements import Fit, Loaded, Measurements, ScoredText, Scores, best_expert, fit
from workbench_studies.core.study import ratios_of
from workbench_studies.demix.names import (
    CALIBRATED,
    GRID,
    PRINTED,
    READINGS,
    WORDS,
    DemixRun,
    Reading,
    ReplicateDemix,
    System,
    by_evidence,
    own,
    system,
)

_DENSE: tuple[Literal["dense", "dense-balanced"], ...] = ("dense", "dense-balanced")
STABLE_AFTER = 50  # blocks, “usually” (§A.6)
SETTLED = 0.05  # a mean posterior is stable when no share moves further than this
EVIDENCES: tuple[Evidence, ...] = ("prefix", "last_token")
Overlap = Mapping[tuple[str, str], float]  # of two domains; both ways


@dataclass(frozen=True)
class Belief:
    """Posteriors of the experts on a domain's held-out text (figures 4, 7 and 8), by the paper's reading."""

    experts: tuple[str, ...]
    posterior_EN: Floats  # after each block, from a uniform prior in each
    updating_EN: Floats  # the updating prior before each block and after the last
    documents_N: Ints  # in which each block begins


@dataclass
class DemixMeasurements(Measurements):
    """With what held-out text says of the experts, the calibrated evidence, and the overlap of its domains."""

    subject: ReplicateDemix
    beliefs: dict[tuple[int, str], Belief] = field(default_factory=dict)  # by seed and domain
    fits: dict[int, Fit] = field(default_factory=dict)  # by seed; only where dev text allows
    overlap: Overlap | None = None  # None: not measured

    def beliefs_on(self, domain: str) -> list[Belief]:
        """The posteriors on a domain's held-out text, in every seed in which it was scored."""
        return [self.beliefs[seed, domain] for seed in range(self.subject.seeds) if (seed, domain) in self.beliefs]

    def overlap_with_others(self, domains: Sequence[str]) -> dict[str, float | None]:
        """The mean overlap of each domain with the others."""
        overlap = self.overlap
        return {
            one: None if overlap is None else float(np.mean([overlap[one, other] for other in domains if other != one]))
            for one in domains
        }

    def measure(self, scores: Scores) -> Iterator[str]:
        """Adds what the scores give; says after each seed and domain where it is."""
        for run in self.subject.runs:
            texts = (ScoredText(self, run, domain, scores) for domain in self.subject.domains)
            if fitted := fit(texts, run.experts("demix", self.subject.domains)):
                self.fits[run.seed] = fitted
            for domain in self.subject.everywhere:
                _DemixText(self, run, domain, scores).measure()
                yield f"seed {run.seed}, {domain}"


class _DemixText(ScoredText):
    """The scores of one domain under the models of one seed."""

    measured: DemixMeasurements
    run: DemixRun

    def measure(self) -> None:
        """Adds every loss and belief that the stored scores give."""
        self._measure_baselines()
        self._measure_demix()
        self._measure_adapted()
        self._measure_removed()

    def _measure_baselines(self) -> None:
        for method in _DENSE:
            self.keep(System(method), self.one(self.run.expert(method, self.domain)))
        tokens = self.run.experts("domain-token", self.subject.domains)
        self.keep(System("domain-token"), self._own_or_best(tokens))

    def _measure_demix(self) -> None:
        experts = self.run.experts("demix", self.subject.domains)
        test = self.load(experts, "test")
        if test is None:
            return
        for place, home in enumerate(self.subject.domains):
            self.keep(System("alone", domain=home), self.loss(test, test.logprobs_EX[place]))
        self.keep(System("naive"), self._own_or_best(experts))
        if self.domain in self.subject.domains:
            self.keep(System("interleaved"), self.one(own(self.run.interleaved, self.domain)))
        self._measure_mixtures(test, self.load(experts, "dev"))
        self._believe(experts)

    def _measure_mixtures(self, test: Loaded, dev: Loaded | None) -> None:
        from engine.mixing.base import FixedGate
        from engine.mixing.posterior import PosteriorGate, UpdatingGate

        equal = [1.0] * len(test.logprobs_EX)
        self.keep(System("average"), self.mixed(FixedGate(equal), test))
        read = [*READINGS, *GRID.values()]
        rules: dict[Reading, AnyEvidence] = {one: one.evidence for one in read if one.evidence != "calibrated"}
        if fitted := self.measured.fits.get(self.run.seed):
            rules[CALIBRATED] = fitted.rule
        for reading, rule in rules.items():
            updating = UpdatingGate(
                equal, rule, newest_weight=reading.newest_weight, update_every=self.subject.budget.block_size
            )
            self.keep(system("updating", reading), self.mixed(updating, test))
        for reading, rule in {by_evidence(reading.evidence): rule for reading, rule in rules.items()}.items():
            self.keep(system("uniform", reading), self.mixed(PosteriorGate(equal, rule), test))
            self.keep(system("cached", reading), self.cached(test, dev, rule))

    def _measure_adapted(self) -> None:
        first = self.run.experts("demix", self.subject.domains)
        added = [self.run.added(novel) for novel in self.subject.novel]
        for evidence in EVIDENCES:
            reading = by_evidence(evidence)
            self.keep(system("grown", reading), self._mixture_of([*first, *added], evidence))
            for novel, expert in zip(self.subject.novel, added, strict=True):
                self.keep(system("demix-dapt", reading, novel), self._mixture_of([*first, expert], evidence))
        for novel in self.subject.novel:
            self.keep(System("dense-dapt", domain=novel), self.one(own(self.run.adapted(novel), novel)))

    def _measure_removed(self) -> None:
        if self.domain not in self.subject.domains:
            return
        others = [domain for domain in self.subject.domains if domain != self.domain]
        left = self.run.experts("demix", others)
        retrained = [own(self.run.without(self.domain), domain) for domain in others]
        for evidence in EVIDENCES:
            reading = by_evidence(evidence)
            self.keep(system("minus expert", reading), self._mixture_of(left, evidence))
            self.keep(system("minus domain", reading), self._mixture_of(retrained, evidence))

    def _believe(self, experts: Sequence[str]) -> None:
        from engine.analysis.inference_modes import trajectory
        from engine.mixing.posterior import UpdatingGate, end_of_block_posteriors

        dev = self.load(experts, "dev")
        if dev is None:
            return
        gate = UpdatingGate([1.0] * len(experts), update_every=self.subject.budget.block_size)
        blocks_ENT = self.full_blocks(dev)
        self.measured.prior_blocks[self.domain] = self.num_prior_blocks(blocks_ENT)
        self.measured.beliefs[self.run.seed, self.domain] = Belief(
            tuple(experts),
            end_of_block_posteriors(gate, blocks_ENT).numpy(),
            trajectory(gate, blocks_ENT).numpy(),
            dev.documents_N[: blocks_ENT.shape[1]],
        )

    def _own_or_best(self, experts: Sequence[str]) -> Loss | None:
        """The domain's own expert; where it has none, the one with the lowest perplexity on this very text (§5.3)."""
        if self.domain in self.subject.domains:
            return self.one(experts[self.subject.domains.index(self.domain)])
        test = self.load(experts, "test")
        return None if test is None else self.loss(test, test.logprobs_EX[best_expert(test)])

    def _mixture_of(self, experts: Sequence[str], evidence: Evidence) -> Loss | None:
        """The mixture of these experts with a cached prior."""
        test = self.load(experts, "test")
        return None if test is None else self.cached(test, self.load(experts, "dev"), evidence)


SplitWords = Mapping[str, int]  # words between white space, by split
_NAMES = {**WORDS, "demix": "DEMix"}


@dataclass(frozen=True)
class TrainedModel:
    """One training: its method and seed, the sizes of what it made, and its measured means (empty: not trained yet)."""

    method: str
    seed: int
    seed_parameters: int
    expert_parameters: tuple[int, ...]
    throughput: Mapping[str, Any]
    num_devices: int | None = None  # None: trained before this was recorded

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the base and all experts, whose networks replace the seed model's."""
        own = sum(self.expert_parameters)
        replaced = self.expert_parameters[0] if get_method(self.method).is_full_model else 0
        return self.seed_parameters - replaced + own

    def mean(self, name: str) -> float | None:
        """A mean over its updates; `flops_per_second` also for each device (`… a device`). None if it is not known."""
        name, _, is_of_device = name.partition(" a ")
        value, number = self.throughput.get(name), self.num_devices if is_of_device else 1
        return value / number if value is not None and number else None


def word_rows(subject: ReplicateDemix, words: Mapping[str, SplitWords]) -> list[Row]:
    """Table 1: each domain's words, with the sums of ours and the paper's; domains that are not imported are empty."""
    rows: list[Row] = []
    for role, domains in (("training", subject.domains), ("novel", subject.novel)):
        known = [words.get(domain) for domain in domains]
        cells = [(one["train"], one["dev"] + one["test"]) if one else (None, None) for one in known]
        printed = ("paper, all", PRINTED["table_1"][role])
        sums = [("all", tuple(map(sum, zip(*cells, strict=True))))] if all(known) else []
        for name, (train, held_out) in (*zip(domains, cells, strict=True), *sums, printed):
            rows.append({"domain": name, "role": role, "train": train, "held out": held_out})
    return rows


def model_rows(models: Iterable[TrainedModel]) -> list[Row]:
    """Table 2: one row for each method, with the mean of its speeds over seeds."""
    by_method: dict[str, list[TrainedModel]] = {}
    for model in models:
        by_method.setdefault(model.method, []).append(model)
    return [_model_row(each[0], each) for each in by_method.values()]


def _model_row(first: TrainedModel, models: Sequence[TrainedModel]) -> Row:
    devices = sorted({one.num_devices for one in models if one.num_devices is not None})
    known = {name: [one for model in models if (one := model.mean(name)) is not None] for name in _MEANS.values()}
    return {
        "model": _NAMES[first.method],
        "experts": len(first.expert_parameters),
        "parameters": first.num_parameters,
        "of them used at a token": first.num_parameters - sum(first.expert_parameters[1:]),
        "devices": " or ".join(map(str, devices)) or None,  # `1 or 2` where seeds differ
        **{
            column: fmean(known[name]) / (1e9 if "flops" in name else 1) if known[name] else None
            for column, name in _MEANS.items()
        },
        "seeds": len(models),
    }


_MEANS = {
    "GFLOPs an update": "flops_per_update",
    "GFLOP/s": "flops_per_second",
    "GFLOP/s a device": "flops_per_second a device",
    "tokens/s": "tokens_per_second",
}


Points = Sequence[tuple[int, float]]  # step, nats per token


@dataclass(frozen=True)
class Curve:
    """The held-out losses of one training by domain, and how many tokens one of its steps takes."""

    system: str
    seed: int
    losses: Mapping[str, Points]
    tokens_per_step: int
    target: str = ""  # the novel domain of an adaptation

    def mean(self, domains: Sequence[str]) -> dict[int, float]:
        """The perplexity by tokens, averaged over these domains, where all of them were measured."""
        return _mean_of(
            [
                {step * self.tokens_per_step: perplexity_of(loss) for step, loss in self.losses.get(domain, ())}
                for domain in domains
            ]
        )


def mean_curve(curves: Sequence[Curve], domains: Sequence[str]) -> dict[int, float]:
    """The mean of several seeds' curves by tokens, where all of them have a point."""
    return _mean_of([curve.mean(domains) for curve in curves])


def _mean_of(lines: Sequence[Mapping[int, float]]) -> dict[int, float]:
    shared = sorted(set(lines[0]).intersection(*lines[1:])) if lines else []
    return {tokens: float(np.mean([line[tokens] for line in lines])) for tokens in shared}


def crossing(lower: Mapping[int, float], higher: Mapping[int, float]) -> Row | None:
    """From which token count on `lower` stays below `higher` (None: not yet), and how both end.

    None where they share no point.
    """
    shared = sorted(set(lower) & set(higher))
    if not shared:
        return None
    below = list(takewhile(lambda tokens: lower[tokens] < higher[tokens], reversed(shared)))
    last = shared[-1]
    return {
        "tokens": below[-1] if below else None,
        "last_tokens": last,
        "lower": lower[last],
        "higher": higher[last],
    }


def ratios_by_seed(measured: DemixMeasurements) -> list[list[list[float]]]:
    """Figure 2 in each seed: each expert's perplexity on each domain over that of the domain's own expert."""
    domains = measured.subject.domains
    experts = [System("alone", domain=domain) for domain in domains]
    return [table for seed in measured.resampled.seeds if (table := ratios_of(measured, seed, experts, domains))]


def drift_of(belief: Belief) -> float | None:
    """How far any share moves from the first STABLE_AFTER blocks to as many others; None where there are too few.

    Means of different blocks: a mean that is held against its own end comes close to it whatever the text is.
    """
    if belief.posterior_EN.shape[1] < 2 * STABLE_AFTER:
        return None
    first_E, next_E = (belief.posterior_EN[:, at : at + STABLE_AFTER].mean(1) for at in (0, STABLE_AFTER))
    return float(np.abs(first_E - next_E).max())
