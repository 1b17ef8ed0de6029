"""What vLLM needs to serve the experts of a mixture, each under its own name; it cannot mix them.

The flags are those of vLLM's `vllm serve` (0.11 to 0.22): `--enable-lora`, `--lora-modules NAME=FOLDER`, `--max-loras`,
`--max-lora-rank`, which takes only some numbers, and `--gpu-memory-utilization`: a server takes 0.9 of its GPU without
it, and the next one finds no space.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.methods.registry import method_of
from workbench.answers.base import Answer
from workbench.errors import BadSpecError
from workbench.formatting.shell_command import shell_command
from workbench.registry.mixtures import mixture_row, taking_part
from workbench.registry.seeds import seed_row
from workbench.schema.tables import Expert, SeedModel
from workbench.specs.base import SEED, output_complaints
from workbench.store.storage import Storage


class ServedAdapter(Answer):
    """A LoRA adapter, and the folder that PEFT loads."""

    name: str
    folder: str


class VllmServer(Answer):
    """A process of vLLM with one model, and adapters of it."""

    model: str
    folder: str
    port: int
    adapters: list[ServedAdapter]
    command: list[str]


class LeftOut(Answer):
    """An expert that cannot be served, with the cause."""

    expert: str
    because: str


class ServeConfig(Answer):
    """The processes that serve the experts of a mixture, each expert under its own name."""

    mixture: str
    servers: list[VllmServer]
    left_out: list[LeftOut]
    lost: str = Field(description="What of the mixture is not served.")


SCRIPT, CONFIG = "serve.sh", "serve.json"
LOST = (
    "vLLM answers with one expert at a time, by its name. The mixture of their probabilities, its weights, its gate "
    "and the posterior that follows the text are lost."
)
_FIRST_PORT = 8100
_GPU_PERCENT = 90  # of a GPU's memory, for all servers together: vLLM's default for one
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM takes


def write_serve_config(session: Session, storage: Storage, mixture: str, folder: Path) -> ServeConfig:
    """Writes the script and the same as JSON into a new folder. The script exports the weights when it is run.

    Raises NotFoundError, and BadSpecError for a folder that exists, and for a mixture with nothing that vLLM can serve.
    """
    if complaints := output_complaints(str(folder), "folder"):
        raise BadSpecError(complaints)
    config = serve_config(storage, mixture, taking_part(mixture_row(session, mixture)), folder.resolve())
    if not config.servers:
        because = " ".join(f"“{one.expert}” {one.because}." for one in config.left_out)
        raise BadSpecError([f"vLLM can serve no expert of “{mixture}”. {because}".strip()])
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(config.model_dump(), indent=2) + "\n", encoding="utf-8")
    (folder / SCRIPT).write_text(_script(config), encoding="utf-8")
    return config


def serve_config(storage: Storage, mixture: str, experts: Sequence[Expert], folder: Path) -> ServeConfig:
    """One server for each model, and for each seed model with all of its adapters."""
    left_out = [(expert, _why_not(storage, expert)) for expert in experts]
    servable = [expert for expert, because in left_out if not because]
    adapters: dict[str, list[Expert]] = {}
    for expert in servable:
        if method_of(expert.method).is_adapter and expert.seed is not None:
            adapters.setdefault(f"{SEED}{expert.seed.name}", []).append(expert)
    full_models = {
        expert.name: [expert]
        for expert in servable
        if not method_of(expert.method).is_adapter and expert.name not in adapters
    }
    models = [
        (name, dtype_of(storage.path(experts[0].base_id)), adapters.get(name, []))
        for name, experts in {**adapters, **full_models}.items()
    ]
    return ServeConfig(
        mixture=mixture,
        servers=[_server(storage, folder, number, len(models), *model) for number, model in enumerate(models)],
        left_out=[LeftOut(expert=expert.name, because=because) for expert, because in left_out if because],
        lost=LOST,
    )


def _why_not(storage: Storage, expert: Expert) -> str:
    method = method_of(expert.method)
    if method.no_decoder_because:
        return f"is not a plain decoder: it {method.no_decoder_because}"
    if method.is_adapter and expert.seed is None:
        return "is an adapter whose seed model is deleted"
    if method.is_adapter and not allowed_rank(storage, expert):
        return f"is an adapter of a rank above {_RANKS[-1]}"
    return ""


def _rank(storage: Storage, expert: Expert) -> int:
    from safetensors import safe_open

    ranks = [1]
    for path in storage.path(expert.artifact_id).glob("*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            ranks += [file.get_slice(name).get_shape()[0] for name in file.keys() if name.endswith(".down")]  # noqa: SIM118
    return max(ranks)


def allowed_rank(storage: Storage, expert: Expert) -> int:
    """The least rank that vLLM can be started with for an adapter; 0 for an adapter of a greater one."""
    rank = _rank(storage, expert)
    return min((one for one in _RANKS if one >= rank), default=0)


def _server(
    storage: Storage,
    folder: Path,
    number: int,
    num_servers: int,
    model: str,
    dtype: str,
    adapters: Sequence[Expert],
) -> VllmServer:
    port, path = _FIRST_PORT + number, _place(folder, model)
    served = [ServedAdapter(name=adapter.name, folder=_place(folder, adapter.name)) for adapter in adapters]
    command = ["vllm", "serve", path, "--served-model-name", model, "--port", str(port), "--dtype", dtype]
    if num_servers > 1:
        command += ["--gpu-memory-utilization", f"{_GPU_PERCENT // num_servers / 100:.2f}"]
    if adapters:
        rank = max(allowed_rank(storage, adapter) for adapter in adapters)
        command += ["--enable-lora", "--max-loras", str(len(adapters)), "--max-lora-rank", str(rank)]
        command += ["--lora-modules", *(f"{one.name}={one.folder}" for one in served)]
    return VllmServer(model=model, folder=path, port=port, adapters=served, command=command)


def _place(folder: Path, name: str) -> str:
    """A folder for an expert; names that differ only in signs differ in their codes."""
    return str(folder / re.sub(r"[^A-Za-z0-9-]", lambda sign: f"_{ord(sign[0]):x}_" if sign[0] != "/" else "_", name))


def _script(config: ServeConfig) -> str:
    lines = ["#!/bin/sh", f"# {config.lost}", *(f"# Left out: {one.expert} {one.because}." for one in config.left_out)]
    lines += ["# Run it where the workbench runs; folders that exist are used as they are.", "set -e"]
    for server in config.servers:
        lines += [_export(server.model, server.folder, "hf")]
        lines += [_export(adapter.name, adapter.folder, "peft") for adapter in server.adapters]
    lines += [f"{shlex.join(server.command)} &" for server in config.servers]
    return "\n".join([*lines, "wait", ""])


def _export(expert: str, folder: str, format: str) -> str:
    command = shell_command("expert", "export", expert, folder, "--format", format, "--here")
    return f"[ -d {shlex.quote(folder)} ] || {command}"


@dataclass(frozen=True)
class ServedSeed:
    """A seed model for a vLLM server that is to load any of its adapters."""

    name: str
    sha256: str
    folder: Path
    dtype: str
    linear_maps: list[str]  # the names of those that adapters may change
    ranks: list[int]  # that the server must allow, one for each adapter of now


def served_seed(session: Session, storage: Storage, name: str = "") -> ServedSeed:
    """A seed model, by default the one with the most adapters. Raises NotFoundError; BadSpecError if there is none."""
    seeds = [seed_row(session, name)] if name else list(session.scalars(select(SeedModel)))
    if not seeds:
        raise BadSpecError(["The registry has no seed model. Add one first: workbench seed add --help"])
    ranked = [(seed, [allowed_rank(storage, one) for one in _adapters(session, seed)]) for seed in seeds]
    seed, ranks = max(ranked, key=lambda pair: (len(pair[1]), pair[0].created_at))
    folder = storage.path(seed.artifact_id)
    return ServedSeed(
        seed.name, seed.artifact.sha256, folder, dtype_of(folder), linear_maps(folder), [rank for rank in ranks if rank]
    )


def _adapters(session: Session, seed: SeedModel) -> list[Expert]:
    experts = session.scalars(select(Expert).where(Expert.base_id == seed.artifact_id))
    return [expert for expert in experts if method_of(expert.method).is_adapter]


def dtype_of(folder: Path) -> str:
    """The precision of a model's weights, in vLLM's words; its own choice would be float16 for float32."""
    stored = {piece.get_dtype() for _, piece in _tensors(folder)}
    return "float32" if "F32" in stored else "bfloat16" if "BF16" in stored else "float16"


def linear_maps(folder: Path) -> list[str]:
    """The names of the linear maps in layers, so that adapters are of them only.

    With an adapter of the output layer vLLM 0.32 cannot give the log-probabilities of prompts: it stops.
    """
    names = [name.split(".") for name, piece in _tensors(folder) if len(piece.get_shape()) == 2]
    return sorted({parts[-2] for parts in names if "layers" in parts and parts[-1] == "weight"})


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_slice(name)
