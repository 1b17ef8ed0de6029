"""Makes the last steps of a training again, from its last kept checkpoint, and compares weights and losses to the bit.

The same function runs as in the job, on the same spec and text. It writes into a temporary folder and changes no row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from sqlalchemy.orm import Session

from engine.environment import Environment, current_environment
from engine.errors import Problem
from engine.events import Event, Step
from engine.text.chat.answers import OLD_RULE
from engine.threads import preserve_threads
from jobs.attempt.replay_inputs import REPLAY, kept_step, put_into
from jobs.attempt.reporting import Point, points_of
from jobs.attempt.work import Claim, load_runner
from jobs.kinds.shared.environment import recorded_environment
from jobs.kinds.shared.resume_guard import MASKS, read_inputs, write_inputs, write_mask_rule
from jobs.probe.probe_work import ProbeWork
from jobs.replay.compare import Points, compare_points, compare_weights
from workbench.answers.integrity import LossDifference, PlannedReplay, Replay, TensorDifference
from workbench.errors import StorageError
from workbench.exports.facts import MASK_RULE
from workbench.job_records import jobs
from workbench.kinds.kind import known_kinds
from workbench.kinds.parse_spec import parse_spec
from workbench.registry import database
from workbench.registry.experts import expert_row
from workbench.registry.reproducible import ROW_ORDER
from workbench.schema.names import Row
from workbench.schema.tables import Artifact, Expert
from workbench.settings import Settings
from workbench.specs.base import Spec
from workbench.store.storage import get_storage


@dataclass(frozen=True)
class ReplayWork(ProbeWork):
    """The work of a finished job, done again: it writes into `place` alone, and no row."""

    @property
    def log(self) -> Path:
        return self.place / "log.txt"

    @contextmanager
    def transaction(self) -> Iterator[Session]:  # type: ignore[override]
        """A session whose changes are dropped, such as that damaged tokens lose their row to be made again."""
        with self.reading() as session:
            yield session

    def ensure_free(self, session: Session, table: type[Row], what: str, name: str) -> None:
        """The names are taken by the results that are compared."""


See = Callable[[int, int, int], object]  # the step that was made, the one before the first, and the last
_PARENT = "parent.json"  # of jobs.kinds.shared.parents
_UNRECORDED = "This training was made by an earlier version, which did not record its environment."


@dataclass(frozen=True)
class Training:
    """A finished training as it is stored."""

    expert: str
    expert_id: str
    parent_id: str | None
    job_id: str
    spec: Spec  # of the replay
    points: Points
    environment: Environment | None
    row_order: str  # of jobs.kinds.shared.resume_guard
    mask_rule: int
    tokens_per_second: float | None
    tokens_per_step: float | None

    @property
    def last_step(self) -> int:
        return max((step for name, step in self.points if name == "loss"), default=0)


def find_training(settings: Settings, expert: str) -> Training:
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
        throughput = card.result.get("throughput", {})
        return Training(
            expert=row.name,
            expert_id=row.id,
            parent_id=row.parent_id,
            job_id=card.id,
            spec=kind.replayed(parse_spec(card.spec)),
            points={(one.name, one.step): one.value for one in jobs.metrics(session, card.id)},
            environment=recorded_environment(card.result),
            row_order=card.result.get(ROW_ORDER, "ids"),
            mask_rule=row.config.get(MASK_RULE, OLD_RULE),
            tokens_per_second=throughput.get("tokens_per_second"),
            tokens_per_step=_tokens_per_step(throughput),
        )


def _tokens_per_step(throughput: dict[str, float]) -> float | None:
    per_token = throughput.get("flops_per_token")
    return throughput["flops_per_update"] / per_token if per_token else None


def plan_replay(settings: Settings, training: Training) -> PlannedReplay:
    """Which steps are made again, how long they take, and what changed since."""
    first, last = kept_step(_left_by(settings, training)), training.last_step
    seconds = None
    if training.tokens_per_second and training.tokens_per_step:
        seconds = (last - first) * training.tokens_per_step / training.tokens_per_second
    now, before = current_environment(settings.device, settings.processes), training.environment
    return PlannedReplay(
        expert=training.expert,
        from_step=first,
        to_step=last,
        seconds=seconds,
        environment_changes=before.changes(_with_choices(now, before)) if before else [],
    )


def _with_choices(now: Environment, before: Environment) -> Environment:
    """The environment with the threads and processes of the training, which the replay takes over."""
    return Environment(**{**vars(now), "threads": before.threads, "processes": before.processes})


def replay(settings: Settings, training: Training, see: See = lambda *_: None) -> Replay:
    """Makes the last steps again in a temporary folder, and compares. What prevents it is in the answer."""
    plan, began, before = plan_replay(settings, training), time.monotonic(), training.environment
    made = _Made()
    try:
        with TemporaryDirectory(prefix="workbench-replay-") as root, preserve_threads():
            if before:
                torch.set_num_threads(before.threads)
                settings = settings.model_copy(update={"processes": before.processes})
            work = ReplayWork(Claim(training.job_id, 0, 1, "replay"), settings, place=Path(root))
            _put_inputs(work, training)
            _drive(work, training, plan, made, see)
            made.num_points, made.losses = compare_points(training.points, made.points)
            made.num_tensors, made.tensors = _compare_artifacts(settings, work)
        if not made.num_tensors:
            made.reasons.append("Nothing that this training makes is stored any more.")
    except Problem as problem:
        made.reasons.append(problem.cause)
    differs = bool(made.tensors or made.losses)
    if differs:
        made.reasons += _why_bits_may_differ(training, plan)
    return Replay(
        plan=plan,
        verdict="unknown" if made.reasons else "differs" if differs else "equal",
        reasons=made.reasons,
        num_tensors=made.num_tensors,
        num_points=made.num_points,
        tensors=made.tensors,
        losses=made.losses,
        seconds=time.monotonic() - began,
    )


class _Made:
    """What a replay has made and found so far."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.reasons: list[str] = []
        self.num_tensors = self.num_points = 0
        self.tensors: list[TensorDifference] = []
        self.losses: list[LossDifference] = []


