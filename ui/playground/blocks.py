"""Gradio's page, each of whose events runs as the user who sent it and fails with a sentence.

Gradio runs events in a task of its own, which the server starts: there, the guard's actor of the request is unknown,
and the process itself would act, which may do everything.
"""

from __future__ import annotations

import html
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.events import api
from gradio.themes import LocalFont
from starlette.concurrency import run_in_threadpool

from engine.config import SamplingConfig
from engine.errors import Problem
from ui.errors import BadUsageError
from ui.generation.known_models import known_models
from ui.playground.address import SAMPLING
from ui.playground.gate import ENDPOINTS
from ui.present.next_step_text import problem_text
from ui.serving.security import ACTOR
from workbench.access.actor import NOBODY, Actor, acting_as
from workbench.specs.requests import MixtureRequest

if TYPE_CHECKING:
    from ui.generation.app_state import AppState


# Light and dark, as in the studio's config.toml; docs/design/README.md has the contrast of all pairs.
COLOURS = {
    "body_background_fill": ("#ffffff", "#171614"),
    "background_fill_primary": ("#ffffff", "#171614"),
    "background_fill_secondary": ("#f8f8f7", "#21201d"),
    "block_background_fill": ("#ffffff", "#171614"),
    "input_background_fill": ("#f8f8f7", "#21201d"),
    "input_placeholder_color": ("#5f5c57", "#b3aea6"),
    "body_text_color": ("#2f2d2b", "#edebe8"),
    "body_text_color_subdued": ("#5f5c57", "#b3aea6"),
    "block_info_text_color": ("#5f5c57", "#b3aea6"),
    "block_label_text_color": ("#2f2d2b", "#edebe8"),
    "block_title_text_color": ("#2f2d2b", "#edebe8"),
    "border_color_primary": ("#dedbd6", "#3d3a36"),
    "block_border_color": ("#dedbd6", "#3d3a36"),
    "input_border_color": ("#dedbd6", "#3d3a36"),
    "border_color_accent": ("#0b6e8a", "#5cc0dc"),
    "color_accent_soft": ("#e2f1f5", "#14333d"),
    "slider_color": ("#0b6e8a", "#5cc0dc"),
    "link_text_color": ("#0b6e8a", "#5cc0dc"),
    "button_primary_background_fill": ("#0b6e8a", "#5cc0dc"),
    "button_primary_background_fill_hover": ("#095a71", "#7fd0e6"),
    "button_primary_text_color": ("#ffffff", "#0e1a1e"),
    "button_secondary_background_fill": ("#ffffff", "#171614"),
    "button_secondary_background_fill_hover": ("#f3f1ee", "#2b2925"),
    "button_secondary_text_color": ("#2f2d2b", "#edebe8"),
    "button_secondary_border_color": ("#dedbd6", "#3d3a36"),
    "checkbox_background_color_selected": ("#0b6e8a", "#5cc0dc"),
    "checkbox_border_color_selected": ("#0b6e8a", "#5cc0dc"),
    "checkbox_border_color": ("#8a867f", "#8d8880"),
    "error_background_fill": ("#fdeceb", "#3a1714"),
    "error_border_color": ("#a3261c", "#ff9c92"),
    "error_text_color": ("#a3261c", "#ff9c92"),
}


def theme() -> gr.themes.Base:
    """The theme."""
    # The semi-bold cut of this font that Gradio ships lacks most letters; the bold one has them.
    font = LocalFont("Source Sans Pro", weights=(400, 700))
    base = gr.themes.Base(
        font=[font, "ui-sans-serif", "system-ui", "sans-serif"], text_size="md", radius_size="sm", spacing_size="sm"
    )
    values = {name: light for name, (light, _) in COLOURS.items()}
    return base.set(**values, **{f"{name}_dark": dark for name, (_, dark) in COLOURS.items()})


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
            title, message = "Not done", str(error.message)
        except Problem as problem:
            title, message = "Not done", problem_text(problem)
        except Exception:
            log.exception("An event of the playground failed.")
            title, message = "Error", "The server raised an unexpected error. See its log."
        is_for_programs = getattr(block_fn, "api_name", None) in ENDPOINTS
        raise gr.Error(message if is_for_programs else html.escape(message), title=title, print_exception=False)

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


def add_endpoints(state: AppState) -> None:
    """Adds `/models` and `/generate` to the page that is being built."""
    usual: dict[str, Any] = {name: setting.usual for name, setting in SAMPLING.items()}

    def models() -> list[str]:
        """The names of all mixtures and enabled experts."""
        return [model.id for model in known_models(state.settings)]

    async def generate(
        model: str,
        prompt: str,
        max_tokens: int = usual["max_tokens"],
        temperature: float = usual["temperature"],
        top_p: float = usual["top_p"],
        top_k: int = usual["top_k"],
        seed: int = usual["seed"],
    ) -> AsyncGenerator[str, None]:
        """The text that a mixture or an expert writes on from a prompt, as it grows; without the prompt."""
        if not (isinstance(model, str) and isinstance(prompt, str)):
            raise BadUsageError("model and prompt are texts.")
        sampling = _sampling(max_tokens, temperature, top_p, seed, top_k)
        generations, text = state.generations, ""
        plan = await run_in_threadpool(generations.plan, MixtureRequest(model))
        async with aclosing(state.slots.stream(lambda: generations.stream(plan, prompt, sampling))) as tokens:
            async for event in tokens:
                text += event.text
                yield text

    api(models, api_name="models")
    api(generate, api_name="generate", concurrency_limit=None)


def _sampling(max_tokens: Any, temperature: Any, top_p: Any, seed: Any, top_k: Any) -> SamplingConfig:
    """The settings of a client, which sends what it likes."""
    try:
        numbers = int(max_tokens), float(temperature), float(top_p), int(seed), int(top_k)
    except (TypeError, ValueError, OverflowError):
        raise BadUsageError("max_tokens, top_k and seed are whole numbers, temperature and top_p numbers.") from None
    return SamplingConfig(*numbers)
