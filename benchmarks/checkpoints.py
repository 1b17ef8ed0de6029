"""Claim: a training in several processes stands still for a checkpoint no longer than with torch's under a manifest.

Models with AdamW's moments, in processes that meet over gloo on this machine. The ways to write the same state:

- ours: each process writes, syncs and hashes what it holds as safetensors, under one manifest;
- dcp: `torch.distributed.checkpoint.save` from all processes, which syncs its files (a pickle names them), not hashed;
- dcp-hashed: the same with a manifest that the first process writes afterwards;
- dcp-async: `async_save`; its seconds are those until the call returns;
- background: `ours` by a thread from a copy, as large trainings do; its seconds are those of the copy and of the end.

Seconds are those of the slowest process, the least of the rounds; memory is the most above what the process held
before. Run: python benchmarks/checkpoints.py

Claim: with checkpoints in the background a training has the same losses and stands still for less time. Whole
trainings, once in each way in turn. Run: python benchmarks/checkpoints.py --trainings
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import gc  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
import shutil  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Mapping, Sequence  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from multiprocessing.queues import SimpleQueue  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import psutil  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.config import ModelConfig, TrainingConfig  # noqa: E402
from engine.events import Step  # noqa: E402
from engine.files import write_manifest  # noqa: E402
from engine.methods.multi_expert_files import new_placement  # noqa: E402
from engine.models.expert_model import trainable  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.text.blocks import Tokens  # noqa: E402
from engine.training import run_state  # noqa: E402
from engine.training.checkpoint import (  # noqa: E402
    EvaluationHistory,
    save_checkpoint,
    training_state,
)
from engine.training.data import DomainText  # noqa: E402
from engine.training.distributed import (  # noqa: E402
    SINGLE_PROCESS,
    Layout,
    RankGroup,
    local_part,
)
from engine.training.loop import train  # noqa: E402
from engine.training.optimizer import make_optimizer  # noqa: E402
from engine.training.run_state import BackgroundCheckpoint  # noqa: E402
from engine.training.sharding import ShardedGroup  # noqa: E402
from harness.benchmark import Figure, Options, report  # noqa: E402

SIZES = {
    "sizes": (["30M", "126M"], ["1M"]),
    "rounds": (3, 1),
    "processes": ([2, 4], [2]),
    "trainings": (False, False, "whole trainings, with checkpoints in the background and waited for"),
}
VOCAB = 16_384
SHAPES = {
    "1M": ModelConfig(num_layers=1, width=64, num_heads=2, ffn_width=128, max_positions=256),
    "30M": ModelConfig(num_layers=6, width=448, num_heads=8, ffn_width=1792, max_positions=256),
    "126M": ModelConfig(num_layers=12, width=768, num_heads=12, ffn_width=3072, max_positions=256),
}
CONFIG = TrainingConfig(shard=True, learning_rate=1e-3)


@dataclass
class Trained:
    """A process's training after an update."""

    team: RankGroup
    state: Mapping[str, Tensor]
    folder: Path


def ours(trained: Trained) -> None:
    """What a training does."""
    save_checkpoint(trained.folder, 1, trained.team.own_state(trained.state), CONFIG, team=trained.team)


def with_dcp(trained: Trained) -> None:
    """torch's own files."""
    dcp.save(dict(trained.team.own_state(trained.state)), checkpoint_id=trained.folder / "dcp")


def with_dcp_hashed(trained: Trained) -> None:
    """The same under a manifest."""
    with_dcp(trained)
    if trained.team.rank == 0:
        write_manifest(trained.folder / "dcp")


def with_dcp_async(trained: Trained) -> Any:
    """The same while the training would go on."""
    return dcp.async_save(dict(trained.team.own_state(trained.state)), checkpoint_id=trained.folder / "dcp")


def in_background(trained: Trained) -> BackgroundCheckpoint:
    """What a training does while it goes on."""
    own = trained.team.own_state(trained.state)
    return BackgroundCheckpoint(trained.folder, 1, own, CONFIG, EvaluationHistory(), trained.team)


WRITERS: dict[str, Callable[[Trained], Any]] = {
    "ours": ours,
    "dcp": with_dcp,
    "dcp-hashed": with_dcp_hashed,
    "dcp-async": with_dcp_async,
    "background": in_background,
}


