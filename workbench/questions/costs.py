"""Operations per token of a mixture, counted from the shape of its base without reading weights."""

from __future__ import annotations

import json

from pydantic import Field
from sqlalchemy.orm import Session

from engine.config import MOST_TOKENS
from engine.files import ArtifactRef
from engine.methods.base import StoredExpert
from engine.methods.registry import method_of
from engine.models.flops import Shape, training_flops
from workbench.answers.base import Answer
from workbench.errors import StorageError
from workbench.mixture_request import MixtureRequest
from workbench.questions.question import MixtureName, Question
from workbench.registry.experts import part_names
from workbench.requests.generation import plan
from workbench.store.storage import Storage
from workbench.tables import Expert


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
        return mixture_costs(session, storage, self.mixture, context=self.context)


QUESTION = CostRequest


def mixture_costs(
    session: Session, storage: Storage, request: MixtureRequest | str, *, context: int = 256
) -> MixtureCosts:
    """Floating-point operations per token (by `engine.models.flops`) in a context of this many tokens."""
    planned = plan(session, storage, request)
    rows = {one.id: session.get_one(Expert, one.id) for one in planned.experts}
    shapes = {base: _shape(planned.model, base) for base in planned.by_base()}
    methods = {id: method_of(row.method) for id, row in rows.items()}
    stored = {id: StoredExpert(row.num_parameters, row.config) for id, row in rows.items()}
    forward = [methods[one.id].forward_flops(shapes[one.base], context, stored[one.id]) for one in planned.experts]
    shape, first = shapes[planned.base], planned.experts[0].id
    return MixtureCosts(
        context=context,
        num_experts=len(planned.experts),
        num_parts=[len(part_names(rows[one.id])) for one in planned.experts],
        forward=forward[0],
        mixture=sum(forward),
        training=training_flops(shape, context),
        adapting=methods[first].adapting_flops(shape, context, stored[first]),
        composing=methods[first].composing_flops(shape, context, stored[first]),
        shape=shape,
    )


def _shape(mixture: str, base: ArtifactRef) -> Shape:
    path = base.folder / "config.json"
    try:
        return Shape.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise StorageError(f"The base of “{mixture}” is missing: {path.parent}.", "Restore it.") from None
