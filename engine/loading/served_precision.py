"""The precision that weights are served in: the stored one, or another that is asked for or quicker on this machine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from engine.config import RequestedPrecision, ServePrecision
from engine.device import choose_device
from engine.errors import ModelError
from engine.files import ArtifactRef
from engine.models.model_files import weights_in

_SHORT = {"BF16": torch.bfloat16, "F16": torch.float16}  # as safetensors names them


@dataclass(frozen=True)
class ChosenPrecision:
    """What weights are held in, and why, where it was not asked for and is worth a sentence."""

    precision: ServePrecision
    because: str = ""


def choose_precision(
    requested: RequestedPrecision, kept: Collection[ArtifactRef], device: str, capacity_bytes: int
) -> ChosenPrecision:
    """What the weights in these folders are held in, on the device of this name.

    `auto` is float32 on a CPU without instructions for the stored type of 16 bits, where their bytes fit.
    Weights that are in float32 already are `stored`.
    """
    if requested in ("stored", "bf16"):
        return ChosenPrecision(requested)
    types = {dtype for kind, dtype in _SHORT.items() if any(_short_sizes(one).get(kind) for one in kept)}
    if requested == "float32" or not types:
        return ChosenPrecision("float32" if types else "stored")
    used = choose_device(device)
    slow = sorted(str(one).removeprefix("torch.") for one in types if not computes_in(one, used))
    if not slow:
        return ChosenPrecision("stored")
    problem, size_bytes = f"This CPU has no instructions for {' and '.join(slow)}", loaded_bytes("float32", *kept)
    if size_bytes <= capacity_bytes:
        return ChosenPrecision(
            "float32",
            f"{problem}: these weights are served in float32, in twice the memory.",
        )
    return ChosenPrecision(
        "stored",
        f"{problem}, so prompts are read slowly: in float32 the weights would take {size_bytes:,} bytes, more than the "
        f"{capacity_bytes:,} for models in memory.",
    )


def computes_in(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a device multiplies matrices of this type of 16 bits about as fast as of float32, or faster.

    oneDNN knows it of a CPU. It counts AVX-512 without bf16 instructions as able to: it reads prompts there in 1.2
    times the time of float32, and decodes in half of it.
    """
    if device.type != "cpu":
        return True
    if not torch.backends.mkldnn.is_available():
        return False
    mkldnn = torch.ops.mkldnn
    is_bf16 = dtype == torch.bfloat16
    return bool(mkldnn._is_mkldnn_bf16_supported() if is_bf16 else mkldnn._is_mkldnn_fp16_supported())


def loaded_bytes(precision: ServePrecision, *kept: ArtifactRef) -> int:
    """Bytes of the tensors in folders while they are loaded: as stored, and in float32 twice those of 16 bits."""
    stored = sum(file.stat().st_size for one in kept for file in one.folder.glob("*.safetensors"))
    return stored + (2 * sum(sum(_short_sizes(one).values()) for one in kept) if precision == "float32" else 0)


def _short_sizes(kept: ArtifactRef) -> dict[str, int]:
    """The numbers of 16 bits in a folder's tensors, by type. Of damaged files none: loading names the damage."""
    files = tuple(sorted(kept.folder.glob("*.safetensors")))
    try:
        return _read_short_sizes(files)
    except ModelError:
        return {}


@lru_cache(maxsize=4096)
def _read_short_sizes(files: tuple[Path, ...]) -> dict[str, int]:
    weights = weights_in({file: file for file in files})
    return {kind: sum(size for one, size in weights.tensors.values() if one == kind) for kind in _SHORT}


@torch.no_grad()
def hold_in(modules: list[nn.Module], precision: ServePrecision) -> None:
    """Holds float32 parameters in bf16, or all of 16 bits in float32; `stored` changes nothing.

    As with a seed that is stored in bf16, modules name parameters that stay in float32 (`in_float32`): adapters, gates
    of MoDE. Buffers in float32 also stay: positions of rotary embeddings need the digits.
    """
    every = [module for model in modules for module in model.modules()]
    if precision == "bf16":
        for module in every:
            kept = getattr(module, "in_float32", ())
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.dtype == torch.float32 and name not in kept:
                    parameter.data = parameter.data.to(torch.bfloat16)
    elif precision == "float32":
        for module in every:
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                if tensor.dtype in _SHORT.values():
                    tensor.data = tensor.data.float()
