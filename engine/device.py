"""What a computation runs on: the device and its memory, GPUs, processes of Python, and what else its bits depend on.

Importing this loads no torch. `python -m engine.device` prints the GPUs as JSON, looked up in another process so that
the caller takes no memory of them; with the name of a device, the UUID of the GPU that it means.

Processes run this project's own code, and nothing of the folder they start in: `python -m` takes modules from the
current folder first, so a file there that is called engine.py would stand in for ours.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ModelError, NextStep, TrainingError

if TYPE_CHECKING:
    import torch
import signal

_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


@dataclass(frozen=True)
class Environment:
    """Equal bits are promised on a CPU, where all of this is the same."""

    device: str  # cpu, or the model of the GPU
    processor: str
    instructions: str  # the vector instructions that torch uses, such as AVX2
    threads: int  # of torch in the process that trains
    processes: int  # that were asked for; 0: one for each GPU
    versions: dict[str, str]

    @property
    def is_cpu(self) -> bool:
        return self.device == "cpu"

    def changes(self, now: Environment) -> list[str]:
        """What is not as it was, such as `threads 2, now 1`."""
        return differences(_flat(self), _flat(now))


def differences(before: Mapping[str, str | int], after: Mapping[str, str | int]) -> list[str]:
    """The values that are not as they were, such as `torch 2.12.1, now 2.13.0`."""
    names = dict.fromkeys([*before, *after])
    return [
        f"{name} {before.get(name, 'unknown')}, now {after.get(name, 'unknown')}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def library_versions() -> dict[str, str]:
    """The versions of the libraries that compute."""
    return {name: version(name) for name in _LIBRARIES}


def versions() -> dict[str, str]:
    """Versions of Python, of this program and of the libraries that numbers come from."""
    own = {"python": platform.python_version(), "expert-workbench": version("expert-workbench")}
    return {**own, **library_versions()}


def device_name(name: str = "auto") -> str:
    """A device with its model name: `cuda:0 (NVIDIA H200)`, `cpu (x86_64)`."""
    import torch

    device = choose_device(name)
    return f"{device} ({torch.cuda.get_device_name(device) if device.type == 'cuda' else platform.machine()})"


def current_environment(device: str, processes: int) -> Environment:
    """The environment of this process, which computes on `device`."""
    import torch

    chosen = choose_device(device)
    return Environment(
        device=torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else chosen.type,
        processor=_processor(),
        instructions=torch.backends.cpu.get_cpu_capability() + (" by oneDNN" if is_onednn_faster() else ""),
        threads=torch.get_num_threads(),
        processes=processes,
        versions=library_versions(),
    )


@cache
def is_onednn_faster() -> bool:
    """Whether oneDNN multiplies matrices in float32 in half of MKL's time here: on AMD's processors with AVX-512.

    MKL takes AVX-512 on Intel's only. The processor decides, not a measurement: one machine always computes the same.
    """
    import torch

    has_both = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()
    is_wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return has_both and is_wide and "AMD" in _processor() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _processor() -> str:
    """The model of the CPU as Linux names it, else what Python knows of it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _flat(environment: Environment) -> dict[str, str | int]:
    values = asdict(environment)
    return {**values.pop("versions"), **values}


def process_environment(threads: int = 0) -> dict[str, str]:
    """The environment variables of compute processes. `threads` 0 means one for each core.

    Waiting OpenMP threads must sleep: two busy PyTorch processes otherwise spin against each other.
    Telemetry is off.
    """
    count = str(threads or os.cpu_count() or 1)
    return {
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # our own progress says more
        "DO_NOT_TRACK": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
    }


def prepare_process(threads: int = 0) -> None:
    """Sets those variables here, unless they are set already. Call it before anything imports torch."""
    for name, value in process_environment(threads).items():
        os.environ.setdefault(name, value)