class Peak:
    """The most resident memory above what was there, seen every 5 ms."""

    def __init__(self) -> None:
        self._process, self._over = psutil.Process(), threading.Event()
        self.before = self.most = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self.most = max(self.most, self._process.memory_info().rss)

    def finish(self) -> int:
        """Bytes."""
        self._over.set()
        self._thread.join()
        return self.most - self.before


def process(
    rank: int, ratios: SimpleQueue[float], num: int, root: Path, size: str, experts: int, shard: bool, rounds: int
) -> None:
    """One of several processes; the first prints, and reports how long ours stands still over dcp-hashed."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    store = dist.FileStore(str(root / f"store-{size}-{num}-{experts}-{shard}"), num)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num)
    layout = Layout(tuple("abcdefgh"[:experts]), num)
    model = MultiExpertModel(fresh_model(SHAPES[size], VOCAB), layout.held(rank), new_placement())
    team = ShardedGroup(layout, rank, torch.device("cpu")) if shard else RankGroup(layout, rank)
    if isinstance(team, ShardedGroup):
        team.shard(model, CONFIG, None)
    parameters = trainable(model, None)
    optimizer = make_optimizer(parameters, CONFIG)
    for parameter in parameters.values():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    bytes_ = sum(local_part(one).nbytes for one in training_state(parameters, optimizer).values())
    if rank == 0:
        held = "divided" if shard else "copies"
        print(f"{size}, {experts} experts, {num} processes, {held}: {bytes_ / 1e6:.0f} MB here", flush=True)
    seconds = {}
    for name, write in WRITERS.items():
        one = Trained(team, training_state(parameters, optimizer), root / name)
        shown = [_measure(write, one) for _ in range(rounds)]
        seconds[name], end = (min(seen[index] for seen in shown) for index in (0, 1))
        first, other = (max(seen[index] for seen in shown) / 1e6 for index in (2, 3))
        if rank == 0:
            print(
                f"  {name:11}: stands still for {seconds[name]:6.2f} s, files there after {end:6.2f} s; "
                f"{first:,.0f} MB more in the first process, at most {other:,.0f} MB in another",
                flush=True,
            )
    dist.barrier()
    if rank == 0:
        ratios.put(seconds["ours"] / seconds["dcp-hashed"])
    os._exit(0)


def _measure(write: Callable[[Trained], Any], trained: Trained) -> tuple[float, float, float, float]:
    """Seconds until the slowest may go on, and until files are there; memory of the first and of any other."""
    gc.collect()
    if trained.team.rank == 0:
        shutil.rmtree(trained.folder, ignore_errors=True)
        trained.folder.mkdir(parents=True)
        os.sync()
    dist.barrier()
    peak, began = Peak(), time.perf_counter()
    pending = write(trained)
    seconds = time.perf_counter() - began
    if isinstance(pending, BackgroundCheckpoint):
        while not pending.is_written():
            time.sleep(0.01)
        ending = time.perf_counter()
        pending.finish()
        seconds += time.perf_counter() - ending
    elif pending is not None:
        pending.result()
    end = time.perf_counter() - began
    memory = peak.finish()
    shown = torch.tensor(
        [seconds, end, memory if trained.team.rank == 0 else 0, memory if trained.team.rank else 0]
    ).double()
    dist.all_reduce(shown, op=dist.ReduceOp.MAX)
    return tuple(shown.tolist())  # type: ignore[return-value]


def training(
    rank: int, ratios: SimpleQueue[float], num: int, root: Path, size: str, experts: int, shard: bool, rounds: int
) -> None:
    """One of several processes that train in both ways; the first prints, and reports how long each stands still."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    store = dist.FileStore(str(root / f"training-{size}-{num}-{experts}-{shard}"), num)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num)
    seen: dict[str, list[Seen]] = {"waiting": [], "background": []}
    if rank == 0:
        print(f"{size}, {experts} experts, {num} processes, {'divided' if shard else 'copies'}; load {os.getloadavg()}")
    for number in range(rounds):
        for name in seen:
            run_state.LEAST_BYTES = 0 if name == "background" else 1 << 60
            run_state.has_idle_cores = lambda *_: True  # also of several processes on CPUs, which wait
            seen[name].append(_train(num, rank, root / f"{name}-{number}", size, experts, shard))
            dist.barrier()
            if rank == 0:
                shutil.rmtree(root / f"{name}-{number}")
                print(f"  {name:10}: {seen[name][-1]}", flush=True)
    if rank == 0:
        pairs = list(zip(seen["waiting"], seen["background"], strict=True))
        still, full = ([getattr(b, what) / getattr(a, what) for a, b in pairs] for what in ("still", "full"))
        print(f"  background / waiting: stands still {median(still):.2f}, in all {median(full):.2f}", flush=True)
        ratios.put(median(still))
    same = all(row.losses == seen["waiting"][0].losses for rows in seen.values() for row in rows)
    dist.barrier()
    os._exit(not same)


