"""Turns the engine's events into updates of the job's row: note, progress, ETA, curves and messages."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any
from zlib import crc32

from engine.errors import DamagedFileError, first_of
from engine.events import (
    Evaluated,
    Event,
    Note,
    ParentChosen,
    PartOrder,
    Progress,
    Requirements,
    Saved,
    Saving,
    Step,
    TrainingFinished,
)
from engine.files import new_file
from workbench.formatting.number_format import flops_per_second, nats
from workbench.schema.job_states import CHECKPOINT, PARENT, PARTS, REQUIREMENTS, SAMPLES

WINDOW_SAMPLES = 120
NUM_PIECES = 4  # parts of the window whose speeds give the range
MIN_SECONDS = 3.0  # with less, an estimate would be a guess
MAX_SPREAD = 5.0  # of the fastest piece to the slowest: units that differ more say nothing of those to come


@dataclass(frozen=True)
class TimeLeft:
    """Seconds left: at the mean, the fastest and the slowest recent speed."""

    seconds: float
    soonest: float
    latest: float


class JobPace:
    """Measures the speed of a job from its progress; a new phase or a step back restarts the measurement."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=WINDOW_SAMPLES)
        self._phase: object = None

    def see(self, at: float, done: float, phase: object) -> None:
        """Adds a sample: `done` units at second `at`; `phase` changes when units are no longer comparable."""
        if phase != self._phase or (self._samples and done < self._samples[-1][1]):
            self._samples.clear()
            self._phase = phase
        self._samples.append((at, done))

    def estimate(self, total: float) -> TimeLeft | None:
        """The time until `total` units are done; None with too few samples, or where units are too unlike."""
        samples = list(self._samples)
        if len(samples) <= NUM_PIECES or samples[-1][0] - samples[0][0] < MIN_SECONDS:
            return None
        last = len(samples) - 1
        ends = [samples[last * piece // NUM_PIECES] for piece in range(NUM_PIECES + 1)]
        speeds = [_speed(*pair) for pair in pairwise(ends)]
        mean, left = _speed(samples[0], samples[-1]), max(total - samples[-1][1], 0.0)
        if mean <= 0 or min(speeds) <= 0 or max(speeds) > MAX_SPREAD * min(speeds):
            return None  # no progress for a while, or no basis yet
        return TimeLeft(left / mean, left / max(speeds), left / min(speeds))


def _speed(start: tuple[float, float], end: tuple[float, float]) -> float:
    seconds = end[0] - start[0]
    return (end[1] - start[1]) / seconds if seconds > 0 else 0.0


CURVE_POINTS = 1000  # of a longer curve every n-th step is stored
SAVED_SECONDS = 60.0  # between two messages about checkpoints
ALMOST = 0.999  # only a job that is done has progress 1


_CHECK = "crc32"  # in the file of a throughput; earlier versions wrote none

Point = tuple[str, int, float]  # name, step, value


@dataclass(frozen=True)
class JobMessage:
    """An event of the job's history: a sentence for people; `kind` and `data` are what the code reads again."""

    text: str
    kind: str | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True)
class JobUpdate:
    """Everything to write since the last update."""

    progress: float | None = None
    note: str | None = None
    eta: TimeLeft | None = None
    metrics: tuple[Point, ...] = ()
    messages: tuple[JobMessage, ...] = ()

    def __bool__(self) -> bool:
        return self.note is not None or bool(self.metrics) or bool(self.messages)


@dataclass
class Throughput:
    """Tokens, operations and seconds of updates, without evaluations and checkpoints."""

    num_steps: int = 0
    num_tokens: int = 0
    num_flops: float = 0.0
    seconds: float = 0.0

    @classmethod
    def load(cls, path: Path) -> Throughput:
        """Loads the throughput of an earlier attempt; zero without a file. Raises DamagedFileError."""
        try:
            stored = json.loads(path.read_bytes())
            check, loaded = stored.pop(_CHECK, None), cls(**stored)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DamagedFileError(f"{path} cannot be read ({error}).") from error
        if check not in (None, loaded._check()):
            raise DamagedFileError(f"{path} is not what was written: its bytes changed.")
        return loaded

    def save(self, path: Path) -> None:
        """Saves the throughput for the next attempt."""
        with new_file(path) as file:
            file.write_text(json.dumps({**asdict(self), _CHECK: self._check()}), encoding="utf-8")

    def _check(self) -> int:
        """A number that a changed bit changes."""
        return crc32(json.dumps(asdict(self), sort_keys=True).encode())

    def see(self, step: Step) -> None:
        """Adds one update."""
        self.num_steps += 1
        self.num_tokens += step.num_tokens
        self.num_flops += step.num_flops
        self.seconds += step.num_tokens / step.tokens_per_second

    def means(self) -> dict[str, float]:
        """The means over all updates; empty before the first."""
        if not self.num_steps:
            return {}
        return {
            "num_steps": self.num_steps,
            "tokens_per_second": self.num_tokens / self.seconds,
            "flops_per_second": self.num_flops / self.seconds,
            "flops_per_update": self.num_flops / self.num_steps,
            "flops_per_token": self.num_flops / self.num_tokens,
        }


class Reporter:
    """Collects events in the working thread; the heartbeat thread writes them about once a second."""

    def __init__(
        self, throughput: Throughput | None = None, forward: Callable[[Sequence[Point]], None] = lambda _: None
    ) -> None:
        """`throughput` is that of previous attempts, which this one continues; `forward` gets each step's points."""
        self._lock = threading.Lock()
        self._pace = JobPace()
        self._latest: Progress | Step | None = None
        self._metrics: list[Point] = []
        self._messages: list[JobMessage] = []
        self._saved_at = float("-inf")
        self._throughput = throughput or Throughput()
        self._at_saving: Throughput | None = None  # when the last checkpoint began to be written
        self._forward, self._worse = forward, ""

    def add(self, event: Event) -> None:
        """Adds one event; fast, because the work waits."""
        points = points_of(event)
        self._forward(points)
        with self._lock:
            self._metrics += points
            if isinstance(event, Progress | Step):
                self._latest = event
            match event:
                case Step():
                    self._throughput.see(event)
                case Saving():
                    self._at_saving = replace(self._throughput)
                case Saved() if monotonic() - self._saved_at >= SAVED_SECONDS:
                    self._saved_at = monotonic()
                    self._messages.append(JobMessage(f"Checkpoint at step {event.step:,}.", CHECKPOINT))
                case Requirements():
                    self._messages.append(JobMessage(event.sentence, REQUIREMENTS, asdict(event)))
                case Note():
                    self._messages.append(JobMessage(event.sentence))
                case Evaluated() if event.samples:
                    samples = {"step": event.step, "samples": [asdict(sample) for sample in event.samples]}
                    self._messages.append(JobMessage(f"Sample texts at step {event.step:,}.", SAMPLES, samples))
                case ParentChosen():
                    text = f"Starts from a copy of “{event.name}”."
                    self._messages.append(JobMessage(text, PARENT, {"parent": event.id}))
                case PartOrder():
                    text = f"Its gates weigh the backbone and the parts {', '.join(event.parts)}."
                    self._messages.append(JobMessage(text, PARTS, {"parts": list(event.parts)}))
                case TrainingFinished():
                    if event.step < event.num_steps:
                        # No more steps follow, even if fewer than max_steps were made.
                        self._latest = Progress(event.num_steps, event.num_steps, "steps", "the best weights are saved")
                        made = f"Made all {event.num_steps:,} steps"
                        if event.num_steps < event.max_steps:
                            made = f"Stopped early, after step {event.num_steps:,} of {event.max_steps:,}"
                        text = f"{made}: the weights are those of step {event.step:,}, the best on held-out text."
                        self._messages.append(JobMessage(text))
                    if event.worse:
                        self._worse = worse_sentence(event.worse)
                        self._messages.append(JobMessage(self._worse))

    def take(self) -> JobUpdate:
        """Everything since the last call; false when nothing happened."""
        with self._lock:
            latest, self._latest = self._latest, None
            metrics, self._metrics = tuple(self._metrics), []
            messages, self._messages = tuple(self._messages), []
        if latest is None:
            return JobUpdate(metrics=metrics, messages=messages)
        if isinstance(latest, Progress) and (overall := latest.overall):
            eta = TimeLeft(overall.seconds_left, overall.soonest, overall.latest)
            return JobUpdate(min(overall.share, ALMOST), sentence(latest), eta, metrics, messages)
        total: float | None
        if isinstance(latest, Step):
            done, total, phase = float(latest.step), latest.num_steps, "steps"
        else:
            done, total, phase = latest.done, latest.total, f"{latest.total} {latest.unit}"
        self._pace.see(monotonic(), done, phase)
        counts_for_total = isinstance(latest, Step) or not latest.is_first
        estimate = self._pace.estimate(total) if total and counts_for_total else None
        return JobUpdate(
            progress=min(done / total, ALMOST) if total and counts_for_total else None,
            note=sentence(latest),
            eta=estimate,
            metrics=metrics,
            messages=messages,
        )

    def keep_throughput(self, path: Path, *, at_saving: bool = False) -> None:
        """Saves the throughput so far, or up to the newest checkpoint, for the next attempt."""
        with self._lock:
            kept = (self._at_saving if at_saving else None) or self._throughput
            if kept.num_steps:
                kept.save(path)

    def result(self) -> dict[str, Any]:
        """Values for the job's result: the throughput of its updates, if any, and whether it made its model worse."""
        with self._lock:
            values = {"throughput": self._throughput.means(), "worse": self._worse}
        return {name: value for name, value in values.items() if value}

    def put_back(self, update: JobUpdate) -> None:
        """Keeps an update that could not be written for the next time."""
        with self._lock:
            self._metrics = [*update.metrics, *self._metrics]
            self._messages = [*update.messages, *self._messages]


def points_of(event: Event) -> list[Point]:
    """The points of curves that an event adds, all of one step.

    Of an evaluation: held-out losses by domain, and gate weights, `gate/0/DOMAIN` of the backbone, `gate/1/DOMAIN` of
    part 1.
    """
    values: dict[str, float] = {}
    match event:
        case Step():
            every = -(-event.num_steps // CURVE_POINTS)
            if event.step % every and event.step not in (1, event.num_steps):
                return []
            values = {
                **({} if event.loss is None else {"loss": event.loss}),
                "learning_rate": event.learning_rate,
                "tokens_per_second": event.tokens_per_second,
                **({"flops_per_second": _flops_per_second(event)} if event.num_flops else {}),
                **{f"loss/{name}": loss for name, loss in event.loss_by_domain.items()},
            }
        case Evaluated():
            values = {f"dev_loss/{name}": loss for name, loss in event.loss_by_domain.items()}
            for name, weights in event.gates_by_domain.items():
                values |= {f"gate/{number}/{name}": weight for number, weight in enumerate(weights)}
        case _:
            return []
    return [(name, event.step, value) for name, value in values.items()]


def _flops_per_second(event: Step) -> float:
    return event.num_flops * event.tokens_per_second / event.num_tokens


def worse_sentence(worse: Mapping[str, tuple[float, float]]) -> str:
    """That a training made domains worse, with their losses before and after it, and what may help."""
    names = first_of([f"“{name}” from {before:.2f} to {after:.2f}" for name, (before, after) in worse.items()])
    return (
        f"The training made its model worse: the held-out loss rose on {names} nats per token. Lower the learning rate,"
        " or give more text or fewer steps."
    )


def sentence(event: Progress | Step) -> str:
    """A readable line: `step 40 of 300 · loss 5.21 nats/token · 9,800 tokens/s · 12 GFLOP/s`."""
    if isinstance(event, Step):
        speed = f" · {flops_per_second(_flops_per_second(event))}" if event.num_flops else ""
        loss = "no token to learn" if event.loss is None else f"loss {nats(event.loss)}"
        return f"step {event.step:,} of {event.num_steps:,} · {loss} · {event.tokens_per_second:,.0f} tokens/s{speed}"
    amount = f"{event.done:,.0f}" + (f" of {event.total:,.0f}" if event.total else "")
    return f"{amount} {event.unit}" + (f" · {event.note}" if event.note else "")
