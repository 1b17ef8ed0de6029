"""The playground at /play: one prompt and two panes, each its own mixture or expert, streaming side by side.

It asks the weights of this very process, through the same slots as the API, and holds no state of its own.
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
from ui.api.models import known_models
from ui.api.schemas import SENTENCES
from ui.generation.ablation import without_each
from ui.generation.merge_streams import merge_streams
from ui.playground.mode_gates import STYLE as STYLE_INSIDE
from ui.playground.view import INTRODUCTION, STYLE, Spoken, answer_html, hint_html, problem_html, stopped_html
from ui.present.next_step_text import problem_text
from workbench.mixture_request import MixtureRequest

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ui.api.deps import AppState

PATH = "/play"
REDRAW_SECONDS = 0.12  # each redraw sends the whole text again
FIRST_PROMPT = "import os\n\ndef main("
PROMPT_CHARACTERS = 80  # of held-out text
NOTHING_HERE = (
    "There is no mixture or expert yet. Train some in the studio, or with "
    "`workbench train demix NAME --seed-model S --domains A,B`."
)
PARTS_SENTENCE = "Layers beside a frozen backbone (MoDE). With none ticked the backbone speaks alone."
WITHOUT_SENTENCE = "After the answer: reads it again without each expert and each part; a forward pass for each."
log = logging.getLogger(__name__)


def mount(app: FastAPI, house: AppState) -> None:
    """Puts the playground on the outermost application: on a nested one its streams stay empty."""
    gr.mount_gradio_app(
        app,
        build(house),
        path=PATH,
        server_name=house.settings.host,
        server_port=house.settings.api_port,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        pwa=False,
        show_error=True,
        max_file_size="1kb",  # nothing here takes files
        theme=_theme(),
        css=STYLE + STYLE_INSIDE,
    )


def _theme() -> gr.themes.Base:
    # Gradio's semi-bold cut of this font lacks most letters; the bold one has them. Both lie on this machine.
    font = LocalFont("Source Sans Pro", weights=(400, 700))
    return gr.themes.Default(
        primary_hue="cyan", neutral_hue="slate", font=[font, "ui-sans-serif", "system-ui", "sans-serif"]
    )


@dataclass(frozen=True)
class Pane:
    """The components of one side."""

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
        """What a generation reads, in the order of `Player.play`."""
        return [self.model, self.experts, self.max_tokens, self.temperature, self.seed, self.parts, self.without]

    def switches(self) -> list[Any]:
        """What a change of the model fills anew."""
        return [self.experts, self.parts]


def build(house: AppState) -> gr.Blocks:
    """The page."""
    page = gr.Blocks(title="Playground · Expert Workbench", analytics_enabled=False, fill_width=True)
    with page:
        gr.HTML(INTRODUCTION)
        prompt = gr.Textbox(FIRST_PROMPT, label="Prompt for both", lines=4, max_lines=12, elem_id="prompt")
        with gr.Row(elem_id="controls"):
            both = gr.Button("Generate both", variant="primary", scale=3)
            stop = gr.Button("Stop", variant="secondary", scale=1)
        with gr.Row(equal_height=False):
            panes = [_pane("Left"), _pane("Right")]
        _wire(Player(house), page, prompt, both, stop, panes)
    page.queue(default_concurrency_limit=None, api_open=False)
    return page


def _pane(side: str) -> Pane:
    with gr.Column(min_width=360, elem_classes="pane"):
        model = gr.Dropdown([], label=f"{side}: mixture or expert", elem_id=f"{side.lower()}-model")
        experts = gr.CheckboxGroup([], label="Experts that take part", elem_classes="experts")
        parts = gr.CheckboxGroup(
            [], label="Parts that are active", info=PARTS_SENTENCE, elem_classes="parts", visible=False
        )
        with gr.Accordion("How tokens are drawn", open=False):
            max_tokens = gr.Slider(1, 512, 96, step=1, label="Tokens at most", info=SENTENCES["max_tokens"])
            temperature = gr.Slider(0, 2, 0.8, step=0.05, label="Temperature", info=SENTENCES["temperature"])
            seed = gr.Number(1, precision=0, minimum=0, label="Seed", info=SENTENCES["seed"])
        without = gr.Checkbox(False, label="What would change without each?", info=WITHOUT_SENTENCE)
        go = gr.Button(f"Generate {side.lower()}", size="sm")
        answer = gr.HTML(hint_html(), elem_classes="answer", elem_id=f"{side.lower()}-answer")
    return Pane(model, experts, max_tokens, temperature, seed, go, parts, without, answer)


def _wire(
    player: Player, page: gr.Blocks, prompt: gr.Textbox, both: gr.Button, stop: gr.Button, panes: list[Pane]
) -> None:
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    # One event for both: the browser would begin the second of two events only after the first has ended.
    asked, answers = [prompt, *panes[0].inputs(), *panes[1].inputs()], [pane.answer for pane in panes]
    running: list[Any] = [
        trigger(player.play_both, asked, answers, **private) for trigger in (both.click, prompt.submit)
    ]
    for pane in panes:
        running.append(pane.go.click(player.play, [prompt, *pane.inputs()], pane.answer, **private))
        pane.model.input(player.switches_of, pane.model, pane.switches(), **private)
    stopping = stop.click(None, cancels=running, **private)
    stopping.then(lambda *pages: [stopped_html(page or "") for page in pages], answers, answers, **private)
    chosen = [one for pane in panes for one in (pane.model, *pane.switches())]
    page.load(player.begin, None, [prompt, *chosen], **private)


class Player:
    """Answers the page's events."""

    def __init__(self, house: AppState) -> None:
        self._house = house

    def begin(self, request: gr.Request) -> list[Any]:
        """The models there are now; the address may name the prompt and both sides."""
        try:
            models = known_models(self._house.settings)
        except Problem as problem:
            raise gr.Error(problem_text(problem)) from None
        if not models:
            gr.Info(NOTHING_HERE)
        asked = dict(request.query_params)
        names = [model["id"] for model in models]
        choices = [(f"{model['id']} ({model['kind']})", model["id"]) for model in models]
        sides = _first_choice(models, asked, self._mixtures())
        updates = [gr.update(value=asked.get("prompt") or self._first_prompt(sides[0]))]
        for side in sides:
            known = side if side in names else None
            updates += [gr.update(choices=choices, value=known), *self.switches_of(known)]
        return updates

    def _mixtures(self) -> list[str]:
        """The names of all mixtures, those that are worth opening first."""
        from workbench.registry.database import reading
        from workbench.registry.mixtures import most_useful_first

        with reading(self._house.settings) as session:
            return [card.name for card in most_useful_first(session)]

    def _first_prompt(self, model: str) -> str:
        """The beginning of held-out text of a mixture's first domain; the usual prompt where there is none."""
        from workbench.analysis.sample_texts import example
        from workbench.registry.database import reading
        from workbench.store.storage import get_storage

        if model in self._mixtures():
            with suppress(Problem), reading(self._house.settings) as session:
                return example(session, get_storage(self._house.settings), model)[:PROMPT_CHARACTERS] or FIRST_PROMPT
        return FIRST_PROMPT

    def switches_of(self, model: str | None) -> list[Any]:
        """The experts that a model can use, those that take part ticked; and the parts of those that have some."""
        found = next((one for one in known_models(self._house.settings) if one["id"] == model), None)
        members, ticked, parts = (found["members"], found["experts"], found["parts"]) if found else ([], [], {})
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
        """The answer of one pane, drawn again and again as it grows; `parts` are the ticked ones of `switches_of`."""
        if not model:
            yield problem_html("Choose a mixture or an expert first.")
            return
        try:
            sampling = SamplingConfig(int(max_tokens), float(temperature), seed=None if seed is None else int(seed))
            wish = MixtureRequest(model, experts, parts=await run_in_threadpool(self._active_parts, model, parts))
            async with aclosing(self._frames(wish, prompt, sampling, without)) as frames:
                async for frame in frames:
                    yield frame
        except Problem as problem:
            yield problem_html(problem_text(problem))
        except Exception:
            log.exception("A pane of the playground broke off.")
            yield problem_html("The server made a mistake; its log says more.")

    async def play_both(self, prompt: str, *asked: Any) -> AsyncGenerator[list[Any], None]:
        """The answers of both panes at the same time; `asked` are the inputs of the left one, then of the right one."""
        middle = len(asked) // 2
        panes = [self.play(prompt, *asked[:middle]), self.play(prompt, *asked[middle:])]
        async with aclosing(merge_streams(*panes)) as frames:
            async for place, frame in frames:
                yield [frame if place == one else gr.skip() for one in range(len(panes))]

    async def _frames(
        self, wish: MixtureRequest, prompt: str, sampling: SamplingConfig, without: bool
    ) -> AsyncGenerator[str, None]:
        generations, slots = self._house.generations, self._house.slots
        plan = await run_in_threadpool(generations.plan, wish)
        parts_of = await run_in_threadpool(self._all_experts)
        spoken, drawn_at = Spoken(prompt, list(parts_of), plan.manifest(), parts=_with_some(parts_of)), 0.0
        yield answer_html(spoken)
        began = time.monotonic()
        async with aclosing(slots.stream(lambda: generations.stream(plan, prompt, sampling))) as tokens:
            async for one in tokens:
                now = time.monotonic()
                spoken = replace(spoken.with_news(one), seconds=now - began)
                if not isinstance(one, Token) or now - drawn_at > REDRAW_SECONDS:
                    drawn_at = now
                    yield answer_html(spoken)
        if without and spoken.texts:
            async with aclosing(without_each(self._house, wish, plan, spoken.text)) as losses:
                async for one_less in losses:
                    spoken = replace(spoken, without=(*spoken.without, one_less))
                    yield answer_html(spoken)

    def _all_experts(self) -> dict[str, list[str]]:
        """Every expert with its parts, in one order, so that each has one colour in both panes."""
        models = known_models(self._house.settings)
        return {name: one["parts"].get(name, []) for one in models for name in one["members"]}

    def _active_parts(self, model: str, ticked: Sequence[str]) -> dict[str, list[str]]:
        """Of each expert of a model that has parts: those ticked, which may be none."""
        known: dict[str, list[str]] = next(
            (one["parts"] for one in known_models(self._house.settings) if one["id"] == model), {}
        )
        pairs = [json.loads(one) for one in ticked]
        return {expert: [part for name, part in pairs if name == expert] for expert in known}


def _with_some(parts_of: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {expert: parts for expert, parts in parts_of.items() if parts}


def _first_choice(models: list[dict[str, Any]], asked: dict[str, str], worth: Sequence[str]) -> tuple[str, str]:
    """The sides named in the address; else the mixture most worth opening, beside somebody who says something else."""
    experts = {model["id"]: model["experts"] for model in models}
    names = [*worth, *(name for name in experts if name not in worth)] or [""]
    left = asked.get("left", names[0])
    own = experts.get(left, [])
    others = [name for name in names if name != left and experts.get(name) != own]
    # The prompt's own expert, the first, would say the same as the mixture, and show nothing.
    return left, asked.get("right", next(iter([*own[:0:-1], *others]), left))
