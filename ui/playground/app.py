"""The playground at /play: a prompt and two to four panes, each with a mixture or an expert, streaming side by side.

It generates in this process, in the same slots as the API, and stores only what the registry's history stores.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from ui.playground.address import CHAT, COMPLETION, SAMPLING
from ui.playground.arena import Arena, pairs_of
from ui.playground.arena_view import link_html, settings_html
from ui.playground.blocks import PlaygroundBlocks
from ui.playground.endpoints import add_endpoints
from ui.playground.gate import Gate
from ui.playground.grid import fill, fill_if_requested
from ui.playground.opening import FIRST_PROMPT, Opening
from ui.playground.player import Player
from ui.playground.rounds import LETTERS, Memory
from ui.playground.theme import theme
from ui.playground.view import CONTINUES, hint_html
from ui.present.charts.token_view import CSS, DRAW
from ui.present.forms.option_help import SAMPLING_HELP
from workbench.store.private_folder import GRADIO, temporary_folder

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ui.generation.app_state import AppState
    from workbench.answers.history import Choice

PATH = "/play"
HERE = Path(__file__).parent
PARTS_SENTENCE = "Layers beside a frozen backbone (MoDE). With no part selected, only the backbone is used."
WITHOUT_SENTENCE = "Scores the answer again without each expert and each part: one forward pass for each."
VALUES_SENTENCE = "In a chat: variables that the model's chat template reads, as a JSON object."
VOTES: dict[Choice, str] = {"a": "A", "b": "B", "tie": "Tie", "both_bad": "Both bad"}
IN_TURN = "(...values) => window.workbench.inTurn(values)"  # puts the number of the event in the last input
STOPPED = f"(...pages) => pages.map((page) => (page ?? '').replace('{CONTINUES}', '. Stopped.</p>'))"
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def mount(app: FastAPI, state: AppState) -> None:
    """Mounts the playground on the outermost application: on a nested one its streams stay empty."""
    os.environ[GRADIO] = str(temporary_folder(state.settings, GRADIO))  # else one of all users in the system's
    blocks = build(state)
    gr.mount_gradio_app(
        app,
        blocks,
        path=PATH,
        server_name=state.settings.host,
        server_port=state.settings.api_port,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        pwa=False,
        show_error=False,  # of an unexpected error, whose place is the log
        theme=theme(),
        css=CSS + _source("page.css"),
        js=f"() => {{\n{DRAW}\n({_source('page.js')})();\n}}",
    )
    mounted = next(one.app for one in app.routes if isinstance(one, Mount) and one.path == PATH)
    assert isinstance(mounted, Starlette)
    events = frozenset(number for number, event in blocks.fns.items() if event.fn is not None)
    mounted.user_middleware.append(Middleware(Gate, events=events))  # the innermost: within what compresses pages


def _source(name: str) -> str:
    """The text of a file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Pane:
    """The components of one pane."""

    model: gr.Dropdown
    chips: gr.HTML
    parts: gr.CheckboxGroup
    next: gr.HTML
    answer: gr.HTML
    again: gr.Button

    def inputs(self) -> list[Any]:
        """The inputs of a generation, in the order of `rounds.PaneRequest`."""
        return [self.model, self.chips, self.parts]

    def switches(self) -> list[Any]:
        """The components that depend on the model."""
        return [self.chips, self.parts]


@dataclass(frozen=True)
class ArenaParts:
    """The components of votes and history."""

    pair: gr.Radio
    votes: dict[Choice, gr.Button]
    ratings: gr.HTML
    link: gr.HTML
    search: gr.Textbox
    history: gr.HTML
    open_history: gr.Button


@dataclass(frozen=True)
class GridParts:
    """The components of the X/Y grid."""

    models: gr.Dropdown
    prompts: gr.Textbox
    run: gr.Button
    stop: gr.Button
    cells: gr.HTML

    def outputs(self) -> list[Any]:
        """What the page's address sets."""
        return [self.models, self.prompts, self.cells]


