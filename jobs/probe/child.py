"""Runs a probe in a process of its own: `python -P -m jobs.probe.child FOLDER`, with the spec as JSON on stdin.

It prints a JSON object in a line now and then: `{"stage": …}`, after each update `{"so_far": …}`, and at its end
`{"measured": …}` or `{"problem": …, "next_step": …}`. It ends when its stdin closes, as it does when its parent is
killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil

from engine.errors import DoesNotFitError, Problem, is_out_of_memory
from engine.events import Evaluated, Event, Progress, Saved, Saving, Step
from engine.files import EXPERT_CARD, folder_size
from engine.training.checkpoint import KEPT
from engine.training.memory import observed_by
from jobs.attempt.finish import outcome_of
from jobs.attempt.reporting import sentence
from jobs.attempt.work import load_runner
from jobs.probe.measuring import CLAIM, GpuMemory, ProbeWork, Stopwatch, TrainingContents, peak_bytes, resident_bytes
from workbench.answers.forecasts import Measured, MemoryParts
from workbench.formatting.number_format import pluralize
from workbench.job_records.devices import share_of_gpu
from workbench.job_records.preconditions import kind_of
from workbench.kinds.kind import Probe, parse_spec
from workbench.settings import get_settings
from workbench.specs.base import Spec

STAGE_SECONDS = 0.2  # between two lines about progress


def main() -> NoReturn:
    """Prints what the probe of the spec on stdin measured, and ends the process, whatever libraries left running."""
    folder, loading_seconds = Path(sys.argv[1]), time.time() - psutil.Process().create_time()
    spec = parse_spec(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        measured = measure(
            spec, folder, _Stages().see, loading_seconds, lambda so_far: _print({"so_far": so_far.model_dump()})
        )
        _print({"measured": measured.model_dump()})
    except Exception as error:
        outcome = outcome_of(error, folder, folder)
        lacks = "least" if isinstance(error, DoesNotFitError) else "memory" if is_out_of_memory(error) else ""
        next_step = outcome.next_step if isinstance(error, Problem) or lacks else "Report it."
        _print({"problem": outcome.problem, "next_step": next_step, "lacks": lacks})
    os._exit(0)


def measure(
    spec: Spec,
    folder: Path,
    follow: Callable[[Event], None] = lambda _: None,
    loading_seconds: float = 0.0,
    report: Callable[[Measured], None] = lambda _: None,
) -> Measured:
    """Measures what a job takes, from a few updates in `folder`; `follow` gets each event.

    `loading_seconds` are those that the process has taken before, as the job's process also will. `report` gets what is
    known after each update.
    """
    # One process, here: another would neither show what it holds nor count in the peak.
    share = share_of_gpu(spec, get_settings())
    settings = get_settings().model_copy(update={"processes": 1, "launcher": "local"})
    make_probe = kind_of(spec).probe
    assert make_probe is not None, "the parent checks"
    probe: Probe[Any] = make_probe(spec)
    work = ProbeWork(CLAIM, settings, folder)
    stopwatch = Stopwatch(loading_seconds)
    run = load_runner(probe.short.kind)
    process_bytes, gpu = resident_bytes(), GpuMemory(settings.device, share)
    contents = TrainingContents(work, probe.base)
    measuring = _Measuring(probe, work, stopwatch, contents, process_bytes, gpu)
    with observed_by(contents.see), closing(run(work, probe.short)) as events:
        for event in events:
            stopwatch.see(event)
            contents.follow(event)
            if isinstance(event, Step):
                report(measuring.so_far())
            follow(event)
    stopwatch.finish()
    return measuring.result()


@dataclass(frozen=True)
class _Measuring:
    """A probe and what watches it."""

    probe: Probe[Any]
    work: ProbeWork
    stopwatch: Stopwatch
    contents: TrainingContents
    process_bytes: int
    gpu: GpuMemory

    def so_far(self) -> Measured:
        """What is known after an update; of the disk at least what the shapes of the tensors say."""
        known, contents = self.result(), self.contents
        missing = ["storing the result"] if self.stopwatch.num_checkpoints else ["checkpoints", "storing the result"]
        return known.model_copy(
            update={
                "not_measured": missing,
                "artifact_bytes": max(known.artifact_bytes, contents.least_result),
                "checkpoint_bytes": max(known.checkpoint_bytes, contents.least_checkpoints),
            }
        )

    def result(self) -> Measured:
        """What the whole probe measured."""
        probe, stopwatch, contents, gpu = self.probe, self.stopwatch, self.contents, self.gpu
        peak, python = peak_bytes(), self.process_bytes
        held = {"weights": contents.weights, "gradients": contents.gradients, "optimizer": contents.optimizer}
        rest = max(0, (gpu.peak_bytes() or peak - python) - sum(held.values()))
        together = 1 if gpu.peak_bytes() else probe.num_processes  # each GPU has one of them
        others = 2 * python if probe.num_processes > 1 else 0  # the job's process and torchrun
        stored = self.work.storage.made.folder
        made = [folder for folder in stored.iterdir() if folder.is_dir()] if stored.exists() else []
        experts_bytes = sum(folder_size(folder) for folder in made if (folder / EXPERT_CARD).exists())
        return Measured(
            num_processes=probe.num_processes,
            num_trained=contents.num_trained,
            memory=MemoryParts(
                process=python * probe.num_processes + others,
                rest=rest * together,
                **{name: taken * together for name, taken in held.items()},
            ),
            peak_bytes=peak * probe.num_processes + others,
            model_bytes=round(contents.weights + experts_bytes * (probe.expert_shares - 1)),
            gpu_peak_bytes=gpu.peak_bytes(),
            gpu_free_bytes=gpu.free_bytes,
            gpu_share_bytes=gpu.share_bytes,
            artifact_bytes=_artifact_bytes(made, probe),
            checkpoint_bytes=round(contents.checkpoint * min(KEPT, probe.num_checkpoints) * probe.expert_shares),
            time=stopwatch.full(probe),
            update=stopwatch.update,
            tokens_per_second=stopwatch.tokens_per_second * probe.batch_shares,
            num_tokens=round(stopwatch.tokens_per_step * probe.num_steps * probe.batch_shares),
            num_flops=stopwatch.flops_per_step * probe.num_steps * probe.batch_shares,
            first_batch=contents.batch,
        )


def _artifact_bytes(made: list[Path], probe: Probe[Any]) -> int:
    """Bytes of all artifacts: of a base there is one, of experts and tokens so many for each that the probe made."""

    def shares(folder: Path) -> float:
        if (folder / "config.json").exists():
            return 1.0
        return probe.expert_shares if (folder / EXPERT_CARD).exists() else probe.domain_shares

    return round(sum(folder_size(folder) * shares(folder) for folder in made))


class _Stages:
    """Prints what the job is at, a few times a second."""

    def __init__(self) -> None:
        self._printed_at = float("-inf")

    def see(self, event: Event) -> None:
        match event:
            case Progress() if time.monotonic() - self._printed_at < STAGE_SECONDS:
                return
            case Progress() | Step():
                stage = sentence(event)
            case Evaluated():
                stage = f"evaluated after {pluralize(event.step, 'update')}"
            case Saving() | Saved():
                stage = (
                    f"{'writing' if isinstance(event, Saving) else 'has written'} the checkpoint of step {event.step}"
                )
            case _:
                return
        self._printed_at = time.monotonic()
        _print({"stage": stage})


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _print(content: dict[str, Any]) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
