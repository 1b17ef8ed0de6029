"""Two clients that change one mixture: its ETag is its version, and a change with `If-Match` needs that version.

After RFC 9110, 13.1.1. Without the header a change is made to whatever the mixture is now.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from fastapi import Header
from starlette.responses import Response

from ui.api.deps import State, write
from workbench.answers.cards import MixtureCard
from workbench.registry.mixtures import require_version

P = ParamSpec("P")
T = TypeVar("T")

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="The ETag of the mixture to change; 412 if it was changed since."),
]
_ENTITY_TAG = re.compile(r'(W/)?"([^"]*)"')


def tagged(response: Response, card: MixtureCard) -> MixtureCard:
    """The card, whose version is the ETag of the response."""
    response.headers["ETag"] = f'"{card.version}"'
    return card


def write_if(
    if_match: str | None,
    state: State,
    change: Callable[Concatenate[Any, str, P], T],
    name: str,
    *arguments: P.args,
    **options: P.kwargs,
) -> T:
    """Changes a mixture in one transaction. Raises ChangedMeanwhileError if the header does not name it."""

    def changed(session: Any) -> T:
        if if_match is not None and if_match.strip() != "*":
            require_version(session, name, [tag for weak, tag in _ENTITY_TAG.findall(if_match) if not weak])
        return change(session, name, *arguments, **options)

    return write(state, changed)
