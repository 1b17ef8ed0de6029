"""Turns the engine's events into updates of the job's row: note, progress, ETA, curves and messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from jobs.attempt.estimate import Estimate, Pace
from workbench.formatting.number_format import nats
from workbench.schema.job_states import CHECKPOINT, PARENT, PARTS, REQUIREMENTS, SAMPLES

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
    eta: Estimate | None = None
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
        self._pace = Pace()
        self._latest: Progress | Step | None = None
        self._metrics: list[Point] = []
        self._messages: list[JobMessage] = []
        self._saved_at = float("-inf")
        self._throughput = throughput or Throughput()
        self._at_saving: Throughput | None = None  # when the last checkpoint began to be written
        self._forward = forward

    def add(self, event: Event) -> None:
        """Adds one event; fast, because the work waits."""
        points = points_of(event)
        self._forward(points)
        with self._lock:
            self._metrics += points
            match event:
                case Progress() | Step():
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
                    self._messages.append(_samples_message(event))
                case ParentChosen():
                    text = f"Starts from a copy of “{event.name}”."
                    self._messages.append(JobMessage(text, PARENT, {"parent": event.id}))
                case PartOrder():
                    self._messages.append(_part_order_message(event))
                case TrainingFinished():
                    if event.step < event.num_steps:
                        # No more steps follow, even if fewer than max_steps were made.
                        self._latest = Progress(event.num_steps, event.num_steps, "steps", "the best weights are saved")
                        self._messages.append(JobMessage(_finished_message(event)))
                    if event.worse:
                        self._messages.append(JobMessage(worse_sentence(event.worse)))

    def take(self) -> JobUpdate:
        """Everything since the last call; false when nothing happened."""
        with self._lock:
            latest, self._latest = self._latest, None
            metrics, self._metrics = tuple(self._metrics), []
            messages, self._messages = tuple(self._messages), []
        if latest is None:
            return JobUpdate(metrics=metrics, messages=messages)
        done, total, phase = _measure(latest)
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
        """Values for the job's result: the throughput of its updates, if any."""
        with self._lock:
            throughput = self._throughput.means()
        return {"throughput": throughput} if throughput else {}

    def put_back(self, update: JobUpdate) -> None:
        """Keeps an update that could not be written for the next time."""
        with self._lock:
            self._metrics = [*update.metrics, *self._metrics]
            self._messages = [*update.messages, *self._messages]


def _measure(event: Progress | Step) -> tuple[float, float | None, object]:
    if isinstance(event, Step):
        return event.step, event.num_steps, "steps"
    return event.done, event.total, (event.unit, event.total)


def points_of(event: Event) -> list[Point]:
    """The points of curves that an event adds, all of one step."""
    match event:
        case Step():
            return _step_points(event)
        case Evaluated():
            return _evaluated_points(event)
    return []


def _step_points(event: Step) -> list[Point]:
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
    return _points(event.step, values)


def _flops_per_second(event: Step) -> float:
    return event.num_flops * event.tokens_per_second / event.num_tokens


def _evaluated_points(event: Evaluated) -> list[Point]:
    """Held-out losses by domain, and gate weights: `gate/0/DOMAIN` of the backbone, `gate/1/DOMAIN` of part 1."""
    losses = {f"dev_loss/{name}": loss for name, loss in event.loss_by_domain.items()}
    gates = {
        f"gate/{number}/{name}": weight
        for name, weights in event.gates_by_domain.items()
        for number, weight in enumerate(weights)
    }
    return _points(event.step, losses | gates)


def _part_order_message(event: PartOrder) -> JobMessage:
    text = f"Its gates weigh the backbone and the parts {', '.join(event.parts)}."
    return JobMessage(text, PARTS, {"parts": list(event.parts)})


def _samples_message(event: Evaluated) -> JobMessage:
    samples = [asdict(sample) for sample in event.samples]
    return JobMessage(f"Sample texts at step {event.step:,}.", SAMPLES, {"step": event.step, "samples": samples})


def _finished_message(event: TrainingFinished) -> str:
    how = f"Made all {event.num_steps:,} steps"
    if event.num_steps < event.max_steps:
        how = f"Stopped early, after step {event.num_steps:,} of {event.max_steps:,}"
    return f"{how}: the weights are those of step {event.step:,}, the best on held-out text."


def worse_sentence(worse: Mapping[str, tuple[float, float]]) -> str:
    """That a training made domains worse, with their losses before and after it, and what may help."""
    names = first_of([f"“{name}” from {before:.2f} to {after:.2f}" for name, (before, after) in worse.items()])
    return (
        f"The training made its model worse: the held-out loss rose on {names} nats per token. Lower the learning rate,"
        " or give more text or fewer steps."
    )


def _points(step: int, values: Mapping[str, float]) -> list[Point]:
    return [(name, step, value) for name, value in values.items()]


def sentence(event: Progress | Step) -> str:
    """A readable line: `step 40 of 300 · loss 5.21 nats/token · 9,800 tokens/s · 0.012 TFLOP/s`."""
    if isinstance(event, Step):
        speed = f" · {_flops_per_second(event) / 1e12:.3g} TFLOP/s" if event.num_flops else ""
        loss = "no token to learn" if event.loss is None else f"loss {nats(event.loss)}"
        return f"step {event.step:,} of {event.num_steps:,} · {loss} · {event.tokens_per_second:,.0f} tokens/s{speed}"
    amount = f"{event.done:,.0f}" + (f" of {event.total:,.0f}" if event.total else "")
    return f"{amount} {event.unit}" + (f" · {event.note}" if event.note else "")
