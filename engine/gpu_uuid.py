"""`python -m engine.gpu_uuid DEVICE`: prints the UUID of a GPU, or nothing for another device."""

from __future__ import annotations

import sys


def gpu_uuid(device: str) -> str:
    """The UUID of the GPU that a device name, such as `auto` or `cuda:1`, means; empty if it is none."""
    import torch

    from engine.device import choose_device

    chosen = choose_device(device)
    return str(torch.cuda.get_device_properties(chosen).uuid) if chosen.type == "cuda" else ""


if __name__ == "__main__":
    print(gpu_uuid(sys.argv[1]))