def _left_by(settings: Settings, training: Training) -> Path:
    return settings.jobs_folder / training.job_id / REPLAY


def _put_inputs(work: ReplayWork, training: Training) -> None:
    put_into(_left_by(work.settings, training), work.folder)
    write_inputs(work, ROW_ORDER, training.row_order)  # whether its notes are still there or not
    parent = work.folder / _PARENT
    if training.parent_id and not parent.exists():  # of an earlier version, which kept no notes
        parent.write_text(json.dumps({"key": training.parent_id, "posterior": {}, "num_blocks": 0}), encoding="utf-8")
    if read_inputs(work, MASKS) is None:  # of an earlier version, or its notes are gone
        write_mask_rule(work, training.mask_rule)


def _drive(work: ReplayWork, training: Training, plan: PlannedReplay, made: _Made, see: See) -> None:
    runner = cast(Generator[Event, None, Any], load_runner(training.spec.kind)(work, training.spec))  # type: ignore[attr-defined]
    with closing(runner) as events:
        for event in events:
            made.points += points_of(event)
            if isinstance(event, Step):
                see(event.step, plan.from_step, plan.to_step)


def _compare_artifacts(settings: Settings, work: ReplayWork) -> tuple[int, list[TensorDifference]]:
    """Compares every artifact with weights that the training made and that is still stored."""
    count, stored = 0, get_storage(settings)
    different: list[TensorDifference] = []
    with database.reading(settings) as session:
        things = {id: _thing(session, id) for id in sorted(work.storage.made.ids()) if session.get(Artifact, id)}
    for id, thing in things.items():
        number, some = compare_weights(thing, stored.path(id), work.storage.made.path(id))
        count, different = count + number, different + some
    return count, different


def _thing(session: Session, artifact_id: str) -> str:
    row = session.get(Expert, artifact_id)  # an expert and its artifact have one id
    return row.name if row else "base"


def _why_bits_may_differ(training: Training, plan: PlannedReplay) -> list[str]:
    """Why weights that differ are no proof that the stored ones were changed."""
    before = training.environment
    if before is None:
        return [_UNRECORDED]
    changed = [f"The environment is another: {change}." for change in plan.environment_changes]
    return changed if before.is_cpu else [*changed, f"On {before.device} equal bits are not promised."]
