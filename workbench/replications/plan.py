"""A replication as a plan of ordinary jobs: what to make, from what, in which order.

The plan follows from the wish alone. The most telling results come first: DEMix and Dense of every seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine.config import MethodName, TrainingConfig
from workbench.plans import Step
from workbench.replications.demix import METHODS, Run
from workbench.replications.sizes import Size
from workbench.specs import Evaluate, MakeSeed, MeasureOverlap, Replicate, Spec, TrainDemix, TrainExpert


def plan(wish: Replicate) -> list[Step]:
    """Every job of a replication in the order in which they should start; the last one writes the report."""
    maker = _Maker(wish, wish.budget)
    steps = [*maker.texts(), *maker.models(("demix", "dense")), *maker.models(METHODS[2:])]
    steps += [*maker.adapted(), *maker.removed()]
    last = Step("report", wish, f"{wish.name}: report", tuple(step.key for step in steps))
    return [*steps, last]


@dataclass(frozen=True)
class _Maker:
    wish: Replicate
    size: Size

    @property
    def runs(self) -> list[Run]:
        return [Run(self.wish.name, seed) for seed in range(self.wish.seeds)]

    @property
    def everywhere(self) -> list[str]:
        return [*self.wish.domains, *self.wish.novel]

    def texts(self) -> Iterator[Step]:
        """Imports, the overlap of the training domains, and a seed model for each seed."""
        for text in self.wish.imports:
            yield Step(f"import {text.name}", text, f"{self.wish.name}: import {text.name}")
        for run in self.runs:
            seed = MakeSeed(
                name=run.seed_model, domains=self.wish.domains, shape=self.size.shape, vocab_size=self.size.vocab_size,
                seed=run.seed,
            )  # fmt: skip
            yield self._step(run, "seed", seed, "make the seed model", self._imports(self.wish.domains))
        overlap = MeasureOverlap(domains=self.wish.domains)
        needs = self._imports(self.wish.domains)
        yield Step("overlap", overlap, f"{self.wish.name}: measure the bigram overlap", needs)

    def models(self, methods: Sequence[MethodName]) -> Iterator[Step]:
        """Trainings from the seed model by these methods in every seed, and their scores."""
        for run in self.runs:
            for method in methods:
                yield self._train(run, method, run.mixture(method), self.wish.domains, method)
        for run in self.runs:
            for method in methods:
                yield self._score(run, run.mixture(method), "test", self.everywhere, [method])
            if "demix" in methods:
                yield self._score(run, run.mixture("demix"), "dev", self.everywhere, ["demix"])

    def adapted(self) -> Iterator[Step]:
        """DEMix-DAPT and dense-DAPT on every novel domain, and their scores."""
        for run in self.runs:
            for novel in self.wish.novel:
                yield self._add(run, novel)
                yield self._adapt_whole(run, novel)
        for run in self.runs:
            added, needs = [run.added(one) for one in self.wish.novel], [f"add {one}" for one in self.wish.novel]
            for split in ("test", "dev"):
                yield self._score(run, run.mixture("demix"), split, self.everywhere, needs, added)
            for novel in self.wish.novel:
                yield self._score(run, run.adapted(novel), "test", [*self.wish.domains, novel], [f"adapt {novel}"])

    def removed(self) -> Iterator[Step]:
        """DEMix trained without a domain (–Domain), and its scores there."""
        runs = self.runs[: self.size.retrained_seeds]
        for run in runs:
            for domain in self.wish.removed:
                others = [one for one in self.wish.domains if one != domain]
                yield self._train(run, "demix", run.without(domain), others, f"no {domain}")
        for run in runs:
            for domain in self.wish.removed:
                for split in ("test", "dev"):
                    yield self._score(run, run.without(domain), split, [domain], [f"no {domain}"])

    def _train(self, run: Run, method: MethodName, name: str, domains: Sequence[str], key: str) -> Step:
        spec = TrainDemix(
            name=name, seed_model=run.seed_model, domains=list(domains), method=method,
            training=self._seeded(self.size.training, run),
        )  # fmt: skip
        return self._step(run, key, spec, f"train {name}", [self._key(run, "seed")])

    def _add(self, run: Run, novel: str) -> Step:
        spec = TrainExpert(
            name=run.added(novel), domain=novel, mixture=run.mixture("demix"), join=False,
            watch=self.wish.domains, training=self._seeded(self.size.adapting, run),
        )  # fmt: skip
        needs = [self._key(run, "demix"), *self._imports([novel])]
        return self._step(run, f"add {novel}", spec, f"DEMix-DAPT on {novel}", needs)

    def _adapt_whole(self, run: Run, novel: str) -> Step:
        spec = TrainExpert(
            name=run.adapted(novel), domain=novel, mixture=run.mixture("dense"), join=False, whole=True,
            watch=self.wish.domains, training=self._seeded(self.size.adapting, run),
        )  # fmt: skip
        needs = [self._key(run, "dense"), *self._imports([novel])]
        return self._step(run, f"adapt {novel}", spec, f"dense-DAPT on {novel}", needs)

    def _score(
        self, run: Run, mixture: str, split: str, domains: Sequence[str], needs: Sequence[str],
        experts: Sequence[str] = (),
    ) -> Step:  # fmt: skip
        spec = Evaluate.model_validate({
            "mixture": mixture, "experts": list(experts), "domains": list(domains), "split": split,
            "block_size": self.size.block_size,
            "max_tokens": self.size.test_tokens if split == "test" else self.size.dev_tokens,
        })  # fmt: skip
        after = [*(self._key(run, one) for one in needs), *self._imports(domains)]
        more = " and the added experts" if experts else ""
        return self._step(run, f"{split} {needs[-1]}", spec, f"score {mixture}{more} on {split} text", after)

    def _step(self, run: Run, key: str, spec: Spec, doing: str, after: Iterable[str]) -> Step:
        return Step(self._key(run, key), spec, f"{self.wish.name}: {doing}, seed {run.seed}", tuple(after))

    def _key(self, run: Run, key: str) -> str:
        return f"s{run.seed} {key}"

    def _imports(self, domains: Sequence[str]) -> tuple[str, ...]:
        """The imports that these domains wait for; none for those that were there before."""
        return tuple(f"import {text.name}" for text in self.wish.imports if text.name in domains)

    def _seeded(self, training: TrainingConfig, run: Run) -> TrainingConfig:
        return replace(training, seed=run.seed)
