"""The playground at /play: one prompt and two panes, each with a mixture or an expert, streaming side by side.

It generates in this process, in the same slots as the API, and holds no state.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.themes import LocalFont
from starlette.concurrency import run_in_threadpool

from engine.config import SamplingConfig
from engine.errors import Problem
from engine.events import Token
from ui.generation.ablation import without_each
from ui.generation.known_models import known_models
from ui.generation.merge_streams import merge_streams
from ui.playground.mode_gates import STYLE as STYLE_INSIDE
from ui.playground.view import INTRODUCTION, STYLE, Answer, answer_html, hint_html, problem_html, stopped_html
from ui.present.charts.colours import read_looks
from ui.present.next_step_text import problem_text
from ui.present.option_help import OPTION_HELP
from workbench.mixture_request import MixtureRequest

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ui.generation.app_state import AppState
    from workbench.answers.server import Model

PATH = "/play"
REDRAW_SECONDS = 0.12  # each redraw sends the full text again
FIRST_PROMPT = "import os\n\ndef main("
PROMPT_CHARACTERS = 80  # of held-out text
NO_MODELS = (
    "There is no mixture or expert yet. Train experts in the studio, or with "
    "`workbench train joint NAME --seed-model S --domains A,B`."
)
PARTS_SENTENCE = "Layers beside a frozen backbone (MoDE). With no part selected, only the backbone is used."
WITHOUT_SENTENCE = "Scores the answer again without each expert and each part: one forward pass for each."
log = logging.getLogger(__name__)


def mount(app: FastAPI, state: AppState) -> None:
    """Mounts the playground on the outermost application: on a nested one its streams stay empty."""
    gr.mount_gradio_app(
        app,
        build(state),
        path=PATH,
        server_name=state.settings.host,
        server_port=state.settings.api_port,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        pwa=False,
        show_error=True,
        max_file_size="1kb",  # the page accepts no files
        theme=_theme(),
        css=STYLE + STYLE_INSIDE,
    )


def _theme() -> gr.themes.Base:
    # The semi-bold cut of this font that Gradio ships lacks most letters; the bold one has them.
    font = LocalFont("Source Sans Pro", weights=(400, 700))
    return gr.themes.Default(
        primary_hue="cyan", neutral_hue="slate", font=[font, "ui-sans-serif", "system-ui", "sans-serif"]
    )


@dataclass(frozen=True)
class Pane:
    """The components of one pane."""

    model: gr.Dropdown
    experts: gr.CheckboxGroup
    max_tokens: gr.Slider
    temperature: gr.Slider
    seed: gr.Number
    go: gr.Button
    parts: gr.CheckboxGroup
    without: gr.Checkbox
    answer: gr.HTML

    def inputs(self) -> list[Any]:
        """The inputs of a generation, in the order of `Player.play`."""
        return [self.model, self.experts, self.max_tokens, self.temperature, self.seed, self.parts, self.without]

    def switches(self) -> list[Any]:
        """The components that depend on the model."""
        return [self.experts, self.parts]


def build(state: AppState) -> gr.Blocks:
    """The page."""
    page = gr.Blocks(title="Playground · Expert Workbench", analytics_enabled=False, fill_width=True)
    with page:
        gr.HTML(INTRODUCTION)
        prompt = gr.Textbox(FIRST_PROMPT, label="Prompt", lines=4, max_lines=12, elem_id="prompt")
        with gr.Row(elem_id="controls"):
            both = gr.Button("Generate both", variant="primary", scale=3)
            stop = gr.Button("Stop", variant="secondary", scale=1)
        with gr.Row(equal_height=False):
            panes = [_pane("Left"), _pane("Right")]
        _wire(Player(state), page, prompt, both, stop, panes)
    page.queue(default_concurrency_limit=None, api_open=False)
    return page


def _pane(side: str) -> Pane:
    with gr.Column(min_width=360, elem_classes="pane"):
        model = gr.Dropdown([], label=f"{side}: mixture or expert", elem_id=f"{side.lower()}-model")
        experts = gr.CheckboxGroup([], label="Experts", elem_classes="experts")
        parts = gr.CheckboxGroup([], label="Active parts", info=PARTS_SENTENCE, elem_classes="parts", visible=False)
        with gr.Accordion("Sampling", open=False):
            max_tokens = gr.Slider(1, 512, 96, step=1, label="Max tokens", info=OPTION_HELP["max_tokens"])
            temperature = gr.Slider(0, 2, 0.8, step=0.05, label="Temperature", info=OPTION_HELP["temperature"])
            seed = gr.Number(1, precision=0, minimum=0, label="Seed", info=OPTION_HELP["seed"])
        without = gr.Checkbox(False, label="Ablation: leave out each expert and part", info=WITHOUT_SENTENCE)
        go = gr.Button(f"Generate {side.lower()}", size="sm")
        answer = gr.HTML(hint_html(), elem_classes="answer", elem_id=f"{side.lower()}-answer")
    return Pane(model, experts, max_tokens, temperature, seed, go, parts, without, answer)


def _wire(
    player: Player, page: gr.Blocks, prompt: gr.Textbox, both: gr.Button, stop: gr.Button, panes: list[Pane]
) -> None:
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    # One event for both panes: the browser starts the second of two events only after the first has ended.
    inputs, answers = [prompt, *panes[0].inputs(), *panes[1].inputs()], [pane.answer for pane in panes]
    running: list[Any] = [
        trigger(player.play_both, inputs, answers, **private) for trigger in (both.click, prompt.submit)
    ]
    for pane in panes:
        running.append(pane.go.click(player.play, [prompt, *pane.inputs()], pane.answer, **private))
        pane.model.input(player.switches_of, pane.model, pane.switches(), **private)
    stopping = stop.click(None, cancels=running, **private)
    stopping.then(lambda *pages: [stopped_html(page or "") for page in pages], answers, answers, **private)
    choices = [component for pane in panes for component in (pane.model, *pane.switches())]
    page.load(player.load, None, [prompt, *choices], **private)


class Player:
    """Handles the events of the page."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def load(self, request: gr.Request) -> list[Any]:
        """The models that exist now; the address may give the prompt and both models."""
        try:
            models = known_models(self._state.settings)
        except Problem as problem:
            raise gr.Error(problem_text(problem)) from None
        if not models:
            gr.Info(NO_MODELS)
        query = dict(request.query_params)
        names = [model.id for model in models]
        choices = [(f"{model.id} ({model.kind})", model.id) for model in models]
        sides = _first_choice(models, query, self._mixtures())
        updates = [gr.update(value=query.get("prompt") or self._first_prompt(sides[0]))]
        for side in sides:
            known = side if side in names else None
            updates += [gr.update(choices=choices, value=known), *self.switches_of(known)]
        return updates

    def _mixtures(self) -> list[str]:
        """The names of all mixtures, the most useful first."""
        from workbench.registry.database import reading
        from workbench.registry.mixtures import most_useful_first

        with reading(self._state.settings) as session:
            return [card.name for card in most_useful_first(session)]

    def _first_prompt(self, model: str) -> str:
        """The start of held-out text of a mixture's first domain; the default prompt if there is none."""
        from workbench.analysis.sample_texts import example
        from workbench.registry.database import reading
        from workbench.store.storage import get_storage

        if model in self._mixtures():
            with suppress(Problem), reading(self._state.settings) as session:
                return example(session, get_storage(self._state.settings), model)[:PROMPT_CHARACTERS] or FIRST_PROMPT
        return FIRST_PROMPT

    def switches_of(self, model: str | None) -> list[Any]:
        """The experts of a model, the active ones selected, and the parts of experts that have parts."""
        match = next((one for one in known_models(self._state.settings) if one.id == model), None)
        members, ticked, parts = (match.members, match.experts, match.parts) if match else ([], [], {})
        choices = [
            (f"{expert}: {part}" if len(parts) > 1 else part, json.dumps([expert, part]))
            for expert, names in parts.items()
            for part in names
        ]
        return [
            gr.update(choices=members, value=ticked),
            gr.update(choices=choices, value=[value for _, value in choices], visible=bool(choices)),
        ]

    async def play(
        self,
        prompt: str,
        model: str | None,
        experts: list[str],
        max_tokens: float,
        temperature: float,
        seed: float | None,
        parts: Sequence[str] = (),
        without: bool = False,
    ) -> AsyncGenerator[str, None]:
        """The growing answer of one pane; `parts` are the selected ones of `switches_of`."""
        if not model:
            yield problem_html("Choose a mixture or an expert first.")
            return
        try:
            sampling = SamplingConfig(int(max_tokens), float(temperature), seed=None if seed is None else int(seed))
            request = MixtureRequest(model, experts, parts=await run_in_threadpool(self._active_parts, model, parts))
            async with aclosing(self._frames(request, prompt, sampling, without)) as frames:
                async for frame in frames:
                    yield frame
        except Problem as problem:
            yield problem_html(problem_text(problem))
        except Exception:
            log.exception("A generation of the playground failed.")
            yield problem_html("The server raised an unexpected error. See its log.")

    async def play_both(self, prompt: str, *inputs: Any) -> AsyncGenerator[list[Any], None]:
        """The answers of both panes at the same time; `inputs` are those of the left pane, then of the right pane."""
        middle = len(inputs) // 2
        panes = [self.play(prompt, *inputs[:middle]), self.play(prompt, *inputs[middle:])]
        async with aclosing(merge_streams(*panes)) as frames:
            async for place, frame in frames:
                yield [frame if place == index else gr.skip() for index in range(len(panes))]

    async def _frames(
        self, request: MixtureRequest, prompt: str, sampling: SamplingConfig, without: bool
    ) -> AsyncGenerator[str, None]:
        generations, slots = self._state.generations, self._state.slots
        plan = await run_in_threadpool(generations.plan, request)
        parts_of = await run_in_threadpool(self._all_experts)
        answer, drawn_at = (
            Answer(
                prompt, list(parts_of), plan.manifest(), read_looks(self._state.settings), parts=_with_some(parts_of)
            ),
            0.0,
        )
        yield answer_html(answer)
        started = time.monotonic()
        async with aclosing(slots.stream(lambda: generations.stream(plan, prompt, sampling))) as tokens:
            async for event in tokens:
                now = time.monotonic()
                answer = replace(answer.with_event(event), seconds=now - started)
                if not isinstance(event, Token) or now - drawn_at > REDRAW_SECONDS:
                    drawn_at = now
                    yield answer_html(answer)
        if without and answer.texts:
            async with aclosing(without_each(self._state, request, plan, answer.text)) as losses:
                async for one_less in losses:
                    answer = replace(answer, without=(*answer.without, one_less))
                    yield answer_html(answer)

    def _all_experts(self) -> dict[str, list[str]]:
        """Every expert with its parts, in a fixed order, so that each has the same colour in both panes."""
        models = known_models(self._state.settings)
        return {name: one.parts.get(name, []) for one in models for name in one.members}

    def _active_parts(self, model: str, ticked: Sequence[str]) -> dict[str, list[str]]:
        """The selected parts of each expert that has parts; there may be none."""
        known: dict[str, list[str]] = next(
            (one.parts for one in known_models(self._state.settings) if one.id == model), {}
        )
        pairs = [json.loads(one) for one in ticked]
        return {expert: [part for name, part in pairs if name == expert] for expert in known}


def _with_some(parts_of: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {expert: parts for expert, parts in parts_of.items() if parts}


def _first_choice(models: list[Model], query: dict[str, str], useful: Sequence[str]) -> tuple[str, str]:
    """The models given in the address; else the most useful mixture, beside a model with other experts."""
    experts = {model.id: model.experts for model in models}
    names = [*useful, *(name for name in experts if name not in useful)] or [""]
    left = query.get("left", names[0])
    own = experts.get(left, [])
    others = [name for name in names if name != left and experts.get(name) != own]
    # The first expert is that of the prompt: its text would be the same as that of the mixture.
    return left, query.get("right", next(iter([*own[:0:-1], *others]), left))
