"""What a probe measures: time by what is done, tensors that a training holds, its first batch, its memory."""

from __future__ import annotations

import resource
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, ClassVar, NoReturn

import torch

from engine.device import choose_device
from engine.events import Evaluated, Event, Progress, Requirements, Saved, Saving, Step, TrainingFinished
from engine.files import ArtifactRef, folder_size
from engine.statistics.estimates import student_mean
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.training.memory import TrainingTensors
from jobs.attempt.work import JobClaim, Work
from workbench.answers.forecasts import BatchRow, TimeParts, UpdateTime
from workbench.kinds.kind import Probe
from workbench.registry.experts import expert_row
from workbench.registry.mixtures import mixture_row
from workbench.registry.seeds import seed_row
from workbench.specs.base import RegistryObject
from workbench.store.object_store import ObjectStore, object_store
from workbench.store.storage import Storage, confine

CLAIM = JobClaim("0" * 32, 0, 1, "probe")  # of no row


class ProbeStorage(Storage):
    """The artifacts of a registry, and new ones in a folder of their own."""

    def __init__(self, folder: Path, made: Path, shared: ObjectStore | None = None) -> None:
        super().__init__(folder, shared)
        self.made = Storage(made)

    def path(self, artifact_id: str) -> Path:
        made = confine(self.made.folder, artifact_id)
        return made if made.exists() else super().path(artifact_id)

    @contextmanager
    def new(self, artifact_id: str) -> Iterator[Path]:
        with self.made.new(artifact_id) as folder:
            yield folder


@dataclass(frozen=True)
class ProbeWork(Work):
    """The work of a job without a row: nothing of it reaches the registry."""

    root: Path = Path()  # the temporary folder

    most_blocks: ClassVar[int | None] = 16  # two batches, so that two cores have work

    @cached_property
    def folder(self) -> Path:
        folder = self.root / "work"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def storage(self) -> ProbeStorage:
        return ProbeStorage(self.settings.artifacts_folder, self.root / "made", object_store(self.settings.store))

    def _share(self, artifact_id: str, kind: str, key: str) -> Path:
        """A new artifact stays the probe's own."""
        del kind, key
        return self.storage.path(artifact_id)

    def transaction(self) -> NoReturn:
        """A job that writes to the registry while it works cannot be probed."""
        raise NotImplementedError("a kind with a probe writes to the registry only at its end")


SHOWN_ROWS, SHOWN_TOKENS = 4, 96  # of the first batch
_LEAST_UPDATES = 3  # for an interval of their mean
_STATUS = Path("/proc/self/status")


