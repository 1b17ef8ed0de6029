"""Gradio's page, each of whose events runs as the user who sent it.

Gradio runs events in a task of its own, which the server starts: there, the guard's actor of the request is unknown,
and the process itself would act, which may do everything.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from ui.serving.security import ACTOR
from workbench.access.actor import NOBODY, Actor, acting_as


class PlaygroundBlocks(gr.Blocks):
    """Blocks whose events act for the user that the guard found for their request."""

    async def process_api(self, *arguments: Any, **options: Any) -> Any:
        """Runs one step of an event, as Gradio does."""
        with acting_as(_sender(options.get("request"))):
            return await super().process_api(*arguments, **options)


def _sender(request: Any) -> Actor:
    """The user that the guard found for a request; nobody for an event without one."""
    if not isinstance(request, gr.Request) or request.request is None:
        return NOBODY
    actor: Actor = request.request.scope.get(ACTOR, NOBODY)
    return actor