def choose_device(name: str = "auto") -> torch.device:
    """The device of this name, such as `auto`, `cpu` or `cuda:1`. Raises ModelError when it is not available."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"The device “{name}” is not available ({str(error).splitlines()[0]}).",
            NextStep.CHOOSE_DEVICE,
        ) from None
    return device


def num_gpus(device: str = "auto") -> int:
    """GPUs that a device of this name stands for: all, none, or the one that it names."""
    import torch

    if device in ("auto", "cuda"):
        return torch.cuda.device_count()
    return int(device.startswith("cuda"))


def require_gpus(num_processes: int, device: str) -> None:
    """Raises TrainingError unless this machine has a GPU for each process, or none and the device may be the CPU."""
    gpus = num_gpus(device)
    if num_processes > gpus and (gpus or device == "cuda"):
        raise TrainingError(
            f"Each process must have a GPU of its own, but there are {num_processes} processes and {gpus} GPUs.",
            f"Choose at most {gpus} processes, or the device cpu." if gpus else "Choose the device cpu.",
        )


@contextmanager
def preserve_threads() -> Iterator[int]:
    """Restores torch's thread count afterwards, since a library (such as numba) may change it for the process."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


_is_on = ContextVar("shapes_only", default=False)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Models that are built and loaded within are of torch's device `meta`; the bytes of their files are not checked.

    They are only good for counting: what a model would take, before it is loaded.
    """
    import torch

    token = _is_on.set(True)
    try:
        with torch.device("meta"):
            yield
    finally:
        _is_on.reset(token)


def is_shapes_only() -> bool:
    """Whether models are now built as shapes only."""
    return _is_on.get()


_MACHINE, _PROCESS = Path("/proc/meminfo"), Path("/proc/self/status")
_CGROUP = Path("/sys/fs/cgroup")  # of a container; `memory.max` is “max” where it has no limit


def most_memory(device: torch.device) -> int | None:
    """The most bytes that this process can have of a device's memory now; None where that is not known.

    On the CPU, swap also counts: with it a process is slow, but runs.
    """
    if device.type == "cuda":
        import torch

        number = torch.cuda.current_device() if device.index is None else device.index
        free, total = torch.cuda.mem_get_info(number)
        share = torch.cuda.get_per_process_memory_fraction(number)  # a job may have leased a part of the GPU
        return int(min(free + torch.cuda.memory_reserved(number), share * total))
    return most_main_memory() if device.type == "cpu" else None


def most_main_memory() -> int | None:
    """The most bytes of main memory that this process can have now, swap included; None on other systems than Linux."""
    free = free_main_memory()
    with suppress(OSError, KeyError, ValueError):
        return None if free is None else free + _sizes(_MACHINE)["SwapFree"] + _sizes(_PROCESS)["VmRSS"]
    return None


def free_main_memory() -> int | None:
    """Bytes of main memory that are free, without swap; None on other systems than Linux."""
    with suppress(OSError, KeyError, ValueError):
        free = _sizes(_MACHINE)["MemAvailable"]
        with suppress(OSError, ValueError):
            free = min(free, left_in_container())
        return max(free, 0)
    return None


def left_in_container() -> int:
    """Bytes until the container's limit; files in memory give way and do not count. Raises OSError, ValueError."""
    limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    lines = (line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    return limit - used + next(int(value) for name, value in lines if name == "inactive_file")


def megabytes(size: int) -> str:
    """A size as text, such as `2,310 MB`, or `0.4 MB`."""
    return f"{size / 1e6:,.1f} MB" if size < 1e7 else f"{size / 1e6:,.0f} MB"


def _sizes(file: Path) -> dict[str, int]:
    """The sizes that Linux lists in a file, in bytes."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[-1] == "kB"}


VISIBLE = "CUDA_VISIBLE_DEVICES"
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # of NVIDIA, of AMD, and of both on Windows' Linux
_SECONDS = 120.0  # for torch to name the GPUs
_GPU, _MIG = "GPU-", "MIG-"  # before a UUID in CUDA_VISIBLE_DEVICES, as in `nvidia-smi -L`


@dataclass(frozen=True)
class Gpu:
    """One GPU: its UUID, and the number by which people know it."""

    uuid: str
    number: str
    name: str = ""
    memory_bytes: int = 0
    address: str = ""  # a value of CUDA_VISIBLE_DEVICES that names it by its UUID, where the driver takes one

    @property
    def visible(self) -> str:
        """The value of CUDA_VISIBLE_DEVICES that shows a process this GPU and nothing else."""
        return self.address or self.number


def has_driver() -> bool:
    """Whether a driver of GPUs is loaded on this machine."""
    return any(Path(driver).exists() for driver in _DRIVERS)


def find_gpus(visible: str | None = None) -> list[Gpu]:
    """The GPUs that this process may use, in their order; another process asks torch. Empty without a driver.

    `visible` is another value of CUDA_VISIBLE_DEVICES for that process.
    """
    if not has_driver():
        return []
    command, environment = python_command("engine.device"), {**os.environ, **({VISIBLE: visible} if visible else {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment)
        fault = done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        fault = str(error)
    if fault:
        print(f"The GPUs cannot be listed, so jobs lease none: {fault}", file=sys.stderr)
        return []
    return [Gpu(**load) for load in json.loads(done.stdout)]


def numbers_of(count: int, environment: Mapping[str, str] = os.environ) -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls each of the visible GPUs, which may be a part of the machine's."""
    visible = [one.strip() for one in environment.get(VISIBLE, "").split(",") if one.strip()]
    return visible[:count] if len(visible) >= count else [str(number) for number in range(count)]


def address_of(uuid: str, name: str, number: str) -> str:
    """The value of CUDA_VISIBLE_DEVICES that names a GPU of NVIDIA by its UUID, in whatever order the driver counts.

    Of a part of a GPU (MIG), torch may say the UUID of the whole: a part has an address where it was given one.
    """
    if number.startswith(_MIG):
        return number
    return "" if "MIG " in name else f"{_GPU}{uuid}"


def _list_gpus() -> list[Gpu]:
    import torch

    count, is_nvidia = torch.cuda.device_count(), torch.version.hip is None
    gpus = []
    for number, gpu in zip(numbers_of(count), map(torch.cuda.get_device_properties, range(count)), strict=True):
        uuid = str(gpu.uuid)
        address = address_of(uuid, gpu.name, number) if is_nvidia else ""  # AMD's driver has UUIDs of another form
        gpus.append(Gpu(uuid, number, gpu.name, gpu.total_memory, address))
    return gpus


def gpu_uuid(device: str) -> str:
    """The UUID of the GPU that a device name, such as `auto` or `cuda:1`, means; empty if it means no GPU."""
    import torch

    chosen = choose_device(device)
    return str(torch.cuda.get_device_properties(chosen).uuid) if chosen.type == "cuda" else ""


if __name__ == "__main__":
    print(gpu_uuid(sys.argv[1]) if sys.argv[1:] else json.dumps([asdict(gpu) for gpu in _list_gpus()]))


_ROOT = Path(__file__).resolve().parents[1]


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module with this Python, whatever lies in the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def end_session(leader: int) -> None:
    """Asks every process of a session to end, but its leader: also those with a process group of their own (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid = int(folder.name)
            if pid != leader and os.getsid(pid) == leader:
                os.kill(pid, signal.SIGTERM)


def python_environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for such a process and all that it starts: each finds the code that this one runs, and no other."""
    own = [str(_ROOT)] if (_ROOT / "pyproject.toml").is_file() else []  # installed, every Python here finds it
    # An empty entry stands for the current folder, and comes first even so.
    theirs = [one for one in inherited.get("PYTHONPATH", "").split(os.pathsep) if one and one not in own]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(own + theirs)}
