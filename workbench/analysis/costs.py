"""Operations per token of a mixture, counted from the shape of its base without reading weights."""

from __future__ import annotations

import json

from sqlalchemy.orm import Session

from engine.files import ArtifactRef
from engine.methods.base import StoredExpert
from engine.methods.registry import method_of
from engine.models.flops import Shape, training_flops
from workbench.answers.costs import MixtureCosts
from workbench.errors import StorageError
from workbench.mixture_request import MixtureRequest
from workbench.registry.experts import part_names
from workbench.requests.planning import plan
from workbench.store.storage import Storage
from workbench.tables import Expert


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