@dataclass
class Seen:
    """Seconds of a training from its first to its last event, and those in which it made no update."""

    full: float
    still: float
    losses: list[float]

    def __str__(self) -> str:
        updates = self.full - self.still
        return f"{self.full:6.1f} s: {updates:6.1f} s in updates, {self.still:5.1f} s standing still"


def _train(num: int, rank: int, folder: Path, size: str, experts: int, shard: bool) -> Seen:
    """Three checkpoints; the last one is always waited for."""
    config = replace(CONFIG, shard=shard, num_steps=9, checkpoint_every=3, evaluate_every=9, evaluation_blocks=1)
    config = replace(config, block_size=128, sequences_per_domain=2 * num)
    keys = tuple("abcdefgh"[:experts])
    layout = Layout(keys, num)
    model = MultiExpertModel(fresh_model(SHAPES[size], VOCAB, seed=1), layout.held(rank), new_placement())
    team = SINGLE_PROCESS if num == 1 else (ShardedGroup if shard else RankGroup)(*_group(layout, rank, shard))
    if isinstance(team, ShardedGroup):
        team.shard(model, config, None)
    ids = torch.randint(VOCAB, (20_000,), generator=torch.Generator().manual_seed(1)).numpy().astype("<u2")
    tokens = Tokens(ids, np.zeros(1, dtype=np.int64))
    texts = [DomainText(key, key, tokens, tokens) for key in keys]
    began, step_seconds, losses = 0.0, 0.0, []
    for event in train(model, texts, config, folder, team=team):
        if isinstance(event, Step) and event.step == 1:
            began = time.perf_counter()
        elif isinstance(event, Step):
            step_seconds += event.num_tokens / event.tokens_per_second
            losses.append(event.loss)
    full = time.perf_counter() - began
    return Seen(full, full - step_seconds, losses)


def _group(layout: Layout, rank: int, shard: bool) -> tuple[Any, ...]:
    return (layout, rank, torch.device("cpu")) if shard else (layout, rank)


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    figures = []
    if options.quick or not options.trainings:
        ratios = run(process, options, ((2, True),) if options.quick else ((1, True), (2, True), (2, False)))
        figures.append(Figure("stands still, ours over dcp-hashed", ratios, at_most=1, statistic=max))
    if options.quick or options.trainings:
        ratios = run(training, options, ((2, False),) if options.quick else ((1, True), (2, True), (2, False)))
        figures.append(Figure("stands still, in the background over waiting", ratios, at_most=1, statistic=max))
    report(options, figures)


def run(work: Callable[..., None], options: Any, settings: Sequence[tuple[int, bool]]) -> list[float]:
    """The ratio of each setting (experts, and whether processes divide the model) for each size and number."""
    context, ratios = multiprocessing.get_context("spawn"), []
    with tempfile.TemporaryDirectory() as name:
        for size in options.sizes:
            for num in options.processes:
                for experts, shard in settings if num > 1 else ((1, False),):
                    reported: SimpleQueue[float] = context.SimpleQueue()
                    args = (reported, num, Path(name), size, experts, shard, options.rounds)
                    ranks = [context.Process(target=work, args=(rank, *args)) for rank in range(num)]
                    for one in ranks:
                        one.start()
                    for one in ranks:
                        one.join()
                    assert not any(one.exitcode for one in ranks), "A process failed, or losses differ."
                    ratios.append(reported.get())
    return ratios


if __name__ == "__main__":
    main()
