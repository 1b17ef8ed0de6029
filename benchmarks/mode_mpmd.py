"""What experts in processes of their own bring (MoDE §4.4), and what the cost model says they would.

The peer is the same training step in one process with all cores (or, with GPUs, on one of them: there is no tensor
parallelism here); steps alternate, so drift hits both. Pictures: (b) the expert grows; (c) the number of merges grows
and the expert's layers do not. The model's constants are measured before, only on layers and messages, with all
processes busy at the same time; no point that is predicted takes part in them. Ratios are MPMD over the peer.
With --figures it prints figure 4 of the paper by the cost model, with constants measured here and with chosen ones.
Run: python benchmarks/mode_mpmd.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import multiprocessing  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from engine.config import ModelConfig, TrainingConfig  # noqa: E402
from engine.methods.mode.config import ModeConfig  # noqa: E402
from engine.methods.mode.model import ModeModel  # noqa: E402
from engine.methods.mode.sharding.backbone import ShardedProcessGroup, connect_experts  # noqa: E402
from engine.methods.mode.sharding.experts import serve  # noqa: E402
from engine.methods.mode.sharding.messages import control_group  # noqa: E402
from engine.methods.parts.parts_model import ActiveParts  # noqa: E402
from engine.models.expert_model import trainable  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.flops import Shape  # noqa: E402
from engine.models.rows import Rows  # noqa: E402
from engine.training.distributed import SINGLE_PROCESS, ProcessGroup  # noqa: E402
from engine.training.optimizer import clip_and_step, gradient_groups, make_optimizer  # noqa: E402
from harness.benchmark import Figure, Options, report  # noqa: E402
from harness.mode_cost import Machine, Mesh, Work, figure_4a, figure_4b, figure_4c, spmd, step_cost  # noqa: E402

TRAINING = TrainingConfig(num_steps=10_000, learning_rate=1e-3)
MESSAGES = (1 << 14, 1 << 21)  # bytes
GPUS = torch.cuda.device_count()
CORES = len(os.sched_getaffinity(0))
SIZES = {
    "processes": ([2, 3] if max(CORES, GPUS) > 2 else [2], [2]),
    "rounds": (5, 1),
    "layers": (6, 6, "of the backbone"),
    "width": (256, 16),
    "vocabulary": (2048, 64),
    "sequences": (4, 2),
    "block": (128, 16),
    "sizes": ([1, 2, 3, 5], [1], "(b) layers in each of two blocks"),
    "merges": ([1, 3, 6], [3], "(c) of 6 layers in all"),
    "calibration": (1.0, 0.05, "seconds in which the speed of a process is measured"),
    "figures": (False, True, "also figure 4 by the cost model"),
}
PAPER = Shape(18, 2048, 2048, 2048, 8192, 3, 182_000, 2048)  # 1.58 billion in 18 layers (§4.1); the widths are ours
CHOSEN = Machine(1e14, 4.5e10, 2e-6)  # devices that compute much faster than they talk (decision 21)


@dataclass(frozen=True)
class Size:
    """The backbone and the batch."""

    layers: int
    width: int
    vocabulary: int
    sequences: int
    block: int

    def decoder(self, layers: int | None = None) -> Any:
        return fresh_model(
            ModelConfig(
                num_layers=layers or self.layers,
                width=self.width,
                num_heads=4,
                ffn_width=4 * self.width,
                max_positions=self.block,
            ),
            self.vocabulary,
        )

    def model(self, config: ModeConfig, keys: list[str], device: torch.device) -> ModeModel:
        model = ModeModel(self.decoder(), config.num_blocks).to(device).train()
        for key in keys:
            model.add_expert(key, config)
        return model


@dataclass(frozen=True)
class Setting:
    """What all processes know: each but the first has one expert."""

    size: Size
    points: tuple[tuple[str, ModeConfig], ...]
    num_processes: int
    num_cores: int
    store: Path
    calibration: float  # seconds

    @property
    def threads(self) -> int:
        return max(1, self.num_cores // self.num_processes)


def meet(rank: int, setting: Setting) -> tuple[torch.device, torch.Tensor]:
    """Joins the others; gives this process's device, and everybody's operations and updates per second."""
    torch.set_num_threads(setting.threads)
    device = torch.device(f"cuda:{rank}" if setting.num_processes <= GPUS else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = dist.FileStore(str(setting.store), setting.num_processes)  # type: ignore[attr-defined]
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=setting.num_processes)
    group = control_group()
    rates(setting, device, lambda: None)  # warms up
    mine = rates(setting, device, lambda: dist.barrier(group))
    result = [torch.empty(2, dtype=torch.float64) for _ in range(setting.num_processes)]
    dist.all_gather(result, mine, group=group)
    return device, torch.stack(result)


def rates(setting: Setting, device: torch.device, wait: Callable[[], Any]) -> torch.Tensor:
    """Operations per second of two layers there and back, and parameters per second that Adam updates."""
    size, seconds = setting.size, setting.calibration
    lm = size.decoder(2).to(device).train()
    shape = Shape.of(lm.config.to_dict())
    x_BTD = torch.randn(size.sequences, size.block, size.width, device=device, requires_grad=True)
    parameters = dict(lm.model.layers.named_parameters())
    optimizer = make_optimizer(parameters, TRAINING)

    def there_and_back() -> None:
        lm.model(inputs_embeds=x_BTD, use_cache=False).last_hidden_state.sum().backward()

    there_and_back()
    layer = 3 * (shape.projections + shape.ffn) + 3 * shape.scores(size.block)
    wait()
    flops = 2 * layer * size.sequences * size.block / seconds_of(there_and_back, seconds, device)
    wait()
    updates = sum(parameter.numel() for parameter in parameters.values()) / seconds_of(
        optimizer.step, seconds / 2, device
    )
    return torch.tensor([flops, updates], dtype=torch.float64)


def seconds_of(what: Callable[[], Any], at_least: float, device: torch.device) -> float:
    """The mean time of repetitions that together last so long."""
    began, count = time.perf_counter(), 0
    while count < 2 or time.perf_counter() - began < at_least:
        what()
        count += 1
        if device.type == "cuda":
            torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def echo(rank: int, device: torch.device, rounds: int = 20) -> list[float]:
    """Seconds of a message of each size between the first two processes, there and back, halved."""
    result = []
    for num_bytes in MESSAGES:
        tensor, took = torch.zeros(num_bytes // 4, device=device), []
        for _ in range(rounds):
            began = time.perf_counter()
            for now in (0, 1):
                (dist.send if rank == now else dist.recv)(tensor, 1 - rank)
            if device.type == "cuda":
                torch.cuda.synchronize()
            took.append((time.perf_counter() - began) / 2)
        result.append(statistics.median(took))
    return result


def expert_process(rank: int, setting: Setting) -> None:
    device, _ = meet(rank, setting)
    if rank == 1:
        echo(rank, device)
    for _, config in setting.points:
        model = setting.size.model(config, [f"e{rank}"], device)
        model.free_backbone()
        with tempfile.TemporaryDirectory() as folder:
            serve(model, "", Path(folder))
    dist.destroy_process_group()


def stepping(active: ActiveParts, ids: torch.Tensor, team: ProcessGroup) -> Callable[[], None]:
    """One whole update: forward, loss, backward, clip, Adam."""
    optimizer = make_optimizer(trainable(active, active.keys), TRAINING)
    rows = Rows.all_to(active.keys[0], len(ids))

    def step() -> None:
        logits = active(ids[:, :-1], rows)
        nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        team.step()
        clip_and_step(optimizer, gradient_groups(active, rows), 10, TRAINING, team)
        if ids.is_cuda:
            torch.cuda.synchronize()

    return step


def measure(setting: Setting, config: ModeConfig, device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of steps in one process and in all; the first two rounds are left out."""
    size, keys = setting.size, [f"e{rank}" for rank in range(1, setting.num_processes)]
    ids = torch.randint(0, size.vocabulary, (size.sequences, size.block + 1), device=device)
    full, shared = size.model(config, keys, device), size.model(config, [], device)
    seconds: dict[str, list[float]] = {"one": [], "mpmd": []}
    with connect_experts(shared, "") as shards:
        active = ActiveParts(shared, keys, "all")
        team = ShardedProcessGroup(shards, active, TRAINING)
        team.broadcast(0)
        steps = {
            "one": stepping(ActiveParts(full, keys, "all"), ids, SINGLE_PROCESS),
            "mpmd": stepping(active, ids, team),
        }
        for number in range(rounds + 2):
            for name, step in steps.items():
                torch.set_num_threads(setting.num_cores if name == "one" else setting.threads)
                began = time.perf_counter()
                step()
                if number >= 2:
                    seconds[name].append(time.perf_counter() - began)
    return seconds


