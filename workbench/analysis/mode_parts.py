"""Experts of MoDE side by side: which parts a composition has, and why some cannot be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.events import BACKBONE
from engine.methods.mode.sizes import part_sizes
from engine.methods.registry import method_of
from engine.models.flops import Shape
from workbench.errors import BadSpec
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.experts import expert_row
from workbench.registry.tables import Expert, SeedModel
from workbench.store.storage import Storage


@dataclass(frozen=True)
class ModePart:
    """A part of an expert of MoDE: layers and gates beside the backbone, trained as an expert of their own once."""

    name: str  # in the composition
    name_there: str  # in the expert that it is taken from
    expert_id: str  # of that one
    domain: str | None  # of its own first training; None where that was on several
    domains: tuple[str, ...]  # all that trained it, those of compositions included
    of: str  # id of the expert that it was trained as
    shape: dict[str, Any]  # engine.methods.mode.config.ModeConfig

    def as_config(self, domains: Sequence[str]) -> dict[str, Any]:
        """As an expert's row keeps it, once these domains trained it, too."""
        known = list(dict.fromkeys([*self.domains, *domains]))
        return {"name": self.name, "domain": self.domain, "domains": known, "of": self.of, "shape": self.shape}


def composition(rows: Sequence[Expert], spec: ComposeMode) -> list[ModePart]:
    """The parts of these experts, in their order, without those left out; of equal names the later ones are counted on.

    Raises BadSpec with every reason why they cannot stand side by side.
    """
    if complaints := _strangers(rows):
        raise BadSpec(complaints)
    parts = _parts_of(rows)
    names = [part.name for part in parts]
    complaints = [
        f"There is no part “{name}” to leave out; there is: {', '.join(names)}."
        for name in spec.without
        if name not in names
    ]
    left = [part for part in parts if part.name not in spec.without]
    complaints += _too_few(rows, left, spec)
    if complaints:
        raise BadSpec(complaints)
    return left


def part_names(session: Session, experts: Sequence[str]) -> list[str]:
    """What the parts of these experts are called side by side, in their order."""
    return [part.name for part in _parts_of([expert_row(session, name) for name in experts])]


def describe_parts(session: Session, storage: Storage, expert: str) -> list[dict[str, Any]]:
    """The parts of an expert of MoDE as {name, domains, origin, num_blocks, layers, num_parameters}.

    `origin` is the expert that a part was trained as (None: it is gone), `layers` are those of the part in a block.
    """
    row = expert_row(session, expert)
    sizes = part_sizes(storage.path(row.artifact_id))
    told = []
    for part in row.config["parts"]:
        origin = session.get(Expert, part["of"] or row.id)
        told.append(
            {
                "name": part["name"],
                "domains": part["domains"],
                "origin": origin.name if origin else None,
                "num_blocks": part["shape"]["num_blocks"],
                "layers": part["shape"]["expert_layers"],
                "num_parameters": sizes[part["name"]],
            }
        )
    return told


def _too_few(rows: Sequence[Expert], left: Sequence[ModePart], spec: ComposeMode) -> list[str]:
    if not left:
        return ["A composition must have at least one part left, but all are left out: leave fewer out."]
    if len(left) == 1 and (spec.domains or not spec.without):
        return [
            f"A composition must have at least two experts, but has “{left[0].name}” alone: add one of another domain."
        ]
    if len(rows) == 1 and not spec.without and not spec.domains:
        return [
            f"“{rows[0].name}” is composed already: add an expert, leave a part out, or give domains to train it on."
        ]
    return []


def _parts_of(rows: Sequence[Expert]) -> list[ModePart]:
    found: list[ModePart] = []
    for row in rows:
        for part in row.config["parts"]:
            name = _free(part["name"], {one.name for one in found})
            found.append(
                ModePart(
                    name,
                    part["name"],
                    row.id,
                    part["domain"],
                    tuple(part["domains"]),
                    part["of"] or row.id,
                    part["shape"],
                )
            )
    return found


def _free(name: str, taken: Collection[str]) -> str:
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}-{number}"
    return free


_SAME_SEED = "train it from the same seed model"


def _strangers(rows: Sequence[Expert]) -> list[str]:
    """Why each of these experts cannot stand beside the first."""
    complaints = [
        f"“{row.name}” must be an expert of MoDE to be composed, but is one of “{row.method}” instead."
        for row in rows
        if not method_of(row.method).has_parts
    ]
    if complaints:
        return complaints
    first = rows[0]
    for row in rows[1:]:
        if row.tokenizer_sha256 != first.tokenizer_sha256:
            complaints.append(f"“{row.name}” must share its tokenizer with “{first.name}”, but does not: {_SAME_SEED}.")
        elif row.base.sha256 != first.base.sha256:
            told = f"“{row.name}” must be trained on the backbone of “{first.name}”, but is on another"
            complaints.append(f"{told}: {_SAME_SEED}.")
        elif num_blocks_of(row) != num_blocks_of(first):
            complaints.append(
                f"“{row.name}” must divide the backbone into as many blocks as “{first.name}”, "
                f"{num_blocks_of(first)}, but has {num_blocks_of(row)}: train it again with as many."
            )
    return complaints


def num_blocks_of(row: Expert) -> int:
    """How many blocks an expert of MoDE divides its backbone into."""
    return int(row.config["shape"]["num_blocks"])


def mode_complaints(session: Session, spec: TrainMode | ComposeMode) -> list[str]:
    """Why such a training cannot be, as far as the registry knows what it begins from."""
    if isinstance(spec, TrainMode):
        seed = session.scalar(select(SeedModel).where(SeedModel.name == spec.seed_model))
        return [*_confused(spec.parts), *(_too_many_blocks(seed, spec.shape.num_blocks) if seed else [])]
    rows = {row.name: row for row in session.scalars(select(Expert).where(Expert.name.in_(spec.experts)))}
    if len(rows) < len(spec.experts):  # some are still to come
        return []
    try:
        composition([rows[name] for name in spec.experts], spec)
    except BadSpec as refusal:
        return refusal.complaints
    return []


def _confused(parts: Sequence[str]) -> list[str]:
    """That a part would be called what it stands beside."""
    if BACKBONE not in parts:
        return []
    return [
        f"A part is called as its domain, and must have another name than the backbone beside it, but is called "
        f"“{BACKBONE}”, too: import the text as a domain of another name."
    ]


def _too_many_blocks(seed: SeedModel, num_blocks: int) -> list[str]:
    num_layers = Shape.of(seed.config).num_layers
    if num_blocks <= num_layers:
        return []
    told = f"Blocks of the backbone (--blocks) must be at most the {num_layers} layers of “{seed.name}”"
    return [f"{told}, but is {num_blocks} instead: choose fewer."]
