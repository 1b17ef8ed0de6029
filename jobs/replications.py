"""A replication as a plan of ordinary jobs: what to make, from what, in which order.

The plan follows from the wish alone, so asking again under the same name goes on: jobs that are done or under way are
kept, failed ones tried again, missing ones made. The most telling results come first: DEMix and Dense of every seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import cast

from sqlalchemy.orm import Session

from engine.config import MethodName, TrainingConfig
from engine.errors import CorpusError
from engine.text.formats import read_records
from engine.text.records import Record
from engine.text.streams import TextFile, find_files
from jobs.submit import call_workers
from workbench import database
from workbench.cards import JobCard
from workbench.errors import BadSpec
from workbench.replications.demix import METHODS, Run
from workbench.replications.sizes import SIZES, Size, SizeName
from workbench.services import jobs as rows
from workbench.services.wishes import is_there, made_by, refuse_impossible
from workbench.settings import Settings, get_settings
from workbench.specs import (
    Evaluate,
    ImportCorpus,
    MakeSeed,
    MeasureOverlap,
    Replicate,
    Spec,
    TrainDemix,
    TrainExpert,
    parse_spec,
)

GROUP = "source"
_LEAST_GROUPS = 50  # with fewer a split could hold a part of two or three of them
_LOOK_AT = 1000  # records


@dataclass(frozen=True)
class Step:
    """One job of a plan; `after` are the keys of those it needs."""

    key: str
    spec: Spec
    title: str
    after: tuple[str, ...] = ()


# what to make from which text ----------------------------------------------------------------------


def wish_for(folder: Path, name: str, size: SizeName, seeds: int, settings: Settings | None = None) -> Replicate:
    """A replication on the files of `folder`/train and `folder`/novel, a domain each, called after its file.

    A domain of that name that holds other text stays what it is: ours is then called NAME-DOMAIN.
    """
    with database.reading(settings) as session:
        train = [_import(session, file, "train", name, size) for file in _files(folder / "train", 2)]
        novel = [_import(session, file, "novel", name, size) for file in _files(folder / "novel", 1)]
    domains = [one.name for one in train]
    wish = wish_on(domains, [one.name for one in novel], name, size, seeds)
    return wish.model_copy(update={"imports": [*train, *novel]})


def wish_on(domains: Sequence[str], novel: Sequence[str], name: str, size: SizeName, seeds: int) -> Replicate:
    """A replication on domains that were imported before; raises BadSpec when they are too few or named twice."""
    wish = {
        "kind": "replicate", "name": name, "size": size, "seeds": seeds, "domains": list(domains), "novel": list(novel),
        "removed": list(domains)[: SIZES[size].retrained_domains],
    }  # fmt: skip
    return cast(Replicate, parse_spec(wish))


def _files(folder: Path, least: int) -> list[TextFile]:
    found = [file for file in find_files(folder) if isinstance(file, TextFile)]
    if len(found) < least:
        raise CorpusError(
            f"There must be at least {least} {'file' if least == 1 else 'files'} with text, one for each domain, but "
            f"there are {len(found)}.", "Put train/*.jsonl and novel/*.jsonl into the folder.", path=folder,
        )  # fmt: skip
    return found


def _import(session: Session, file: TextFile, role: str, name: str, size: SizeName) -> ImportCorpus:
    domain = file.path.name.split(".")[0]
    wish = ImportCorpus.model_validate({
        "name": domain, "path": str(file.path), "role": role, "max_bytes": SIZES[size].max_bytes,
        "group_field": GROUP if _is_grouped(file) else "",
    })  # fmt: skip
    is_ours = rows.find_wishes(session, [wish]) != [None]
    is_taken = is_there(session, ("domain", domain)) or is_there(session, ("corpus", domain))
    return wish.model_copy(update={"name": f"{name}-{domain}"}) if is_taken and not is_ours else wish


def _is_grouped(file: TextFile) -> bool:
    """Whether the records say which belong together, in groups small enough to split by."""
    records = islice(read_records(file, ("text", GROUP), lambda _: None), _LOOK_AT)
    return len({one.values.get(GROUP) for one in records if isinstance(one, Record)} - {None, ""}) >= _LEAST_GROUPS


# the plan -----------------------------------------------------------------------------------------


def plan(wish: Replicate) -> list[Step]:
    """Every job of a replication in the order in which they should start; the last one writes the report."""
    maker = _Maker(wish, SIZES[wish.size])
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


# asking for it -------------------------------------------------------------------------------------


def submit_replication(wish: Replicate, settings: Settings | None = None) -> list[str]:
    """The ids of all its jobs, in one transaction: those done or under way stay, the others are queued.

    Raises BadSpec when a name that it needs is taken by something else.
    """
    settings = settings or get_settings()
    with database.transaction(settings) as session:
        ids = place(session, plan(wish))
    call_workers(settings, list(ids.values())[:1])
    return list(ids.values())


def place(session: Session, steps: Sequence[Step]) -> dict[str, str]:
    """The id of each step's job by its key: found, tried again or made."""
    ids: dict[str, str] = {}
    made: set[str] = set()
    for step, found in zip(steps, rows.find_wishes(session, [step.spec for step in steps]), strict=True):
        anew = [ids[key] for key in step.after if key in made]
        if found is None or not _stands(session, step.spec, found, bool(anew)):
            refuse_impossible(session, step.spec)
            ids[step.key] = rows.create_job(session, step.spec, step.title, [ids[key] for key in step.after])
            made.add(step.key)
        else:
            ids[step.key] = found.id
            rows.wait_for(session, found.id, anew)
            _set_going(session, found.id)
    return ids


def _stands(session: Session, spec: Spec, found: JobCard, is_outdated: bool) -> bool:
    """Whether a job need not be asked for again: it is not over yet, or what it made is there.

    Of one that made nothing with a name, such as scores, it counts whether what it needs was made anew since.
    """
    things = made_by(spec)
    if found.state != "done":
        return True
    return all(is_there(session, thing) for thing in things) if things else not is_outdated


def _set_going(session: Session, job_id: str) -> None:
    """Lets a stopped job go on, unless trying those before it did so already."""
    state = rows.get_job(session, job_id).state
    if state == "paused":
        rows.resume(session, job_id)
    elif state in ("failed", "cancelled"):
        rows.retry(session, job_id)


def jobs_of(session: Session, wish: Replicate) -> dict[str, JobCard]:
    """The job of each step by its key, as far as there are any."""
    steps = plan(wish)
    found = rows.find_wishes(session, [step.spec for step in steps])
    return {step.key: card for step, card in zip(steps, found, strict=True) if card}


def replications(session: Session) -> list[Replicate]:
    """What was asked for, the newest first, each name once."""
    wishes: dict[str, Replicate] = {}
    for card in rows.list_jobs(session, kind="replicate"):
        if not card.spec["partial"]:
            wishes.setdefault(card.spec["name"], Replicate.model_validate(card.spec))
    return list(wishes.values())


def find_replication(session: Session, name: str) -> Replicate:
    """The newest wish of this name; raises BadSpec with the names there are."""
    found = replications(session)
    for wish in found:
        if wish.name == name:
            return wish
    known = ", ".join(wish.name for wish in found) or "none"
    raise BadSpec([f"There is no replication called “{name}” (there are: {known})."], "Begin one: workbench reproduce.")
