"""Compositions of MoDE experts: their parts, and why experts cannot be composed."""

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
from workbench.answers.parts import ExpertPart
from workbench.errors import BadSpec
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.experts import expert_row
from workbench.registry.tables import Expert, SeedModel
from workbench.store.storage import Storage


@dataclass(frozen=True)
class StoredPart:
    """A part as the config of an expert's row stores it."""

    name: str
    domain: str | None
    domains: list[str]
    of: str
    shape: dict[str, Any]


@dataclass(frozen=True)
class ModePart:
    """A part of a MoDE expert: layers and gates beside the backbone, first trained as an expert of their own."""

    name: str  # in the composition
    name_there: str  # in the source expert
    expert_id: str  # of the source expert
    domain: str | None  # of its first training; None if that was on several
    domains: tuple[str, ...]  # all that trained it, those of compositions included
    of: str  # id of the expert that it was first trained as
    shape: dict[str, Any]  # engine.methods.mode.config.ModeConfig

    def trained_on(self, domains: Sequence[str]) -> StoredPart:
        """The part once these domains trained it, too."""
        known = list(dict.fromkeys([*self.domains, *domains]))
        return StoredPart(self.name, self.domain, known, self.of, self.shape)


def composition(rows: Sequence[Expert], spec: ComposeMode) -> list[ModePart]:
    """The parts of these experts in order, without those left out. A repeated name gets a number.

    Raises BadSpec with every reason why they cannot be composed.
    """
    if complaints := _incompatible(rows):
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
    """The names of these experts' parts in a composition, in order."""
    return [part.name for part in _parts_of([expert_row(session, name) for name in experts])]


def parts_of(session: Session, storage: Storage, expert: str) -> list[ExpertPart]:
    """The parts of a MoDE expert, in their order."""
    row = expert_row(session, expert)
    sizes = part_sizes(storage.path(row.artifact_id))
    parts = []
    for part in row.config["parts"]:
        origin = session.get(Expert, part["of"] or row.id)
        parts.append(
            ExpertPart(
                name=part["name"],
                domains=part["domains"],
                origin=origin.name if origin else None,
                num_blocks=part["shape"]["num_blocks"],
                layers=part["shape"]["expert_layers"],
                num_parameters=sizes[part["name"]],
            )
        )
    return parts


def _too_few(rows: Sequence[Expert], left: Sequence[ModePart], spec: ComposeMode) -> list[str]:
    if not left:
        return ["All parts are left out of the composition: leave fewer out."]
    if len(left) == 1 and (spec.domains or not spec.without):
        return [f"The composition has only one part, “{left[0].name}”: add an expert of another domain."]
    if len(rows) == 1 and not spec.without and not spec.domains:
        return [
            f"“{rows[0].name}” is composed already: add an expert, leave a part out, or give domains to train it on."
        ]
    return []


def _parts_of(rows: Sequence[Expert]) -> list[ModePart]:
    parts: list[ModePart] = []
    for row in rows:
        for part in row.config["parts"]:
            name = _free(part["name"], {one.name for one in parts})
            parts.append(
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
    return parts


def _free(name: str, taken: Collection[str]) -> str:
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}-{number}"
    return free


_SAME_SEED = "train it from the same seed model"


def _incompatible(rows: Sequence[Expert]) -> list[str]:
    """The reasons why these experts cannot be composed with the first."""
    complaints = [
        f"“{row.name}” cannot be composed: its method is “{row.method}”, not MoDE."
        for row in rows
        if not method_of(row.method).has_parts
    ]
    if complaints:
        return complaints
    first = rows[0]
    for row in rows[1:]:
        if row.tokenizer_sha256 != first.tokenizer_sha256:
            complaints.append(f"“{row.name}” has another tokenizer than “{first.name}”: {_SAME_SEED}.")
        elif row.base.sha256 != first.base.sha256:
            problem = f"“{row.name}” must be trained on the backbone of “{first.name}”, but is on another"
            complaints.append(f"{problem}: {_SAME_SEED}.")
        elif num_blocks_of(row) != num_blocks_of(first):
            complaints.append(
                f"“{row.name}” has {num_blocks_of(row)} blocks, “{first.name}” has {num_blocks_of(first)}: train it "
                "again with as many."
            )
    return complaints


def num_blocks_of(row: Expert) -> int:
    """The number of blocks that a MoDE expert divides its backbone into."""
    return int(row.config["shape"]["num_blocks"])


def mode_complaints(session: Session, spec: TrainMode | ComposeMode) -> list[str]:
    """The reasons why a MoDE training is impossible, from what the registry knows."""
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
    """A complaint if a part would have the backbone's name."""
    if BACKBONE not in parts:
        return []
    return [
        f"A part is named after its domain, and “{BACKBONE}” is the backbone's name: import the text as a domain of "
        "another name."
    ]


def _too_many_blocks(seed: SeedModel, num_blocks: int) -> list[str]:
    num_layers = Shape.of(seed.config).num_layers
    if num_blocks <= num_layers:
        return []
    problem = f"Blocks of the backbone (--blocks) must be at most the {num_layers} layers of “{seed.name}”"
    return [f"{problem}, not {num_blocks}: choose fewer."]
