"""Makes the last steps of a training again, from its last kept checkpoint, and compares weights and losses to the bit.

The same function runs as in the job, on the same spec and text. It writes into a temporary folder and changes no row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from sqlalchemy.orm import Session

from engine.device import Environment, current_environment, preserve_threads
from engine.errors import Problem
from engine.events import Step
from engine.files import sha256_of
from engine.text.chat.answers import OLD_RULE
from jobs.attempt.leftovers import REPLAY, copy_for_replay, kept_step
from jobs.attempt.reporting import Point, points_of
from jobs.attempt.work import JobClaim, load_runner
from jobs.kinds.shared.resume_guard import MASKS, read_inputs, write_inputs, write_mask_rule
from jobs.probe.measuring import ProbeWork
from workbench.answers.integrity import LossDifference, PlannedReplay, Replay, TensorDifference
from workbench.errors import StorageError
from workbench.exports.facts import MASK_RULE
from workbench.job_records import jobs
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.registry import database
from workbench.registry.experts import expert_row
from workbench.registry.reproducible import ROW_ORDER
from workbench.schema.tables import Artifact, Expert
from workbench.settings import Settings
from workbench.store.storage import get_storage


@dataclass(frozen=True)
class ReplayWork(ProbeWork):
    """The work of a finished job, done again: it only writes into `root`, and no row."""

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @contextmanager
    def transaction(self) -> Iterator[Session]:  # type: ignore[override]
        """A session whose changes are dropped, such as that damaged tokens lose their row to be made again."""
        with self.reading() as session:
            yield session


See = Callable[[int, int, int], object]  # the step that was made, the one before the first, and the last
_PARENT = "parent.json"  # of jobs.kinds.training.train_expert
_UNRECORDED = "This training was made by an earlier version, which did not record its environment."


@dataclass(frozen=True)
class FinishedTraining:
    """A finished training as it is stored."""

    expert: str
    expert_id: str
    parent_id: str | None
    job_id: str
    spec: Any  # of the replay
    points: Points
    environment: Environment | None
    row_order: str  # of jobs.kinds.shared.resume_guard
    mask_rule: int
    tokens_per_second: float | None
    tokens_per_step: float | None

    @property
    def last_step(self) -> int:
        return max((step for name, step in self.points if name == "loss"), default=0)


def find_training(settings: Settings, expert: str) -> FinishedTraining:
    """The training of an expert by name. Raises NotFoundError, and StorageError for one that no job here made."""
    with database.reading(settings) as session:
        row = expert_row(session, expert)
        card = jobs.get_job(session, row.job_id) if row.job_id else None
        kind = known_kinds().get(card.kind) if card else None
        if card is None or kind is None or kind.replayed is None:
            cause = f"its job “{card.title}” trains nothing" if card else "no job of this workbench trained it"
            raise StorageError(
                f"“{row.name}” has no steps to replay: {cause}.", "Name an expert that was trained here."
            )
        throughput, environment = card.result.get("throughput", {}), card.result.get("environment")
        per_token = throughput.get("flops_per_token")
        return FinishedTraining(
            expert=row.name,
            expert_id=row.id,
            parent_id=row.parent_id,
            job_id=card.id,
            spec=kind.replayed(parse_spec(card.spec)),
            points={(point.name, point.step): point.value for point in jobs.metrics(session, card.id)},
            environment=Environment(**environment) if environment else None,  # none in that of an earlier version
            row_order=card.result.get(ROW_ORDER, "ids"),
            mask_rule=row.config.get(MASK_RULE, OLD_RULE),
            tokens_per_second=throughput.get("tokens_per_second"),
            tokens_per_step=throughput["flops_per_update"] / per_token if per_token else None,
        )


def plan_replay(settings: Settings, training: FinishedTraining) -> PlannedReplay:
    """Which steps are made again, how long they take, and what changed since."""
    first, last = kept_step(settings.jobs_folder / training.job_id / REPLAY), training.last_step
    seconds = None
    if training.tokens_per_second and training.tokens_per_step:
        seconds = (last - first) * training.tokens_per_step / training.tokens_per_second
    changes = []
    if before := training.environment:
        now = current_environment(settings.device, settings.processes)
        # The replay takes over the threads and processes of the training.
        changes = before.changes(replace(now, threads=before.threads, processes=before.processes))
    return PlannedReplay(
        expert=training.expert,
        from_step=first,
        to_step=last,
        seconds=seconds,
        environment_changes=changes,
    )


def replay(settings: Settings, training: FinishedTraining, see: See = lambda *_: None) -> Replay:
    """Makes the last steps again in a temporary folder, and compares. What prevents it is in the answer."""
    plan, began, before = plan_replay(settings, training), time.monotonic(), training.environment
    points: list[Point] = []
    reasons: list[str] = []
    tensors: list[TensorDifference] = []
    losses: list[LossDifference] = []
    num_tensors = num_points = 0
    try:
        with TemporaryDirectory(prefix="workbench-replay-") as root, preserve_threads():
            if before:
                torch.set_num_threads(before.threads)
                settings = settings.model_copy(update={"processes": before.processes})
            work = ReplayWork(JobClaim(training.job_id, 0, 1, "replay"), settings, root=Path(root))
            _put_inputs(work, training)
            with closing(load_runner(training.spec.kind)(work, training.spec)) as events:
                for event in events:
                    points += points_of(event)
                    if isinstance(event, Step):
                        see(event.step, plan.from_step, plan.to_step)
            num_points, losses = compare_points(training.points, points)
            num_tensors, tensors = _compare_artifacts(settings, work)
        if not num_tensors:
            reasons.append("Nothing that this training makes is stored any more.")
    except Problem as problem:
        reasons.append(problem.cause)
    differs = bool(tensors or losses)
    if differs:
        reasons += _why_bits_may_differ(training, plan)
    return Replay(
        plan=plan,
        verdict="unknown" if reasons else "differs" if differs else "equal",
        reasons=reasons,
        num_tensors=num_tensors,
        num_points=num_points,
        tensors=tensors,
        losses=losses,
        seconds=time.monotonic() - began,
    )


def _put_inputs(work: ReplayWork, training: FinishedTraining) -> None:
    copy_for_replay(work.settings.jobs_folder / training.job_id / REPLAY, work.folder)
    write_inputs(work, ROW_ORDER, training.row_order)  # whether its notes are still there or not
    parent = work.folder / _PARENT
    if training.parent_id and not parent.exists():  # of an earlier version, which kept no notes
        parent.write_text(json.dumps({"key": training.parent_id, "posterior": {}, "num_blocks": 0}), encoding="utf-8")
    if read_inputs(work, MASKS) is None:  # of an earlier version, or its notes are gone
        write_mask_rule(work, training.mask_rule)


def _compare_artifacts(settings: Settings, work: ReplayWork) -> tuple[int, list[TensorDifference]]:
    """Compares every artifact with weights that the training made and that is still stored."""
    count, stored = 0, get_storage(settings)
    different: list[TensorDifference] = []
    with database.reading(settings) as session:
        ids = [id for id in sorted(work.storage.made.ids()) if session.get(Artifact, id)]
        experts = {id: session.get(Expert, id) for id in ids}  # an expert and its artifact have one id
        things = {id: row.name if row else "base" for id, row in experts.items()}
    for id, thing in things.items():
        number, some = compare_weights(thing, stored.path(id), work.storage.made.path(id))
        count, different = count + number, different + some
    return count, different


def _why_bits_may_differ(training: FinishedTraining, plan: PlannedReplay) -> list[str]:
    """Why weights that differ do not prove that the stored ones were changed."""
    before = training.environment
    if before is None:
        return [_UNRECORDED]
    changed = [f"The environment is another: {change}." for change in plan.environment_changes]
    return changed if before.is_cpu else [*changed, f"On {before.device} equal bits are not promised."]


_SPEEDS = ("tokens_per_second", "flops_per_second")
Points = Mapping[tuple[str, int], float]  # values by metric and step


def compare_weights(thing: str, stored: Path, made: Path) -> tuple[int, list[TensorDifference]]:
    """The number of tensors of an artifact, and those that differ; files with equal bytes are not read as tensors."""
    count = 0
    different: list[TensorDifference] = []
    names = {path.relative_to(folder) for folder in (stored, made) for path in folder.rglob("*.safetensors")}
    for name in sorted(names):
        before, now = stored / name, made / name
        count += len(_names(now)) if now.is_file() else 0
        if not (before.is_file() and now.is_file() and sha256_of(before) == sha256_of(now)):
            different += _tensor_differences(thing, before, now)
    return count, different


def compare_points(stored: Points, made: Sequence[Point]) -> tuple[int, list[LossDifference]]:
    """The number of points that both have, and those that differ; speeds are left out."""
    pairs = [
        LossDifference(metric=name, step=step, stored=stored[name, step], replayed=value)
        for name, step, value in made
        if name not in _SPEEDS and (name, step) in stored
    ]
    return len(pairs), [pair for pair in pairs if pair.stored != pair.replayed]


def _tensor_differences(thing: str, stored: Path, made: Path) -> Iterator[TensorDifference]:
    for path, problem in ((stored, "its file is missing"), (made, "the training makes no such file")):
        if not path.is_file():
            yield TensorDifference(thing=thing, tensor=path.name, largest=None, problem=problem)
            return
    try:
        for name in sorted(_names(stored) | _names(made)):
            largest, problem = _difference(stored, made, name)
            if largest or problem:
                yield TensorDifference(thing=thing, tensor=name, largest=largest, problem=problem)
    except (SafetensorError, OSError) as error:
        yield TensorDifference(thing=thing, tensor=stored.name, largest=None, problem=f"cannot be read ({error})")


def _difference(stored: Path, made: Path, name: str) -> tuple[float | None, str]:
    """The largest absolute difference of a tensor in two files, and why there is none; infinite where one is NaN."""
    if name not in _names(stored):
        return None, "it is missing"
    if name not in _names(made):
        return None, "the training makes no such tensor"
    before, now = _tensor(stored, name), _tensor(made, name)
    if before.shape != now.shape or before.dtype != now.dtype:
        both = f"{before.dtype} {tuple(before.shape)} is stored, the training makes {now.dtype} {tuple(now.shape)}"
        return None, both
    if torch.equal(before.view(-1).view(torch.uint8), now.view(-1).view(torch.uint8)):
        return 0.0, ""
    largest = (before.double() - now.double()).abs().max().nan_to_num(nan=float("inf"))
    return float(largest), "" if largest else "only signs of zeros differ"


def _names(path: Path) -> set[str]:
    with safe_open(path, "pt") as file:
        return set(file.keys())


def _tensor(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, "pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)
        return tensor
