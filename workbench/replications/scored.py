"""From stored scores to the losses and posteriors that DEMix's claims are about.

The experts' scores of one text become one loss for each way of using them; a way whose scores are not there yet is left
out. Nothing here reads the registry. Shapes: E experts, X tokens, N blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from engine.config import Evidence
from engine.files import Kept
from engine.replication.bootstrap import Ints, Loss, Place
from engine.replication.estimates import Floats
from workbench.replications.demix import (
    READINGS,
    Reading,
    Run,
    System,
    alone,
    by_evidence,
    demix_dapt,
    dense_dapt,
    own,
    system,
)
from workbench.replications.sizes import Size

if TYPE_CHECKING:
    from torch import Tensor

    from engine.mixing.base import Gate

_DENSE: tuple[Literal["dense", "dense-balanced"], ...] = ("dense", "dense-balanced")
EVIDENCES: tuple[Evidence, ...] = ("prefix", "last_token")


@dataclass(frozen=True)
class Stored:
    """Where an expert's scores of a text lie."""

    kept: Kept
    num_tokens: int


ScoreKey = tuple[str, str, str]  # expert, domain, split
Scores = Mapping[ScoreKey, Stored]


@dataclass(frozen=True)
class Belief:
    """What held-out text of a domain says of the experts (figures 4, 7 and 8), by the paper's reading."""

    experts: tuple[str, ...]
    posterior_EN: Floats  # after each block, from a uniform prior in each
    updating_EN: Floats  # the updating prior before each block and after the last
    documents_N: Ints  # in which each block begins


@dataclass
class Measured:
    """Everything that was measured so far."""

    losses: dict[Place, Loss] = field(default_factory=dict)
    beliefs: dict[tuple[int, str], Belief] = field(default_factory=dict)  # by seed and domain
    prior_blocks: dict[str, int] = field(default_factory=dict)  # behind each domain's cached priors


class _Loaded(NamedTuple):
    """Scores of experts on a text, and the document in which each block begins."""

    logprobs_EX: Tensor
    documents_N: Ints


@dataclass(frozen=True)
class Subject:
    """What a replication is made of: its seeds by name, its domains, its size."""

    name: str
    seeds: int
    domains: tuple[str, ...]
    novel: tuple[str, ...]
    removed: tuple[str, ...]
    size: Size

    @property
    def runs(self) -> list[Run]:
        return [Run(self.name, seed) for seed in range(self.seeds)]

    @property
    def everywhere(self) -> tuple[str, ...]:
        return (*self.domains, *self.novel)


def measure(subject: Subject, scores: Scores, measured: Measured) -> Iterator[str]:
    """Fills `measured`; says after each seed and domain where it is."""
    for run in subject.runs:
        for domain in subject.everywhere:
            _Text(subject, run, domain, scores, measured).measure()
            yield f"seed {run.seed}, {domain}"