@dataclass(frozen=True)
class Page:
    """The components that all panes share."""

    answer_format: gr.Radio
    count: gr.Radio
    blind: gr.Checkbox
    notice: gr.HTML
    settings: gr.HTML
    turn: gr.Number
    copy: gr.Button
    legend: gr.HTML
    prompt: gr.Textbox
    generate: gr.Button
    stop: gr.Button
    sampling: list[Any]
    panes: list[Pane]
    memory: gr.State
    arena: ArenaParts
    grid: GridParts
    values: gr.Textbox

    def inputs(self) -> list[Any]:
        """The inputs of a generation, in the order of `rounds.Round.of`."""
        shared = [self.answer_format, self.count, self.blind, self.prompt, *self.sampling]
        return [*shared, *self.choices()]

    def choices(self) -> list[Any]:
        """The inputs of all panes."""
        return [component for pane in self.panes for component in pane.inputs()]

    def answers(self) -> list[gr.HTML]:
        """The components that the answers are written into."""
        return [pane.answer for pane in self.panes]


def build(state: AppState) -> gr.Blocks:
    """The page."""
    blocks = PlaygroundBlocks(title="Playground · Expert Workbench", analytics_enabled=False, fill_width=True)
    with blocks:
        page = _layout()
        _wire(Player(state), Opening(state), Arena(state), blocks, page)
        _wire_arena(Arena(state), page)
        _wire_grid(Player(state), page)
        add_endpoints(state)
    blocks.queue(default_concurrency_limit=None, api_open=False)
    return blocks


def _layout() -> Page:
    sampling, values = _sampling_drawer()
    search, history = _history_drawer()
    grid = _grid_drawer()
    with gr.Column(elem_id="play"):
        with gr.Row(elem_id="bar"):
            gr.HTML('<h1 id="brand">Expert Workbench <span>Playground</span></h1>', apply_default_css=False)
            answer_format = gr.Radio(
                [CHAT, COMPLETION], value=COMPLETION, label="Format", elem_id="format", elem_classes="segments"
            )
            count = gr.Radio([2, 3, 4], value=2, label="Panes", elem_id="count", elem_classes="segments")
            blind = gr.Checkbox(False, label="Blind", elem_id="blind")
            gr.HTML("", elem_classes="space")
            link = gr.HTML("", elem_id="permalink", apply_default_css=False)
            settings = gr.HTML("", elem_id="settings", apply_default_css=False)
            turn = gr.Number(0, visible=False)
            gr.Button("X/Y grid", size="sm", elem_id="open-grid").click(None, js=_drawer("grid"), **PRIVATE)
            open_history = gr.Button("History", size="sm", elem_id="open-history")
            open_history.click(None, js=_drawer("history"), **PRIVATE)
            gr.Button("Sampling", size="sm", elem_id="open-sampling").click(None, js=_drawer("sampling"), **PRIVATE)
            copy = gr.Button("Copy link", size="sm", elem_id="copy-link")
        notice = gr.HTML("", elem_id="notice", apply_default_css=False)
        legend = gr.HTML("", elem_id="legend", apply_default_css=False)
        shown = gr.Radio(list(LETTERS), value="A", label="Shown pane", elem_id="shown", elem_classes="segments")
        shown.change(None, shown, js="(letter) => { document.body.dataset.pane = letter; }", **PRIVATE)
        count.change(None, count, js="(number) => { document.body.dataset.panes = number; }", **PRIVATE)
        with gr.Row(elem_id="panes"):
            panes = [_pane(letter) for letter in LETTERS]
        with gr.Row(elem_id="vote"):
            gr.HTML('<span id="question">Which answer is better?</span>', apply_default_css=False)
            pair = gr.Radio(
                pairs_of(2), value="A–B", label="Pair", visible=False, elem_id="pair", elem_classes="segments"
            )
            votes: dict[Choice, gr.Button] = {
                choice: gr.Button(words, size="sm", elem_id=f"vote-{choice.replace('_', '-')}")
                for choice, words in VOTES.items()
            }
            ratings = gr.HTML("", elem_id="ratings", apply_default_css=False)
        with gr.Row(elem_id="ask"):
            prompt = gr.Textbox(
                FIRST_PROMPT, label="Prompt", show_label=False, lines=3, max_lines=3, elem_id="prompt", autofocus=True
            )
            with gr.Column(elem_id="go", min_width=110):
                generate = gr.Button("Generate", variant="primary", elem_id="generate", size="md")
                stop = gr.Button("Stop", elem_id="stop", size="md")
    memory = gr.State(Memory())
    arena = ArenaParts(pair, votes, ratings, link, search, history, open_history)
    shared = (answer_format, count, blind, notice, settings, turn, copy, legend, prompt, generate, stop)
    return Page(*shared, sampling, panes, memory, arena, grid, values)