class Stopwatch:
    """Takes the time between events and assigns it to what was done."""

    def __init__(self, before_seconds: float = 0.0) -> None:
        self._at = perf_counter()
        self._seconds: dict[str, list[float]] = defaultdict(list, start=[before_seconds])
        self._steps: list[Step] = []
        self.num_checkpoints, self._is_saving = 0, False

    def see(self, event: Event) -> None:
        """Adds the time since the last event."""
        seconds, was_saving = self._lap(), self._is_saving
        self._is_saving = isinstance(event, Saving)
        match event:
            case Step():
                if was_saving:  # a copy, which is written while the training goes on
                    self._seconds["checkpoints"].append(max(0.0, seconds - _seconds_of(event)))
                if not self._steps:
                    self._seconds["start"].append(max(0.0, seconds - _seconds_of(event)))
                self._steps.append(event)
            case Evaluated():
                self._seconds["evaluations" if event.step else "first_evaluation"].append(seconds)
            case Saved():
                self._seconds["checkpoints"].append(seconds)
                self.num_checkpoints += 1
            case Saving():
                pass
            case _:
                full = seconds / event.share if isinstance(event, Progress) else seconds
                self._seconds["end" if self._steps else "start"].append(full)

    def finish(self) -> None:
        """Adds the time after the last event."""
        self._seconds["end"].append(self._lap())

    def full(self, probe: Probe[Any]) -> TimeParts:
        """Seconds of the full job; those of the short one were measured.

        Until there is an evaluation after an update, the one before the first stands for all.
        """
        steps = [_seconds_of(step) for step in self._steps]
        first = self._seconds["first_evaluation"]
        evaluations = self._seconds["evaluations"] or first
        usual = self.update.seconds
        return TimeParts(
            start=sum(self._seconds["start"]) + sum(first),
            steps=usual * probe.num_steps + (max(0.0, steps[0] - usual) if steps else 0.0),
            evaluations=sum(evaluations) / max(1, len(evaluations)) * probe.num_evaluations,
            checkpoints=sum(self._seconds["checkpoints"]) / max(1, self.num_checkpoints) * probe.num_checkpoints,
            end=sum(self._seconds["end"]),
        )

    @property
    def update(self) -> UpdateTime:
        """The time of an update; the first, which is slower, only where there is no other."""
        seconds = [_seconds_of(step) for step in self._steps[1:] or self._steps]
        if len(seconds) < _LEAST_UPDATES:
            return UpdateTime(seconds=fmean(seconds) if seconds else 0.0, num_measured=len(seconds))
        mean = student_mean(seconds)
        return UpdateTime(seconds=mean.mean, num_measured=len(seconds), low=mean.low, high=mean.high)

    @property
    def tokens_per_second(self) -> float:
        """The speed of updates after the first; 0 without any."""
        steps = self._steps[1:] or self._steps
        return sum(step.num_tokens for step in steps) / sum(map(_seconds_of, steps)) if steps else 0.0

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one update."""
        return self._steps[0].num_tokens if self._steps else 0

    @property
    def flops_per_step(self) -> float:
        """Floating-point operations of one update."""
        return self._steps[0].num_flops if self._steps else 0.0

    def _lap(self) -> float:
        before, self._at = self._at, perf_counter()
        return self._at - before


class TrainingContents:
    """Bytes of the tensors that a training holds and of its largest checkpoint, and its first batch."""

    def __init__(self, work: Work, base: RegistryObject | None) -> None:
        self._work, self._base = work, base
        self._held: TrainingTensors | None = None
        self.num_trained = self.weights = self.gradients = self.checkpoint = 0
        self.least_checkpoints = self.least_result = self._last_optimizer = 0
        self.batch: list[BatchRow] = []

    def see(self, held: TrainingTensors) -> None:
        """Called when a training starts."""
        self._held, self.num_trained = held, held.num_trained()
        self.weights, self.gradients = held.weight_bytes(), held.trained_bytes()
        if self._base is not None:
            self.batch = first_batch(held, load_tokenizer(_folder_of(self._work, self._base)))

    def follow(self, event: Event) -> None:
        """Weighs what is there for a while only: checkpoints, and the optimizer's state until the training ends."""
        match event:
            case Saved():
                self.checkpoint = max(self.checkpoint, folder_size(Path(event.path)))
            case TrainingFinished() if self._held is not None:
                self._last_optimizer, self._held = self._held.optimizer_bytes(), None
            case Requirements():
                self.least_checkpoints, self.least_result = event.checkpoints_bytes, event.result_bytes

    @property
    def optimizer(self) -> int:
        """Bytes of the optimizer's state."""
        return self._last_optimizer if self._held is None else self._held.optimizer_bytes()


def first_batch(held: TrainingTensors, tokenizer: Tokenizer) -> list[BatchRow]:
    """The first sequences that the model will see, token by token."""
    batch = held.sampler.batch(0)
    rows = zip(batch.inputs_BT[:, :1].tolist(), batch.targets_BT.tolist(), batch.counted_BT.tolist(), strict=True)
    return [
        BatchRow.of(batch.domains[place], [*first, *targets], [False, *counted], tokenizer, SHOWN_TOKENS)
        for place, (first, targets, counted) in zip(batch.places, rows, strict=True)
    ][:SHOWN_ROWS]


def _folder_of(work: Work, thing: RegistryObject) -> Path:
    """The folder with the tokenizer of a seed model, of an expert, or of a mixture's first expert."""
    what, name = thing
    with work.reading() as session:
        if what == "seed model":
            artifact = seed_row(session, name).artifact
        elif what == "mixture":
            artifact = mixture_row(session, name).members[0].expert.base
        else:
            artifact = expert_row(session, name).base
        kept: ArtifactRef = work.storage.kept(artifact)
    return kept.folder


def peak_bytes() -> int:
    """The most resident memory that this process has had.

    Linux counts into `ru_maxrss` what the parent had when it started this process.
    """
    return _of_status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RUSAGE_UNIT


def resident_bytes() -> int:
    """The resident memory of this process now."""
    return _of_status("VmRSS") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RUSAGE_UNIT


class GpuMemory:
    """The memory of the GPU that a job of this device computes on; 0 bytes without a GPU.

    Free is what is left next to the context of CUDA, which the peak also leaves out. Of a share torch reserves no
    more; 0 bytes where the job has the whole GPU.
    """

    def __init__(self, device: str, share: float = 1.0) -> None:
        chosen = choose_device(device)
        self._gpu = chosen if chosen.type == "cuda" else None
        self.free_bytes = self.share_bytes = 0
        if self._gpu is not None:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._gpu)
            self.free_bytes, total = map(int, torch.cuda.mem_get_info(self._gpu))
            self.share_bytes = int(share * total) if share < 1 else 0

    def peak_bytes(self) -> int:
        """The most that torch has reserved since then."""
        return 0 if self._gpu is None else int(torch.cuda.max_memory_reserved(self._gpu))


_RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes


def _of_status(name: str) -> int:
    """A line of Linux's status of this process, in bytes; 0 where there is none."""
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def _seconds_of(step: Step) -> float:
    return step.num_tokens / step.tokens_per_second