def machines(
    setting: Setting, everybody: torch.Tensor, messages: list[float], by_itself: torch.Tensor
) -> dict[str, Any]:
    """The model's constants: of all processes at once, and of one with all cores."""
    small, large = messages
    per_byte = max(1e-15, (large - small) / (MESSAGES[1] - MESSAGES[0]))
    mpmd = Machine(
        float(everybody[0, 0]), 1 / per_byte, max(0.0, small - MESSAGES[0] * per_byte), float(everybody[:, 1].min())
    )
    num_devices = 1 if setting.num_processes <= GPUS else setting.num_cores
    one = Machine(float(by_itself[0]) / num_devices, updates_per_second=float(by_itself[1]) / num_devices)
    speeds = (everybody[:, 0] / everybody[0, 0]).tolist()
    return {"mpmd": mpmd, "one": one, "speeds": speeds, "devices": num_devices}


def predict(setting: Setting, config: ModeConfig, known: dict[str, Any]) -> dict[str, float]:
    """Seconds of a step by the cost model."""
    size = setting.size
    shape = Shape.of(size.decoder(1).config.to_dict() | {"num_hidden_layers": size.layers})
    work = Work(shape, [config] * (setting.num_processes - 1), size.sequences, size.block)
    meshes = [Mesh(1, has_backbone=True)]
    meshes += [Mesh(1, (number,), speed=speed) for number, speed in enumerate(known["speeds"][1:])]
    return {
        "one": step_cost(work, spmd(work, known["devices"]), known["one"]).seconds,
        "mpmd": step_cost(work, meshes, known["mpmd"]).seconds,
    }