def _drawer(name: str) -> str:
    """Opens or closes a drawer."""
    return f"() => window.workbench.drawer('{name}')"


def _sampling_drawer() -> tuple[list[Any], gr.Textbox]:
    """How tokens are drawn, in the order of `rounds.Round.of`; and what the chat template is given."""
    with gr.Sidebar("Sampling", position="right", open=False, elem_id="sampling", width=340):
        gr.HTML("<h2>Sampling</h2>", apply_default_css=False)
        *sliders, seed = SAMPLING
        drawn = [
            *map(_slider, sliders),
            gr.Number(
                SAMPLING[seed].usual, precision=0, minimum=0, label=SAMPLING[seed].label, info=SAMPLING_HELP[seed]
            ),
            gr.Checkbox(False, label="Ablation: leave out each expert and part", info=WITHOUT_SENTENCE),
        ]
        values = gr.Textbox(
            label="Chat template values", placeholder='{"enable_thinking": false}', info=VALUES_SENTENCE
        )
        return drawn, values


def _slider(name: str) -> gr.Slider:
    one = SAMPLING[name]
    return gr.Slider(one.lowest, one.highest, one.usual, step=one.step, label=one.label, info=SAMPLING_HELP[name])


def _history_drawer() -> tuple[gr.Textbox, gr.HTML]:
    with gr.Sidebar("History", position="left", open=False, elem_id="history", width=340):
        gr.HTML("<h2>History</h2>", apply_default_css=False)
        search = gr.Textbox(label="Search", placeholder="Words of a prompt or an answer")
        return search, gr.HTML("", elem_id="matches", apply_default_css=False)


def _grid_drawer() -> GridParts:
    with gr.Sidebar("X/Y grid", position="right", open=False, elem_id="grid", width="min(960px, 100vw)"):
        gr.HTML("<h2>X/Y grid</h2>", apply_default_css=False)
        models = gr.Dropdown([], multiselect=True, label="Mixtures and experts")
        prompts = gr.Textbox(
            label="Prompts, one in a line",
            placeholder="Every model answers every prompt: a row for each prompt, a column for each model.",
            lines=4,
            max_lines=8,
        )
        with gr.Row():
            run = gr.Button("Fill the grid", variant="primary", elem_id="fill-grid")
            stop = gr.Button("Stop filling", elem_id="stop-grid")
            gr.Button("Copy the grid's link", elem_id="copy-grid").click(
                None, js="() => window.workbench.gridLink()", **PRIVATE
            )
        return GridParts(models, prompts, run, stop, gr.HTML("", elem_id="cells", apply_default_css=False))


