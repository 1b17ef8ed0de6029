"""Put experts of MoDE side by side, and let their gates learn together (§3.2, stage 2). Makes expert and mixture.

What it is made of stays as it is: the composition has copies of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.device import choose_device
from engine.events import Event, Progress
from engine.files import Kept
from engine.mode.active import ActiveExperts, compose
from engine.mode.files import open_backbone, read_parts
from engine.text.tokenizer import load_tokenizer
from jobs.kinds.expert_files import keep_parts
from jobs.kinds.ids import made_by
from jobs.kinds.mode_training import registering, train_parts
from jobs.kinds.tokens import DomainFiles, domain_files
from jobs.work import Register, Work
from workbench.mode_specs import ComposeMode
from workbench.services.experts import expert_row
from workbench.services.modes import ModePart, composition, num_blocks_of
from workbench.services.names import ensure_free
from workbench.tables import Expert, Mixture


@dataclass(frozen=True)
class _Inputs:
    experts: dict[str, Kept]  # by id, in their order
    names: tuple[str, ...]  # of the experts
    parts: tuple[ModePart, ...]
    num_blocks: int
    base: Kept
    base_id: str
    seed_id: str | None
    domains: tuple[DomainFiles, ...]  # to train on now
    known: tuple[DomainFiles, ...]  # that train any part, now or before
    retained: tuple[DomainFiles, ...]


def run(work: Work, spec: ComposeMode) -> Generator[Event, None, Register]:
    """Reads the parts, trains them together where it is asked for, and keeps them as one expert."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    active = yield from _load(work, spec, inputs)
    tokenizer, loss = load_tokenizer(inputs.base.folder), None
    if spec.domains:
        loss = yield from train_parts(work, active, inputs.domains, inputs.retained, spec.training, tokenizer)
    expert = keep_parts(
        work, active, spec.expert, inputs.known,
        dev_loss=loss, base_sha256=str(inputs.base.sha256), tokenizer_sha256=tokenizer.sha256,
    )  # fmt: skip
    return registering(
        work, spec, expert, base_id=inputs.base_id, seed_id=inputs.seed_id, parent_id=next(iter(inputs.experts)),
        tokenizer_sha256=tokenizer.sha256, config=_config(spec, inputs, active),
    )  # fmt: skip


def _config(spec: ComposeMode, inputs: _Inputs, active: ActiveExperts) -> dict[str, Any]:
    return {
        "shape": {"num_blocks": inputs.num_blocks},
        "parts": [part.told(spec.domains) for part in inputs.parts],
        "composed_of": [{"id": id, "name": name} for id, name in zip(inputs.experts, inputs.names, strict=True)],
        "composed_on": spec.domains,
        "without": spec.without,
        "learning": active.learning if spec.domains else "nothing",
    }


def _load(work: Work, spec: ComposeMode, inputs: _Inputs) -> Generator[Event, None, ActiveExperts]:
    """The backbone with all parts beside it, every byte checked before use."""
    model = open_backbone(inputs.base, inputs.num_blocks).to(choose_device(work.settings.device))
    keys: list[str] = []
    for number, (id, kept) in enumerate(inputs.experts.items()):
        read = {part.name: part for part in read_parts(kept, str(inputs.base.sha256))}
        for part in (one for one in inputs.parts if one.expert_id == id):
            keys.append(f"part-{len(keys)}")
            model.add_expert(keys[-1], read[part.name_there].shape, read[part.name_there].state)
        yield Progress(number + 1, len(inputs.experts), "experts", "reading")
    id, names = made_by(work.job_id, "expert"), [part.name for part in inputs.parts]
    if spec.domains:
        return compose(model, keys, id, frozen=spec.frozen, names=names)
    return ActiveExperts(model, keys, id, names=names)


def _read(session: Session, work: Work, spec: ComposeMode) -> _Inputs:
    ensure_free(session, Mixture, "mixture", spec.name)
    ensure_free(session, Expert, "expert", spec.expert)
    rows = [expert_row(session, name) for name in spec.experts]
    parts = composition(rows, spec)
    names = dict.fromkeys([*(domain for part in parts for domain in part.domains), *spec.domains])
    files = {name: domain_files(session, work.storage, name) for name in [*names, *spec.retain]}
    return _Inputs(
        {row.id: work.storage.kept(row.artifact) for row in rows}, tuple(row.name for row in rows), tuple(parts),
        num_blocks_of(rows[0]), work.storage.kept(rows[0].base), rows[0].base_id, rows[0].seed_id,
        tuple(files[name] for name in spec.domains), tuple(files[name] for name in names),
        tuple(files[name] for name in spec.retain),
    )  # fmt: skip
