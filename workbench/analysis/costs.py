"""What a token costs a mixture, counted from the shape of its base: no weight is read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from sqlalchemy.orm import Session

from engine.config import ExpertsIn
from engine.files import ArtifactRef
from engine.methods.mode import flops as flops_of_mode
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.flops import Learning
from engine.models.flops import Shape, forward_flops, training_flops
from workbench.errors import StorageError
from workbench.generation import PlannedExpert, plan
from workbench.mixture_request import MixtureRequest
from workbench.registry.experts import MODE, part_names
from workbench.registry.tables import Expert
from workbench.store.storage import Storage


def mixture_costs(
    session: Session, storage: Storage, request: MixtureRequest | str, *, context: int = 256
) -> dict[str, Any]:
    """Operations (floating point, by `engine.models.flops`) per token of a context of so many tokens.

    `forward`: one expert (the first, where bases differ); `mixture`: all `num_experts` that take part, which is as many
    forward passes;
    `num_parts`: those of each expert that are computed in its pass (0 of one that is not of MoDE);
    `training`: forward and backward of one sequence's expert with everything shared, which is what the dense model
    costs; `adapting`: of one new expert (of MoDE the first part) with everything else frozen; `composing`: of MoDE's
    first expert, all its parts as `experts` that learn, or their `gates` alone (None of any other); `shape`: what was
    counted.
    """
    planned = plan(session, storage, request)
    rows = {one.id: session.get_one(Expert, one.id) for one in planned.experts}
    shapes = {base: _shape(planned.model, base) for base in planned.by_base()}
    forward = [_forward(shapes[one.base], one, rows[one.id], context) for one in planned.experts]
    shape, first = shapes[planned.base], planned.experts[0]
    return {
        "context": context,
        "num_experts": len(planned.experts),
        "num_parts": [len(part_names(rows[one.id])) for one in planned.experts],
        "forward": forward[0],
        "mixture": sum(forward),
        "training": training_flops(shape, context),
        "adapting": _adapting(shape, first, rows[first.id], context),
        "composing": _composing(shape, rows[first.id], context),
        "shape": asdict(shape),
    }


def _forward(shape: Shape, expert: PlannedExpert, row: Expert, context: int) -> int:
    if row.method == MODE:
        return flops_of_mode.forward_flops(shape, context, _parts(row))
    return forward_flops(shape, context) + 2 * _adapter_size(expert, row)


def _adapting(shape: Shape, expert: PlannedExpert, row: Expert, context: int) -> int:
    if row.method == MODE:
        return flops_of_mode.training_flops(shape, context, _parts(row)[:1])
    size = _adapter_size(expert, row)
    return training_flops(shape, context, only=_experts_in(expert.base.folder), adapter=size)


def _composing(shape: Shape, row: Expert, context: int) -> dict[Learning, int] | None:
    if row.method != MODE:
        return None
    return {what: flops_of_mode.training_flops(shape, context, _parts(row), what) for what in get_args(Learning)}


def _parts(row: Expert) -> list[ModeConfig]:
    return [ModeConfig(**part["shape"]) for part in row.config["parts"]]


def _experts_in(base: Path) -> ExpertsIn:
    """Where a base's experts are, as `engine.models.demix_files` wrote it down; read here without waking torch."""
    if not (base / "shared.safetensors").exists():  # a seed
        return "adapter"
    card = base / "base.json"
    found: ExpertsIn = json.loads(card.read_text(encoding="utf-8"))["experts_in"] if card.exists() else "ffn"
    return found


def _shape(mixture: str, base: ArtifactRef) -> Shape:
    path = base.folder / "config.json"
    try:
        return Shape.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise StorageError(f"The base of “{mixture}” must lie in {path.parent}, but does not.", "Restore it.") from None


def _adapter_size(expert: PlannedExpert, row: Expert) -> int:
    """What an adapter adds to its base; 0 for an expert that takes a place in it."""
    return row.num_parameters if _experts_in(expert.base.folder) == "adapter" else 0
