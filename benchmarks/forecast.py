"""Claim: the memory and the disk of a forecast lie within 20 % of what the job then uses.

Each kind of training is forecast by its probe of four updates, and then run by a worker's process, whose peak of
resident memory is read from the kernel while it runs (`VmHWM`), and whose artifacts and checkpoints are weighed. Time
is also printed, without a claim: a loaded machine is not the same a minute later. Linux only.
Run: python benchmarks/forecast.py [--steps 60] [--width 256] [--block-size 256]
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from contextlib import suppress  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import psutil  # noqa: E402

from engine.device import python_command  # noqa: E402
from engine.files import folder_size  # noqa: E402
from harness.benchmark import Figure, Options, report, resident_bytes  # noqa: E402
from jobs.probe.forecast import forecast  # noqa: E402
from jobs.queue.submit import run_now, submit  # noqa: E402
from workbench.answers.forecasts import Measured  # noqa: E402
from workbench.job_records import jobs  # noqa: E402
from workbench.kinds.kind import parse_spec  # noqa: E402
from workbench.registry import database  # noqa: E402
from workbench.settings import get_settings  # noqa: E402
from workbench.store.storage import get_storage  # noqa: E402

MOST_PERCENT = 20  # difference of forecast and use


def specs(training: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A job of each kind that trains, in an order in which each finds what it needs."""
    joint = {"kind": "train-joint", "seed_model": "seed", "domains": ["a", "b"], "training": training}
    mode = {"kind": "train-mode", "seed_model": "seed", "shape": {"num_blocks": 2}, "training": training}
    return {
        "DEMix": {**joint, "name": "demix"},
        "DEMix, 2 at once": {**joint, "name": "two", "num_gpus": 2},
        "dense": {**joint, "name": "dense", "method": "dense"},
        "LoRA": {**joint, "name": "lora", "domains": ["a"], "method": "lora"},
        "one more expert": {
            "kind": "train-expert",
            "name": "more",
            "domain": "c",
            "mixture": "demix",
            "training": training,
        },
        "MoDE": {**mode, "name": "mode", "domains": ["a"]},
        "MoDE, another": {**mode, "name": "other", "domains": ["b"]},
        "composition": {
            "kind": "compose-mode",
            "name": "both",
            "experts": ["mode/a", "other/b"],
            "domains": ["a"],
            "training": training,
        },
    }


KINDS = list(specs({}))
SIZES = {
    "steps": (60, 4),
    "width": (256, 32),
    "block_size": (256, 32),
    "only": (KINDS, ["DEMix"], "names of kinds, such as DEMix"),
}


def fill(folder: Path, width: int) -> None:
    """Three domains and a seed model."""
    for name in "abc":
        draw = random.Random(name)
        lines = [json.dumps({"text": " ".join(f"{name}{draw.randrange(900)}" for _ in range(400))}) for _ in range(200)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
        run({"kind": "import-corpus", "name": name, "path": str(folder / f"{name}.jsonl")})
    shape = {"num_layers": 4, "width": width, "num_heads": 4, "ffn_width": 4 * width, "max_positions": 512}
    run({"kind": "make-seed", "name": "seed", "domains": ["a", "b"], "vocab_size": 4096, "shape": shape})


def run(spec: dict[str, Any]) -> None:
    """Runs a job here."""
    for _ in run_now(spec)[1]:
        pass


def expected(spec: dict[str, Any]) -> Measured:
    """What the probe says."""
    stages = forecast(parse_spec(spec))
    while True:
        try:
            next(stages)
        except StopIteration as end:
            if end.value.measured is None:
                raise SystemExit(end.value.problem) from None
            return end.value.measured


def used(spec: dict[str, Any]) -> tuple[int, int, float]:
    """Peak of memory, most bytes on disk, and seconds of the job, in a worker's process and those that it starts."""
    settings, storage, before = get_settings(), get_storage(), get_storage().ids()
    num_processes = spec.get("num_gpus", 1)  # without a GPU to lease
    job_id, began, memory, disk = submit({**spec, "num_gpus": 0} if num_processes > 1 else spec), time.monotonic(), 0, 0
    environment = os.environ | {"WORKBENCH_PROCESSES": str(num_processes)}
    process = subprocess.Popen([*python_command("jobs.attempt.runner"), job_id], env=environment)
    while process.poll() is None:
        memory = max(memory, peak_of(process.pid) if num_processes == 1 else resident_of(process.pid))
        made = sum(folder_size(storage.path(id)) for id in storage.ids() - before)
        disk = max(disk, made + weight(settings.jobs_folder / job_id / "work"))
        time.sleep(0.05)
    with database.reading() as session:
        card = jobs.get_job(session, job_id)
    if card.state != "done":
        raise SystemExit(card.error)
    return memory, disk, time.monotonic() - began


def weight(folder: Path) -> int:
    """Bytes of complete checkpoints; others are being written."""
    try:
        return sum(folder_size(one) for one in folder.iterdir() if not one.name.startswith("."))
    except FileNotFoundError:
        return 0


def resident_of(pid: int) -> int:
    """The resident memory of a process and of all that it started, now."""
    total = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                total += one.memory_info().rss
    return total


def peak_of(pid: int) -> int:
    """The kernel's peak of resident memory of a process; 0 once it has ended."""
    try:
        return resident_bytes("VmHWM", pid)
    except (OSError, StopIteration):
        return 0


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    training = {"num_steps": options.steps, "block_size": options.block_size, "checkpoint_every": 4}
    differences = []
    with tempfile.TemporaryDirectory() as place:
        os.environ["WORKBENCH_HOME"] = str(Path(place) / "home")
        get_settings.cache_clear()
        database.migrate(get_settings())
        fill(Path(place), options.width)
        print(f"{'':16} {'memory, MB':>22} {'disk, MB':>20} {'time, s':>16}   (forecast / used)")
        for name, spec in specs(training).items():
            if name not in options.only:
                continue
            probed = expected(spec)
            memory, disk, seconds = used(spec)
            for forecast_bytes, used_bytes in ((probed.peak_bytes, memory), (probed.disk_bytes, disk)):
                differences.append(100 * abs(forecast_bytes / used_bytes - 1))
            print(
                f"{name:16} {probed.peak_bytes / 1e6:10.0f} / {memory / 1e6:9.0f} {probed.disk_bytes / 1e6:9.1f} / "
                f"{disk / 1e6:8.1f} {probed.seconds:8.1f} / {seconds:5.1f}",
                flush=True,
            )
        database.close_engines()
    name = "difference of forecast and use in memory or disk, the largest"
    report(options, [Figure(name, differences, "%", at_most=MOST_PERCENT, statistic=max)])


if __name__ == "__main__":
    main()