def point(
    picture: str, config: ModeConfig, measured: dict[str, list[float]], message: dict[str, float]
) -> dict[str, Any]:
    ratios = [ours / one for one, ours in zip(measured["one"], measured["mpmd"], strict=True)]
    ratio, predicted = statistics.median(ratios), message["mpmd"] / message["one"]
    return {
        "picture": picture,
        "blocks": config.num_blocks,
        "expert_layers": config.expert_layers,
        "ratio_median": ratio,
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ratio_predicted": predicted,
        "prediction_error": predicted / ratio - 1,
        **{f"{name}_seconds": statistics.median(took) for name, took in measured.items()},
        **{f"{name}_seconds_predicted": seconds for name, seconds in message.items()},
    }


def run(setting: Setting, rounds: int) -> dict[str, Any]:
    """All points with so many processes; this is the first."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=expert_process, args=(rank, setting)) for rank in range(1, setting.num_processes)]
    for other in others:
        other.start()
    device, everybody = meet(0, setting)
    messages = echo(0, device)
    torch.set_num_threads(setting.num_cores)
    known = machines(setting, everybody, messages, rates(setting, device, lambda: None))
    torch.set_num_threads(setting.threads)
    points = [
        point(picture, config, measure(setting, config, device, rounds), predict(setting, config, known))
        for picture, config in setting.points
    ]
    dist.destroy_process_group()
    for other in others:
        other.join()
    mpmd, one = known["mpmd"], known["one"]
    return {
        "processes": setting.num_processes,
        "threads_each": setting.threads,
        "device": device.type,
        "points": points,
        "constants": {
            "gflops_per_process": [mpmd.flops_per_second * speed / 1e9 for speed in known["speeds"]],
            "gflops_alone": one.flops_per_second * known["devices"] / 1e9,
            "message_microseconds": mpmd.message_seconds * 1e6,
            "megabytes_per_second": mpmd.bytes_per_second / 1e6,
            "million_updates_per_second": mpmd.updates_per_second / 1e6,
        },
    }


def figures(machine: Machine) -> dict[str, dict[int, float]]:
    """Figure 4 by the cost model: the share of one mesh's step that several meshes save; below 0 they lose."""
    by_meshes = figure_4a(PAPER, machine, 16, 1024)
    return {
        "4a, by meshes": {
            meshes: round(1 - cost.seconds / by_meshes[1].seconds, 3) for meshes, cost in by_meshes.items()
        },
        "4b, by layers added": {
            size: round(one.saving, 3) for size, one in figure_4b(PAPER, machine, 16, 1024).items()
        },
        "4c, by merges": {merges: round(one.saving, 3) for merges, one in figure_4c(PAPER, machine, 16, 1024).items()},
    }


def measured_machine(constants: dict[str, Any]) -> Machine:
    return Machine(
        constants["gflops_per_process"][0] * 1e9,
        constants["megabytes_per_second"] * 1e6,
        constants["message_microseconds"] / 1e6,
        constants["million_updates_per_second"] * 1e6,
    )


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    size = Size(options.layers, options.width, options.vocabulary, options.sequences, options.block)
    points = [("b", ModeConfig(2, layers, start="even")) for layers in options.sizes]
    points += [("c", ModeConfig(merges, 6 // merges, start="even")) for merges in options.merges]
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(size, tuple(points), 0, CORES, Path(folder), options.calibration)
        runs = [
            run(replace(setting, num_processes=number, store=Path(folder, f"{number}")), options.rounds)
            for number in options.processes
        ]
    drawn = {}
    if options.figures:
        drawn = {"figure_4": {"measured": figures(measured_machine(runs[0]["constants"])), "chosen": figures(CHOSEN)}}
    shown = []
    for one in runs:
        ratios = [point["ratio_median"] for point in one["points"]]
        errors = [100 * abs(point["prediction_error"]) for point in one["points"]]
        shown.append(Figure(f"a step in {one['processes']} processes over one process, all sizes", ratios))
        shown.append(Figure(f"error of the cost model, {one['processes']} processes", errors, "%"))
    report(options, shown, runs=runs, **drawn)


if __name__ == "__main__":
    main()
