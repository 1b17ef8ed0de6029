"""Operations per token of a mixture (`engine.models.flops`), counted from its base's shape without reading weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from sqlalchemy.orm import Session

from engine.config import MOST_TOKENS
from engine.files import reading_own
from engine.methods.base import StoredExpert
from engine.methods.registry import method_of
from engine.models.flops import Shape, training_flops
from workbench.answers.base import Answer
from workbench.errors import StorageError
from workbench.questions.question import MixtureName, Question
from workbench.registry.experts import expert_with_id, part_names
from workbench.requests.planning import plan
from workbench.store.storage import Storage


class MixtureCosts(Answer):
    """Operations per token of a mixture, of one of its experts, and of training one."""

    context: int = Field(description="Tokens of context.")
    num_experts: int = Field(description="Active experts.")
    num_parts: list[int] = Field(description="Of each expert: the parts computed in its pass; 0 without parts.")
    forward: int = Field(description="One expert: the first, where bases differ.")
    mixture: int = Field(description="All active experts: one forward pass each.")
    training: int = Field(description="One sequence's expert with everything shared, as the dense model.")
    adapting: int = Field(description="One new expert (with parts: the first part), everything else frozen.")
    composing: dict[str, int] | None = Field(
        description="The first expert, by what learns: its parts (`experts`) or their `gates`. None without parts."
    )
    shape: Shape = Field(description="The decoder that was counted.")


class CostRequest(Question[MixtureCosts]):
    """Floating-point operations per token, of one expert, of the mixture and of its training."""

    path = "cost"

    mixture: MixtureName
    context: int = Field(256, ge=1, le=MOST_TOKENS, description="Tokens of context.")

    def answer(self, session: Session, storage: Storage) -> MixtureCosts:
        planned = plan(session, storage, self.mixture)
        return expert_costs(
            session, storage, planned.model, [expert.id for expert in planned.experts], context=self.context
        )


QUESTION = CostRequest


def expert_costs(
    session: Session, storage: Storage, mixture: str, expert_ids: Sequence[str], *, context: int = 256
) -> MixtureCosts:
    """The costs of these experts of a mixture, without reading the mixture."""
    rows = [expert_with_id(session, id) for id in expert_ids]
    bases = {row.base_id: storage.path(row.base_id) for row in rows}
    shapes = {id: _shape(mixture, folder) for id, folder in bases.items()}
    methods = [method_of(row.method) for row in rows]
    stored = [StoredExpert(row.num_parameters, row.config) for row in rows]
    forward = [
        method.forward_flops(shapes[row.base_id], context, expert)
        for row, method, expert in zip(rows, methods, stored, strict=True)
    ]
    shape = shapes[rows[0].base_id]
    return MixtureCosts(
        context=context,
        num_experts=len(rows),
        num_parts=[len(part_names(row)) for row in rows],
        forward=forward[0],
        mixture=sum(forward),
        training=training_flops(shape, context),
        adapting=methods[0].adapting_flops(shape, context, stored[0]),
        composing=methods[0].composing_flops(shape, context, stored[0]),
        shape=shape,
    )


def _shape(mixture: str, base: Path) -> Shape:
    path = base / "config.json"
    if not path.is_file():
        raise StorageError(f"The base of “{mixture}” is missing: {path.parent}.", "Restore it.")
    with reading_own(str(path)):
        return Shape.of(json.loads(path.read_text(encoding="utf-8")))