def _pane(letter: str) -> Pane:
    name = letter.lower()
    with gr.Column(min_width=200, elem_classes="pane", elem_id=f"pane-{name}"):
        with gr.Row(elem_classes="pane-head"):
            gr.HTML(f'<h2 class="letter">{letter}</h2>', apply_default_css=False)
            model = gr.Dropdown(
                [], label=f"{letter}: mixture or expert", container=False, elem_id=f"model-{name}", elem_classes="model"
            )
        chips = gr.HTML(
            {"experts": [], "open": False},
            html_template=_source("chips.html"),
            js_on_load=_source("chips.js"),
            elem_id=f"chips-{name}",
            apply_default_css=False,
        )
        parts = gr.CheckboxGroup([], label="Active parts", info=PARTS_SENTENCE, elem_classes="parts", visible=False)
        following = gr.HTML("", elem_id=f"next-{name}", elem_classes="following", apply_default_css=False)
        answer = gr.HTML(hint_html(), elem_classes="answer", elem_id=f"answer-{name}", apply_default_css=False)
        with gr.Row(elem_classes="pane-foot"):
            again = gr.Button("Regenerate", size="sm", elem_classes="link")
            gr.Button("Copy", size="sm", elem_classes="link").click(
                None, js=f"() => window.workbench.copy('{name}')", **PRIVATE
            )
    return Pane(model, chips, parts, following, answer, again)


def _wire(player: Player, opening: Opening, arena: Arena, blocks: gr.Blocks, page: Page) -> None:
    running = [*_wire_rounds(player, arena, page), *_wire_loading(player, opening, blocks, page)]
    answers = page.answers()
    stopping = page.stop.click(None, cancels=running, **PRIVATE)
    # What a browser shows stays there. The server answers first: by then the last token before the end has come.
    stopping.then(lambda: None, **PRIVATE).then(None, answers, answers, js=STOPPED, **PRIVATE)
    _wire_address(player, page)
    _wire_typing(player, page)
    given, outputs = [page.memory, page.values], [page.memory, page.notice]
    page.values.change(player.set_values, given, outputs, **PRIVATE)


def _wire_rounds(player: Player, arena: Arena, page: Page) -> list[Any]:
    """Connects the buttons that generate; returns the events that Stop cancels."""
    wanted, outputs = [page.memory, *page.inputs()], [*page.answers(), page.memory]
    choices = page.choices()
    # One event for all panes: the browser starts the second of two events only after the first has ended.
    running: list[Any] = [page.generate.click(player.play, wanted, outputs, trigger_mode="once", **PRIVATE)]
    page.generate.click(None, page.blind, js="(blind) => window.workbench.hide(blind)", **PRIVATE)
    for place, pane in enumerate(page.panes):
        running.append(pane.again.click(partial(player.play, only=place), wanted, outputs, **PRIVATE))
        leaving = pane.chips.select(partial(player.leave_out, place=place), [page.count, *choices], choices, **PRIVATE)
        running.append(leaving.then(partial(player.play, without_of=place), wanted, outputs, **PRIVATE))
    for one in running:
        stored = one.success(arena.store, wanted, [page.memory, page.arena.link, page.arena.ratings], **PRIVATE)
        # What was written while a round ran is not in its memory.
        stored.then(player.set_values, [page.memory, page.values], [page.memory, page.notice], **PRIVATE)
    return running


def _wire_loading(player: Player, opening: Opening, blocks: gr.Blocks, page: Page) -> list[Any]:
    """Connects loading from an address; returns the events that make a stored comparison, or a grid, again."""
    first = [page.memory, page.answer_format, page.count, page.prompt, *page.sampling[: len(SAMPLING)]]
    loading = blocks.load(opening.load, None, [*first, *page.choices(), page.notice, *page.grid.outputs()], **PRIVATE)
    loading.then(player.legend, page.inputs(), page.legend, **PRIVATE)
    loading.then(partial(_link, player), page.inputs(), page.settings, **PRIVATE)
    loading.then(None, js="() => window.workbench.openGrid()", **PRIVATE)
    replaying = loading.then(player.replay, page.memory, [*page.answers(), page.memory], **PRIVATE)
    replaying.success(lambda memory: link_html(memory.replayed), page.memory, page.arena.link, **PRIVATE)
    requested = [page.memory, page.grid.models, page.grid.prompts, *page.sampling]
    filling = loading.then(partial(fill_if_requested, player), requested, page.grid.cells, **PRIVATE)
    page.grid.stop.click(None, cancels=[filling], **PRIVATE)
    return [replaying, filling]


