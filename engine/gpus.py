"""The GPUs of this machine, looked up in another process, so that the caller takes no memory of them.

`python -m engine.gpus` prints them as JSON; with the name of a device, the UUID of the GPU that it means.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.subprocesses import python_command

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
    command, environment = python_command("engine.gpus"), {**os.environ, **({VISIBLE: visible} if visible else {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment)
        fault = done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        fault = str(error)
    if fault:
        print(f"The GPUs cannot be listed, so jobs lease none: {fault}", file=sys.stderr)
        return []
    return [Gpu(**one) for one in json.loads(done.stdout)]


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
    for number, one in zip(numbers_of(count), map(torch.cuda.get_device_properties, range(count)), strict=True):
        uuid = str(one.uuid)
        address = address_of(uuid, one.name, number) if is_nvidia else ""  # AMD's driver has UUIDs of another form
        gpus.append(Gpu(uuid, number, one.name, one.total_memory, address))
    return gpus


def gpu_uuid(device: str) -> str:
    """The UUID of the GPU that a device name, such as `auto` or `cuda:1`, means; empty if it is none."""
    import torch

    from engine.device import choose_device

    chosen = choose_device(device)
    return str(torch.cuda.get_device_properties(chosen).uuid) if chosen.type == "cuda" else ""


if __name__ == "__main__":
    print(gpu_uuid(sys.argv[1]) if sys.argv[1:] else json.dumps([asdict(gpu) for gpu in _list_gpus()]))
