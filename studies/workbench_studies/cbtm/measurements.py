"""The losses that C-BTM's claims are about, from stored scores and distances. Nothing here reads the registry.

A way to use the models whose scores or distances are not there yet is left out. Shapes: E experts, L labels,
K clusters, D documents.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.statistics.estimates import Ints
from engine.text.split_names import HeldOutSplit
from workbench_studies.cbtm.names import (
    DENSE,
    DENSE_AT_LESS,
    OTHER,
    SEED,
    TEMPERATURES,
    Arm,
    CbtmRun,
    ReplicateCbtm,
    System,
    sparse,
)
from workbench_studies.core.averages import Counted, Row, interval_columns
from workbench_studies.core.measurements import Fit, Loaded, Measurements, ScoredText, Scores, Stored, fit

if TYPE_CHECKING:
    from engine.clusters.distances import Distances
    from engine.mixing.cluster import ClusterGate

SPARSE = (1, 2, 4)  # experts at each token (figures 9 and 10)
FEW_SMALLER = 4  # of the smaller experts one in so many is used at each token, as in figure 11
OTHER_TEMPERATURES = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0)  # squared distances are about 100 there
DistanceKey = tuple[str, str]  # clustering, domain


@dataclass(frozen=True)
class Grouping:
    """A clustering's documents in the order of their ids, and its words.

    `wholes_D` says which document each is a piece of, by the number of the first piece.
    """

    labels: tuple[str, ...]  # training domains
    labels_D: Ints
    clusters_D: Ints
    wholes_D: Ints
    is_held_out_D: NDArray[np.bool_]
    information: float  # normalised mutual information of labels and clusters
    terms: tuple[tuple[str, ...], ...]

    @property
    def num_clusters(self) -> int:
        return len(self.terms)

    @property
    def counted(self) -> Counted:
        """Documents by label and cluster [L, K]."""
        cells_D = self.labels_D * self.num_clusters + self.clusters_D
        return Counted(cells_D, self.wholes_D, (len(self.labels), self.num_clusters))


@dataclass
class CbtmMeasurements(Measurements):
    """With what the clusterings are like, what updates take and what a classification found, each by seed."""

    subject: ReplicateCbtm
    groupings: dict[tuple[int, str], Grouping] = field(default_factory=dict)  # by seed and clustering within the run
    updates: dict[tuple[int, str], Sequence[float]] = field(default_factory=dict)  # by seed and arm: seconds by model
    fits: dict[int, Fit] = field(default_factory=dict)  # of the main arm; only where dev text allows
    answers: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    distances: dict[DistanceKey, Stored] = field(default_factory=dict)

    def groupings_of(self, arm: Arm) -> dict[int, Grouping]:
        """The clustering of an arm of every seed that has it, by seed."""
        return {seed: grouping for (seed, name), grouping in sorted(self.groupings.items()) if name == arm.clustering}

    def perplexity(self, system: System, *, with_novel: bool = True) -> Row:
        """The average over training domains with its interval, and that over novel ones, as columns."""
        own = interval_columns(self.average(system, self.subject.domains))
        return own | ({"novel domains": self.value(system, self.subject.novel)} if with_novel else {})

    def against(self, lower: Hashable, higher: Hashable, domains: Sequence[str]) -> str:
        """As in other papers, but each average over its own seeds: a mixture of experts has fewer."""
        values = [self.value(one, domains) for one in (lower, higher)]
        return " against ".join(f"{value:.2f}" for value in values if value is not None)

    def measure(self, scores: Scores) -> Iterator[str]:
        """Adds what the scores give; says after each seed and text where it is."""
        subject = self.subject
        for run in subject.runs:
            texts = (ScoredText(self, run, domain, scores) for domain in subject.domains)
            experts = run.experts(subject.main, subject.domains)
            if fitted := fit(texts, experts, by_text=True):  # a model of a cluster has read of many domains
                self.fits[run.seed] = fitted
            homes = run.domains(subject.main, subject.domains)
            for domain in (*subject.everywhere, *homes):
                text = _CbtmText(self, run, domain, scores)
                if domain in homes:
                    text.measure_home()
                else:
                    text.measure()
                yield f"seed {run.seed}, {domain}"


def systems_of(subject: ReplicateCbtm, arm: Arm) -> list[System]:
    """Every way of weighing by nearness that an arm of several clusters is measured in."""
    systems = [System(arm)]
    if arm.scaling == OTHER:
        return [*systems, *(System(arm, temperature=one) for one in OTHER_TEMPERATURES)]
    if arm.division == "balanced" and not arm.at_less:
        systems += [sparse(arm, top_k) for top_k in SPARSE]
    if arm == subject.main:
        systems += [in_grid(arm, top_k, temperature) for top_k in top_ks(arm) for temperature in TEMPERATURES]
        systems.append(frozen(subject))
    return list(dict.fromkeys(systems))


def top_ks(arm: Arm) -> list[int]:
    """The columns of table 9 for an arm: 1, 2, 4 … and all of its models."""
    return sorted({top_k for top_k in (1, 2, 4, 8, 16, 32) if top_k < arm.num_models} | {arm.num_models})


def in_grid(arm: Arm, top_k: int, temperature: float) -> System:
    """A cell of table 9."""
    return System(arm, top_k=top_k if top_k < arm.num_models else None, temperature=temperature)


def frozen(subject: ReplicateCbtm) -> System:
    """The main arm with weights that stay after half a block's tokens of a document (§2.2: its second half).

    A block that begins later in its document keeps the weights of its first token.
    """
    return System(subject.main, freeze_after=subject.budget.block_size // 2)


def few_smaller(arm: Arm) -> int:
    """How many of an arm's smaller models are used at each token."""
    return max(1, arm.num_models // FEW_SMALLER)


class _CbtmText(ScoredText):
    """The scores of one text and its distances to the clusters, under the models of one seed."""

    measured: CbtmMeasurements
    run: CbtmRun

    def measure(self) -> None:
        """Adds every loss that the stored scores give."""
        self.keep(SEED, self.one(self.run.seed_expert))
        for arm in (DENSE, DENSE_AT_LESS):
            self.keep(System(arm, "moe"), self.one(self.run.moe_expert(arm)))
        main = self.subject.main
        self.keep(System(main, "average"), self.one(self.run.average_expert(main)))
        for arm in self.subject.arms:
            test = self._load_arm(arm, "test")
            if test is not None:
                self._measure_arm(arm, test)
        for arm in self.subject.smaller_arms:
            self._measure_smaller(arm)

    def measure_home(self) -> None:
        """Each model of the main arm on its own, on held-out text of one of its clusters (figure 15)."""
        test = self._load_arm(self.subject.main, "test")
        if test is not None:
            for number, logprobs_X in enumerate(test.logprobs_EX):
                self.keep(System(self.subject.main, "alone", expert=number), self.loss(test, logprobs_X))

    def _measure_arm(self, arm: Arm, test: Loaded) -> None:
        if arm.num_models == 1:
            self.keep(System(arm), self.loss(test, test.logprobs_EX[0]))
        elif arm.division != "metadata" and (distances := self._distances(arm, test)) is not None:
            for system in systems_of(self.subject, arm):
                self.keep(system, self.mixed(_gate(system, arm), test, distances))
        if arm in (self.subject.main, self.subject.reference, self.subject.metadata):
            self._measure_posteriors(arm, test)

    def _measure_smaller(self, arm: Arm) -> None:
        """An arm of the smaller shape; of several clusters by all of its models and by a few of them."""
        test = self.load(self.run.smaller.experts(arm, self.subject.domains), "test")
        if test is None:
            return
        if arm.num_models == 1:
            self.keep(System(arm, is_smaller=True), self.loss(test, test.logprobs_EX[0]))
        elif (distances := self._distances(arm, test)) is not None:
            for top_k in (None, few_smaller(arm)):
                system = System(arm, top_k=top_k, is_smaller=True)
                self.keep(system, self.mixed(_gate(system, arm), test, distances))

    def _measure_posteriors(self, arm: Arm, test: Loaded) -> None:
        """BTM's ways to weigh (§2.4): by Bayes' rule, from equal shares or from a cached prior."""
        from engine.mixing.posterior import PosteriorGate

        self.keep(System(arm, "uniform"), self.mixed(PosteriorGate([1.0] * arm.num_models, "prefix"), test))
        if arm == self.subject.main and (fitted := self.measured.fits.get(self.run.seed)):
            gate = PosteriorGate([1.0] * arm.num_models, fitted.rule)
            self.keep(System(arm, "calibrated"), self.mixed(gate, test))
        dev = self._load_arm(arm, "dev")
        self.keep(System(arm, "cached"), self.cached(test, dev, "prefix"))
        if dev is not None:
            self.measured.prior_blocks[self.domain] = self.num_prior_blocks(self.full_blocks(dev))

    def _load_arm(self, arm: Arm, split: HeldOutSplit) -> Loaded | None:
        return self.load(self.run.experts(arm, self.subject.domains), split)

    def _distances(self, arm: Arm, test: Loaded) -> Distances | None:
        """The distances of this text to an arm's clusters; None unless they are of the tokens that were scored."""
        from engine.clusters.distances import open_distances

        stored = self.measured.distances.get((self.run.clustering(arm), self.domain))
        if stored is None or stored.num_tokens != test.logprobs_EX.shape[1]:
            return None
        return open_distances(stored.kept.folder)


def _gate(system: System, arm: Arm) -> ClusterGate:
    from engine.mixing.cluster import ClusterGate, Routing

    return ClusterGate(
        [1.0] * arm.num_models,
        Routing(range(arm.num_models)),
        temperature=system.temperature,
        top_k=system.top_k,
        freeze_after=system.freeze_after,
    )
