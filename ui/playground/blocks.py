"""Gradio's page, each of whose events runs as the user who sent it and fails in words.

Gradio runs events in a task of its own, which the server starts: there, the guard's actor of the request is unknown,
and the process itself would act, which may do everything.
"""

from __future__ import annotations

import html
import logging
from typing import Any

import gradio as gr

from engine.errors import Problem
from ui.playground.gate import ENDPOINTS
from ui.present.next_step_text import problem_text
from ui.serving.security import ACTOR
from workbench.access.actor import NOBODY, Actor, acting_as

log = logging.getLogger(__name__)
UNUSABLE = "The playground cannot use what the page sent. Reload the page."


class PlaygroundBlocks(gr.Blocks):
    """Blocks whose events act for the user that the guard found for their request."""

    async def process_api(self, block_fn: Any, *arguments: Any, **options: Any) -> Any:
        """Runs one step of an event, as Gradio does. What goes wrong is a sentence, and never markup in the page."""
        try:
            with acting_as(_sender(options.get("request"))):
                return await super().process_api(block_fn, *arguments, **options)
        except gr.Error as error:
            message = str(error.message)
        except Problem as problem:
            message = problem_text(problem)
        except Exception:
            log.exception("An event of the playground failed.")
            message = "The server raised an unexpected error. See its log."
        is_for_programs = getattr(block_fn, "api_name", None) in ENDPOINTS
        raise gr.Error(message if is_for_programs else html.escape(message), print_exception=False)

    async def preprocess_data(self, *arguments: Any, **options: Any) -> Any:
        """The inputs of an event, as Gradio reads them; a browser may have sent anything."""
        try:
            return await super().preprocess_data(*arguments, **options)
        except Exception:
            raise gr.Error(UNUSABLE) from None


def _sender(request: Any) -> Actor:
    """The user that the guard found for a request; nobody for an event without one."""
    if not isinstance(request, gr.Request) or request.request is None:
        return NOBODY
    actor: Actor = request.request.scope.get(ACTOR, NOBODY)
    return actor
