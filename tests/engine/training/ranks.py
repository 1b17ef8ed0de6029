"""Several gloo processes that train together, forked from a process that has imported everything already."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from engine.config import ModelConfig, TrainingConfig
from engine.events import Evaluated, Event, Requirements, Step
from engine.methods.multi_expert_files import new_placement
from engine.methods.registry import methods
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel
from engine.training import checkpoint, run_state
from engine.training.checkpoint import OwnState
from engine.training.data import DomainText
from engine.training.distributed import ProcessGroup, RankGroup, layout_of, local_part
from engine.training.loop import train
from engine.training.sharding import ShardedGroup

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch", "transformers.models.llama.modeling_llama", "engine.training.sharding"])
_SECONDS = 60


@dataclass(frozen=True)
class Run:
    """A training: texts on a model with one expert per key, in `folder`; closed after `stop_after` steps."""

    texts: Sequence[DomainText]
    config: TrainingConfig
    folder: Path
    family: str = "llama"
    method: str = "demix"
    stop_after: int | None = None
    broken: str = ""  # an expert that begins with no numbers
    cannot_write: int = 0  # the step whose part all but the first process fail to write
    broken_after: int = 0  # the step after which a weight is no number
    in_background: bool = False  # checkpoints are written while it trains, those of all but the first process slowly


@dataclass
class Shown:
    """What one process saw: events, the experts and how many numbers of parameters it held, a hash, its error."""

    events: list[Event] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    num_held: int = 0
    shared: str = ""  # a hash of the shared parameters
    error: str = ""

    @property
    def losses(self) -> list[float]:
        return [event.loss for event in self.events if isinstance(event, Step)]

    @property
    def by_domain(self) -> list[dict[str, float]]:
        return [dict(event.loss_by_domain) for event in self.events if isinstance(event, Step | Evaluated)]


def model_of(keys: Sequence[str], family: str, experts_in: str = "ffn") -> MultiExpertModel:
    """A model whose experts differ; an expert is the same whichever others are there."""
    shape = ModelConfig(family=family, num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)  # type: ignore[arg-type]
    model = MultiExpertModel(fresh_model(shape, 300, seed=7), keys, new_placement(experts_in))
    with torch.no_grad():
        for key in keys:
            generator = torch.Generator().manual_seed(sum(key.encode()))
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def by_itself(run: Run) -> Shown:
    """The reference: one process, no team."""
    method = methods()[run.method]
    model = model_of(sorted({text.expert for text in run.texts}), run.family, method.experts_in)
    return _show(train(model, run.texts, run.config, run.folder, balanced=method.balanced), run, model)


def together(num_ranks: int, run: Run) -> list[Shown]:
    """What each of several processes saw."""
    queue = _FORKS.SimpleQueue()
    store = run.folder.with_name(f"{run.folder.name}.{num_ranks}.{run.stop_after}.store")
    processes = [_FORKS.Process(target=_rank, args=(rank, num_ranks, store, run, queue)) for rank in range(num_ranks)]
    for process in processes:
        process.start()
    shown: dict[int, Shown] = dict(queue.get() for _ in processes)
    for process in processes:
        process.join(_SECONDS)
    return [shown[rank] for rank in range(num_ranks)]


def _rank(rank: int, num_ranks: int, store: Path, run: Run, queue: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(store), num_ranks), rank=rank, world_size=num_ranks)
    try:
        shown = _train(rank, num_ranks, run)
    except Exception as error:
        shown = Shown(error=f"{type(error).__name__}: {error}")
    queue.put((rank, shown))
    if shown.error.startswith("OSError"):
        os._exit(1)  # the others see that it is gone
    with suppress(RuntimeError):
        dist.barrier()
    os._exit(0)


def _fail_to_write(step: int) -> None:
    """From now on this process has no space for its part of the step's checkpoint."""
    write = checkpoint.write_part

    def write_part(folder: Path, rank: int, state: OwnState) -> None:
        if f"step-{step:08d}" in folder.name:
            raise OSError("no space left")
        write(folder, rank, state)

    checkpoint.write_part = write_part


def write_in_background(rank: int = 0) -> None:
    """From now on this process writes checkpoints of any size while it trains."""
    run_state.LEAST_BYTES = 0
    run_state.has_idle_cores = lambda *_: True
    write = run_state.write_own

    def write_own(folder: Path, state: OwnState, team: ProcessGroup) -> dict[str, str]:
        time.sleep(0.2 * rank)
        return write(folder, state, team)

    run_state.write_own = write_own


def _train(rank: int, num_ranks: int, run: Run) -> Shown:
    if run.in_background:
        write_in_background(rank)
    if run.cannot_write and rank:
        _fail_to_write(run.cannot_write)
    layout = layout_of(run.texts, run.config.sequences_per_domain, num_ranks)
    method = methods()[run.method]
    model = model_of(layout.held(rank), run.family, method.experts_in)
    if run.broken in model.keys:
        next(iter(model.expert_parameters(run.broken).values())).data.fill_(float("nan"))
    if run.config.shard:
        team: RankGroup = ShardedGroup(layout, rank, torch.device("cpu"))
        team.shard(model, run.config, None)
    else:
        team = RankGroup(layout, rank)
    events = train(model, run.texts, run.config, run.folder, balanced=method.balanced, team=team)
    return _show(events, run, model)


def _show(events: Iterator[Event], run: Run, model: MultiExpertModel) -> Shown:
    shown = Shown(keys=list(model.keys))
    for event in events:
        if not isinstance(event, Requirements):  # each process has its own
            shown.events.append(event)
        if isinstance(event, Step) and event.step == run.broken_after:
            next(local_part(parameter) for parameter in model.parameters()).data.fill_(float("nan"))
        if isinstance(event, Step) and event.step == run.stop_after:
            events.close()  # type: ignore[attr-defined]
            break
    shown.num_held = sum(local_part(parameter).numel() for parameter in model.parameters())
    bytes_ = b"".join(_full(parameter).numpy().tobytes() for parameter in model.shared_parameters().values())
    shown.shared = hashlib.sha256(bytes_).hexdigest()
    return shown


def _full(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor().detach() if isinstance(parameter, DTensor) else parameter.detach()