def _wire_address(player: Player, page: Page) -> None:
    """Connects what a user changes to the address of the page.

    Before typing is connected to the next tokens, which take longer: a browser sends the events of one change one after
    another. Answers may overtake each other, so each event has a number. Not `always_last`, as they are: a browser that
    defers two events of one change sends both without end.
    """
    inputs, settings = [*page.inputs(), page.turn], page.settings

    address = partial(_settings, player)
    switched = [component.input for pane in page.panes for component in pane.switches()]
    drawn = [one.input for one in page.sampling[: len(SAMPLING)]]
    written = [page.prompt.input, page.prompt.blur]  # what is pasted is no input to Gradio
    changed = [*written, page.answer_format.input, page.count.input, *switched, *drawn]
    gr.on(changed, address, inputs, settings, js=IN_TURN, trigger_mode="multiple", **PRIVATE)
    for pane in page.panes:  # in one event with its switches, which would be those of the model before
        chosen = pane.model.input(player.switches_of, pane.model, pane.switches(), **PRIVATE)
        chosen.then(address, inputs, settings, js=IN_TURN, **PRIVATE)
    copying = page.copy.click(partial(_link, player), page.inputs(), settings, **PRIVATE)
    copying.then(None, js="() => window.workbench.link()", **PRIVATE)


def _settings(player: Player, *values: Any) -> str:
    *wanted, turn = values
    return settings_html(player.address(*wanted), turn)


def _link(player: Player, *values: Any) -> str:
    return settings_html(player.address(*values))


def _wire_typing(player: Player, page: Page) -> None:
    """Connects typing, switches and sliders to the next-token weights; of many changes only the last is used."""
    inputs, panes = page.inputs(), page.panes
    models = [pane.model.change for pane in panes]
    typed = [page.prompt.input, *(pane.chips.input for pane in panes), *(pane.parts.input for pane in panes)]
    following = [pane.next for pane in panes]
    changed = [page.answer_format.change, page.count.change, page.blind.change, *models]
    gr.on([*typed, *changed], player.read_next, inputs, following, trigger_mode="always_last", **PRIVATE)
    shown = [page.count.change, *models]
    gr.on(shown, player.legend, inputs, page.legend, trigger_mode="always_last", **PRIVATE)


def _wire_arena(arena: Arena, page: Page) -> None:
    inputs, parts = page.inputs(), page.arena
    revealed = [page.memory, *page.answers(), *page.choices(), parts.ratings]
    for choice, button in parts.votes.items():
        vote = button.click(partial(arena.vote, choice), [page.memory, parts.pair, *inputs], revealed, **PRIVATE)
        vote.success(None, js="() => window.workbench.voted()", **PRIVATE)
    page.count.change(_pairs, page.count, parts.pair, **PRIVATE)
    gr.on(
        [parts.search.input, parts.open_history.click],
        arena.history,
        parts.search,
        parts.history,
        trigger_mode="always_last",
        **PRIVATE,
    )


def _pairs(count: int) -> Any:
    return gr.update(choices=pairs_of(count), value="A–B", visible=count > 2)


def _wire_grid(player: Player, page: Page) -> None:
    filling = page.grid.run.click(
        partial(fill, player), [page.grid.models, page.grid.prompts, *page.sampling], page.grid.cells, **PRIVATE
    )
    gr.on([page.stop.click, page.grid.stop.click], None, cancels=[filling], **PRIVATE)
    page.panes[0].model.change(lambda: gr.update(choices=player.names()), None, page.grid.models, **PRIVATE)