@dataclass(frozen=True)
class _Text:
    """The scores of one domain under the models of one seed."""

    subject: Subject
    run: Run
    domain: str
    scores: Scores
    measured: Measured

    def measure(self) -> None:
        """Adds every loss and belief that the stored scores give."""
        self._measure_baselines()
        self._measure_demix()
        self._measure_adapted()
        self._measure_removed()

    def _measure_baselines(self) -> None:
        for method in _DENSE:
            self._keep(System(method), self._one(self.run.expert(method, self.domain)))
        tokens = self.run.experts("domain-token", self.subject.domains)
        self._keep(System("domain-token"), self._told_or_best(tokens))

    def _measure_demix(self) -> None:
        experts = self.run.experts("demix", self.subject.domains)
        test = self._load(experts, "test")
        if test is None:
            return
        for place, home in enumerate(self.subject.domains):
            self._keep(alone(home), self._loss(test, test.logprobs_EX[place]))
        self._keep(System("naive"), self._told_or_best(experts))
        self._measure_mixtures(test, self._load(experts, "dev"))
        self._believe(experts)

    def _measure_mixtures(self, test: _Loaded, dev: _Loaded | None) -> None:
        from engine.mixing.fixed import FixedGate
        from engine.mixing.posterior import PosteriorGate, UpdatingGate

        equal = [1.0] * len(test.logprobs_EX)
        self._keep(System("average"), self._mixed(FixedGate(equal), test))
        for reading in READINGS:
            updating = UpdatingGate(
                equal, reading.evidence, newest_weight=reading.newest_weight, update_every=self.subject.size.block_size
            )
            self._keep(system("updating", reading), self._mixed(updating, test))
        for reading in map(by_evidence, EVIDENCES):
            uniform = PosteriorGate(equal, reading.evidence)
            self._keep(system("uniform", reading), self._mixed(uniform, test))
            self._keep(system("cached", reading), self._cached(test, dev, reading))

    def _measure_adapted(self) -> None:
        first = self.run.experts("demix", self.subject.domains)
        added = [self.run.added(novel) for novel in self.subject.novel]
        for reading in map(by_evidence, EVIDENCES):
            self._keep(system("grown", reading), self._mixture_of([*first, *added], reading))
            for novel, expert in zip(self.subject.novel, added, strict=True):
                self._keep(demix_dapt(novel, reading), self._mixture_of([*first, expert], reading))
        for novel in self.subject.novel:
            self._keep(dense_dapt(novel), self._one(own(self.run.adapted(novel), novel)))

    def _measure_removed(self) -> None:
        if self.domain not in self.subject.domains:
            return
        others = [domain for domain in self.subject.domains if domain != self.domain]
        left = self.run.experts("demix", others)
        retrained = [own(self.run.without(self.domain), domain) for domain in others]
        for reading in map(by_evidence, EVIDENCES):
            self._keep(system("minus expert", reading), self._mixture_of(left, reading))
            self._keep(system("minus domain", reading), self._mixture_of(retrained, reading))

    def _believe(self, experts: Sequence[str]) -> None:
        from engine.mixing.modes import trajectory
        from engine.mixing.posterior import UpdatingGate, end_of_block_posteriors

        dev = self._load(experts, "dev")
        if dev is None:
            return
        gate = UpdatingGate([1.0] * len(experts), update_every=self.subject.size.block_size)
        blocks_ENT = self._whole_blocks(dev)
        self.measured.prior_blocks[self.domain] = self._num_prior_blocks(blocks_ENT)
        self.measured.beliefs[self.run.seed, self.domain] = Belief(
            tuple(experts), end_of_block_posteriors(gate, blocks_ENT).numpy(), trajectory(gate, blocks_ENT).numpy(),
            dev.documents_N[: blocks_ENT.shape[1]],
        )  # fmt: skip

    # losses ---------------------------------------------------------------------------------------

    def _keep(self, name: System, loss: Loss | None) -> None:
        if loss is not None:
            self.measured.losses[name, self.run.seed, self.domain] = loss

    def _one(self, expert: str) -> Loss | None:
        test = self._load([expert], "test")
        return None if test is None else self._loss(test, test.logprobs_EX[0])

    def _told_or_best(self, experts: Sequence[str]) -> Loss | None:
        """The domain's own expert; where it has none, the one with the lowest perplexity on this very text (§5.3)."""
        if self.domain in self.subject.domains:
            return self._one(experts[self.subject.domains.index(self.domain)])
        test = self._load(experts, "test")
        return None if test is None else self._loss(test, test.logprobs_EX[int(test.logprobs_EX.sum(1).argmax())])

    def _mixture_of(self, experts: Sequence[str], reading: Reading) -> Loss | None:
        """The mixture of these experts with a cached prior."""
        test = self._load(experts, "test")
        return None if test is None else self._cached(test, self._load(experts, "dev"), reading)

    def _cached(self, test: _Loaded, dev: _Loaded | None, reading: Reading) -> Loss | None:
        from engine.mixing.posterior import PosteriorGate, estimate_prior

        if dev is None:
            return None
        uniform = PosteriorGate([1.0] * len(dev.logprobs_EX), reading.evidence)
        blocks_ENT = self._whole_blocks(dev)
        prior_E = estimate_prior(uniform, blocks_ENT, self._num_prior_blocks(blocks_ENT))
        return self._mixed(PosteriorGate(prior_E.tolist(), reading.evidence), test)

    def _mixed(self, gate: Gate, test: _Loaded) -> Loss:
        from engine.scores import mix_scores

        return self._loss(test, mix_scores(gate, test.logprobs_EX, self.subject.size.block_size))

    def _loss(self, text: _Loaded, logprobs_X: Tensor) -> Loss:
        return Loss.of(logprobs_X.double().numpy(), self.subject.size.block_size, text.documents_N)

    def _whole_blocks(self, dev: _Loaded) -> Tensor:
        from engine.scores import whole_blocks

        return whole_blocks(dev.logprobs_EX, self.subject.size.block_size)

    def _num_prior_blocks(self, blocks_ENT: Tensor) -> int:
        """As many as the size asks for; of a text that is shorter all there are, which the report says."""
        return min(self.subject.size.prior_blocks, blocks_ENT.shape[1])

    def _load(self, experts: Sequence[str], split: str) -> _Loaded | None:
        """Scores of experts [E, X] on this domain; None unless all are there, of the same tokens, a block at least."""
        from engine.scores import block_documents, open_scores

        found = [self.scores.get((expert, self.domain, split)) for expert in experts]
        stored = [one for one in found if one is not None]
        if len(stored) < len(found) or not stored or len({one.num_tokens for one in stored}) > 1:
            return None
        if stored[0].num_tokens < self.subject.size.block_size:
            return None
        folders = [one.kept.folder for one in stored]
        return _Loaded(open_scores(folders)[0], block_documents(folders[0]))
