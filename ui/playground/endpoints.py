"""Named endpoints of the playground for programs such as gradio_client: what a pane generates, without the page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from gradio.events import api
from starlette.concurrency import run_in_threadpool

from engine.config import SamplingConfig
from ui.errors import BadUsageError
from ui.generation.known_models import known_models
from workbench.specs.requests import MixtureRequest

if TYPE_CHECKING:
    from ui.generation.app_state import AppState


def add_endpoints(state: AppState) -> None:
    """Adds `/models` and `/generate` to the page that is being built."""

    def models() -> list[str]:
        """The names of all mixtures and enabled experts."""
        return [model.id for model in known_models(state.settings)]

    async def generate(
        model: str,
        prompt: str,
        max_tokens: int = 96,
        temperature: float = 0.8,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int = 1,
    ) -> AsyncGenerator[str, None]:
        """The text that a mixture or an expert writes on from a prompt, as it grows."""
        if not (isinstance(model, str) and isinstance(prompt, str)):
            raise BadUsageError("model and prompt are texts.")
        sampling = _sampling(max_tokens, temperature, top_p, seed, top_k)
        async with aclosing(_texts(state, model, prompt, sampling)) as texts:
            async for text in texts:
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


async def _texts(state: AppState, model: str, prompt: str, sampling: SamplingConfig) -> AsyncGenerator[str, None]:
    """The growing text without the prompt."""
    generations, text = state.generations, ""
    plan = await run_in_threadpool(generations.plan, MixtureRequest(model))
    async with aclosing(state.slots.stream(lambda: generations.stream(plan, prompt, sampling))) as tokens:
        async for event in tokens:
            text += event.text
            yield text
