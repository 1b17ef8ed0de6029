"""The playground at /play: a prompt and two to four panes, each with a mixture or an expert, streaming side by side.

It generates in this process, in the same slots as the API, and stores only what the registry's history stores.
"""

from __future__ import annotations

import html
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

from ui.addresses import public_studio_address
from ui.playground.address import CHAT, COMPLETION, SAMPLING
from ui.playground.arena import Arena, link_html, pairs_of, settings_html
from ui.playground.blocks import PlaygroundBlocks, add_endpoints, theme
from ui.playground.gate import EventGuard
from ui.playground.grid import fill, fill_if_requested
from ui.playground.opening import FIRST_PROMPT, Opening
from ui.playground.player import Player
from ui.playground.rounds import LETTERS, Memory
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
PARTS_SENTENCE = "Parts next to a frozen backbone (MoDE). With no part selected, only the backbone is used."
WITHOUT_SENTENCE = "Scores the answer again without each expert and each part: one forward pass for each."
VALUES_SENTENCE = "In a chat: variables that the model's chat template reads, as a JSON object."
SYSTEM_SENTENCE = "In a chat: the system message at the start of the conversation. Empty: a conversation keeps its own."
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
    mounted = next(route.app for route in app.routes if isinstance(route, Mount) and route.path == PATH)
    assert isinstance(mounted, Starlette)
    events = frozenset(number for number, event in blocks.fns.items() if event.fn is not None)
    mounted.user_middleware.append(Middleware(EventGuard, events=events))  # the innermost: within what compresses pages


def _source(name: str) -> str:
    """The text of a file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


class Pane:
    """The components of one pane."""

    def __init__(self, letter: str) -> None:
        name = letter.lower()
        with gr.Column(min_width=200, elem_classes="pane", elem_id=f"pane-{name}"):
            with gr.Row(elem_classes="pane-head"):
                gr.HTML(f'<h2 class="letter">{letter}</h2>', apply_default_css=False)
                label = f"{letter}: mixture or expert"
                self.model = gr.Dropdown(
                    [], label=label, container=False, elem_id=f"model-{name}", elem_classes="model"
                )
            self.chips = gr.HTML(
                {"experts": [], "open": False},
                html_template=_source("chips.html"),
                js_on_load=_source("chips.js"),
                elem_id=f"chips-{name}",
                apply_default_css=False,
            )
            self.parts = gr.CheckboxGroup(
                [], label="Active parts", info=PARTS_SENTENCE, elem_classes="parts", visible=False
            )
            self.next = _html(elem_id=f"next-{name}", elem_classes="following")
            self.answer = _html(hint_html(), elem_classes="answer", elem_id=f"answer-{name}")
            with gr.Row(elem_classes="pane-foot"):
                self.again = gr.Button("Regenerate", size="sm", elem_classes="link")
                copy = gr.Button("Copy", size="sm", elem_classes="link")
                copy.click(None, js=f"() => window.workbench.copy('{name}')", **PRIVATE)
                pictures = {
                    "png": gr.Button("PNG", size="sm", elem_classes="link"),
                    "svg": gr.Button("SVG", size="sm", elem_classes="link"),
                }
                for ending, save in pictures.items():
                    save.click(None, js=f"() => window.workbench.picture('{name}', '{ending}')", **PRIVATE)
        self.switches: list[Any] = [self.chips, self.parts]  # which depend on the model
        self.inputs: list[Any] = [self.model, *self.switches]  # of a generation, in the order of `rounds.PaneRequest`


def build(state: AppState) -> gr.Blocks:
    """The page."""
    blocks = PlaygroundBlocks(title="Playground · Expert Workbench", analytics_enabled=False, fill_width=True)
    with blocks:
        PlaygroundPage(state).wire(blocks)
        add_endpoints(state)
    blocks.queue(default_concurrency_limit=None, api_open=False)
    return blocks


class PlaygroundPage:
    """The components that all panes share, and the events of all."""

    def __init__(self, state: AppState) -> None:
        self._player, self._opening, self._arena = Player(state), Opening(state), Arena(state)
        self._studio = public_studio_address(state.settings)
        self._add_sampling_drawer()
        self._add_history_drawer()
        self._add_grid_drawer()
        with gr.Column(elem_id="play"):
            self._add_bar()
            self.notice = _html(elem_id="notice")
            self.legend = _html(elem_id="legend")
            shown = gr.Radio(list(LETTERS), value="A", label="Shown pane", elem_id="shown", elem_classes="segments")
            for name, choice in (("pane", shown), ("panes", self.count), ("format", self.answer_format)):
                choice.change(None, choice, js=f"(value) => {{ document.body.dataset.{name} = value; }}", **PRIVATE)
            with gr.Row(elem_id="panes"):
                self.panes = [Pane(letter) for letter in LETTERS]
            self._add_votes()
            with gr.Row(elem_id="ask"):
                self.prompt = gr.Textbox(
                    FIRST_PROMPT,
                    label="Prompt",
                    placeholder="Write a text to go on with, or in a chat a message",
                    show_label=False,
                    lines=3,
                    max_lines=3,
                    elem_id="prompt",
                    autofocus=True,
                )
                with gr.Column(elem_id="go", min_width=110):
                    self.generate = gr.Button("Generate", variant="primary", elem_id="generate", size="md")
                    self.stop = gr.Button("Stop", elem_id="stop", size="md")
        self.memory = gr.State(Memory())
        self.answers = [pane.answer for pane in self.panes]
        self.choices = [component for pane in self.panes for component in pane.inputs]
        # Of a generation, in the order of `rounds.Round.of`.
        fields = [self.answer_format, self.count, self.blind, self.prompt, self.system]
        self.inputs = [*fields, *self.sampling, *self.choices]

    def _add_sampling_drawer(self) -> None:
        """How tokens are drawn, in the order of `rounds.Round.of`; and what the chat template is given."""
        with gr.Sidebar("Sampling", position="right", open=False, elem_id="sampling", width=340):
            gr.HTML("<h2>Sampling</h2>", apply_default_css=False)
            *sliders, seed = SAMPLING.items()
            self.sampling: list[Any] = [
                gr.Slider(low, high, usual, step=step, label=label, info=SAMPLING_HELP[name])
                for name, (label, low, high, usual, step) in sliders
            ]
            name, setting = seed
            self.sampling += [
                gr.Number(setting.usual, precision=0, minimum=0, label=setting.label, info=SAMPLING_HELP[name]),
                gr.Checkbox(False, label="Ablation: leave out each expert and part", info=WITHOUT_SENTENCE),
            ]
            self.system = gr.Textbox(label="System prompt", lines=3, max_lines=8, info=SYSTEM_SENTENCE)
            self.values = gr.Textbox(
                label="Chat template values", placeholder='{"enable_thinking": false}', info=VALUES_SENTENCE
            )

    def _add_history_drawer(self) -> None:
        with gr.Sidebar("History", position="left", open=False, elem_id="history", width=340):
            gr.HTML("<h2>History</h2>", apply_default_css=False)
            self.search = gr.Textbox(label="Search", placeholder="Words of a prompt or an answer")
            self.history = _html(elem_id="matches")

    def _add_grid_drawer(self) -> None:
        with gr.Sidebar("X/Y grid", position="right", open=False, elem_id="grid", width="min(960px, 100vw)"):
            gr.HTML("<h2>X/Y grid</h2>", apply_default_css=False)
            self.grid_models = gr.Dropdown([], multiselect=True, label="Mixtures and experts")
            self.grid_prompts = gr.Textbox(
                label="Prompts, one in a line",
                placeholder="Every model answers every prompt: a row for each prompt, a column for each model.",
                lines=4,
                max_lines=8,
            )
            with gr.Row():
                self.fill_grid = gr.Button("Fill the grid", variant="primary", elem_id="fill-grid")
                self.stop_grid = gr.Button("Stop filling", elem_id="stop-grid")
                link = gr.Button("Copy the grid's link", elem_id="copy-grid")
                link.click(None, js="() => window.workbench.gridLink()", **PRIVATE)
            self.cells = _html(elem_id="cells")

    def _add_bar(self) -> None:
        with gr.Row(elem_id="bar"):
            studio = html.escape(self._studio, quote=True)
            brand = f'<h1 id="brand"><a href="{studio}">Expert Workbench</a> <span>Playground</span></h1>'
            gr.HTML(brand, apply_default_css=False)
            self.answer_format = gr.Radio(
                [CHAT, COMPLETION], value=COMPLETION, label="Format", elem_id="format", elem_classes="segments"
            )
            self.count = gr.Radio([1, 2, 3, 4], value=2, label="Panes", elem_id="count", elem_classes="segments")
            self.blind = gr.Checkbox(False, label="Blind", elem_id="blind")
            self.new_chat = gr.Button("New chat", size="sm", elem_id="new-chat")  # shown in a chat
            gr.HTML("", elem_classes="space")
            self.link = _html(elem_id="permalink")
            self.verify = gr.Button("Verify", size="sm", elem_id="verify")  # shown while a stored answer is
            self.settings = _html(elem_id="settings")
            self.turn = gr.Number(0, visible=False)
            _opening(gr.Button("X/Y grid", size="sm", elem_id="open-grid"), "grid")
            self.open_history = _opening(gr.Button("History", size="sm", elem_id="open-history"), "history")
            _opening(gr.Button("Sampling", size="sm", elem_id="open-sampling"), "sampling")
            self.copy = gr.Button("Copy link", size="sm", elem_id="copy-link")

    def _add_votes(self) -> None:
        with gr.Row(elem_id="vote"):
            gr.HTML('<span id="question">Which answer is better?</span>', apply_default_css=False)
            self.pair = gr.Radio(
                pairs_of(2), value="A–B", label="Pair", visible=False, elem_id="pair", elem_classes="segments"
            )
            self.votes: dict[Choice, gr.Button] = {
                choice: gr.Button(label, size="sm", elem_id=f"vote-{choice.replace('_', '-')}")
                for choice, label in VOTES.items()
            }
            self.ratings = _html(elem_id="ratings")

    def wire(self, blocks: gr.Blocks) -> None:
        """Connects all events."""
        running = [*self._wire_rounds(), *self._wire_loading(blocks)]
        stopping = self.stop.click(None, cancels=running, **PRIVATE)
        # What a browser shows stays there. The server answers first: by then the last token before the end has come.
        stopping.then(lambda: None, **PRIVATE).then(None, self.answers, self.answers, js=STOPPED, **PRIVATE)
        self._wire_address()
        self._wire_typing()
        given, outputs = [self.memory, self.values], [self.memory, self.notice]
        self.values.change(self._player.set_values, given, outputs, **PRIVATE)
        self._wire_arena()
        self._wire_grid()

    def _wire_rounds(self) -> list[Any]:
        """Connects the buttons that generate; returns the events that Stop cancels."""
        player, choices = self._player, self.choices
        wanted, outputs = [self.memory, *self.inputs], [*self.answers, self.memory, self.prompt]
        # One event for all panes: the browser starts the second of two events only after the first has ended.
        running: list[Any] = [self.generate.click(player.play, wanted, outputs, trigger_mode="once", **PRIVATE)]
        self.generate.click(None, self.blind, js="(blind) => window.workbench.hide(blind)", **PRIVATE)
        for index, pane in enumerate(self.panes):
            running.append(pane.again.click(partial(player.play, only=index), wanted, outputs, **PRIVATE))
            leave_out = partial(player.leave_out, index=index)
            leaving = pane.chips.select(leave_out, [self.count, *choices], [self.count, *choices], **PRIVATE)
            running.append(leaving.then(partial(player.play, without_of=index), wanted, outputs, **PRIVATE))
        for generation in running:
            stored = generation.success(self._arena.store, wanted, [self.memory, self.link, self.ratings], **PRIVATE)
            # What was written while a round ran is not in its memory.
            stored.then(player.set_values, [self.memory, self.values], [self.memory, self.notice], **PRIVATE)
            # A question that was sent leaves an empty field: the page's own change, not the user's.
            stored.then(self._address_html, self.inputs, self.settings, **PRIVATE)
        emptied = [self.memory, *self.answers, self.link, self.ratings]
        starting = self.new_chat.click(player.new_chat, self.memory, emptied, cancels=running, **PRIVATE)
        starting.then(None, js="() => window.workbench.newChat()", **PRIVATE)
        return running

    def _wire_loading(self, blocks: gr.Blocks) -> list[Any]:
        """Connects loading from an address; returns the events that generate a stored comparison, or a grid, again."""
        player, grid = self._player, [self.grid_models, self.grid_prompts]
        fields = [self.answer_format, self.count, self.prompt, self.system]
        outputs = [self.memory, *fields, *self.sampling[: len(SAMPLING)], *self.choices, self.notice, *grid, self.cells]
        loading = blocks.load(self._opening.load, None, outputs, **PRIVATE)
        loading.then(player.legend, self.inputs, self.legend, **PRIVATE)
        loading.then(self._address_html, self.inputs, self.settings, **PRIVATE)
        loading.then(None, js="() => window.workbench.openGrid()", **PRIVATE)
        answered = [*self.answers, self.memory]
        showing = loading.then(self._opening.show_stored, self.memory, answered, **PRIVATE)
        showing.success(lambda memory: link_html(memory.replayed), self.memory, self.link, **PRIVATE)
        replaying = self.verify.click(player.replay, self.memory, answered, trigger_mode="once", **PRIVATE)
        requested = [self.memory, *grid, *self.sampling]
        filling = loading.then(partial(fill_if_requested, player), requested, self.cells, **PRIVATE)
        self.stop_grid.click(None, cancels=[filling], **PRIVATE)
        return [replaying, filling]

    def _wire_address(self) -> None:
        """Connects what a user changes to the address of the page.

        Before typing is connected to the next tokens, which take longer: a browser sends the events of one change one
        after another. Answers may overtake each other, so each event has a number. Not `always_last`, as they are: a
        browser that defers two events of one change sends both without end.
        """
        inputs, settings = [*self.inputs, self.turn], self.settings
        switched = [component.input for pane in self.panes for component in pane.switches]
        drawn = [component.input for component in self.sampling[: len(SAMPLING)]]
        # What is pasted is not an input to Gradio.
        written = [event for field in (self.prompt, self.system) for event in (field.input, field.blur)]
        changed = [*written, self.answer_format.input, self.count.input, *switched, *drawn]
        gr.on(changed, self._turn_html, inputs, settings, js=IN_TURN, trigger_mode="multiple", **PRIVATE)
        for pane in self.panes:  # in one event with its switches, which would be those of the model before
            chosen = pane.model.input(self._player.switches_of, pane.model, pane.switches, **PRIVATE)
            chosen.then(self._turn_html, inputs, settings, js=IN_TURN, **PRIVATE)
        copying = self.copy.click(self._address_html, self.inputs, settings, **PRIVATE)
        copying.then(None, js="() => window.workbench.link()", **PRIVATE)

    def _turn_html(self, *values: Any) -> str:
        *wanted, turn = values
        return settings_html(self._player.address(*wanted), turn)

    def _address_html(self, *values: Any) -> str:
        return settings_html(self._player.address(*values))

    def _wire_typing(self) -> None:
        """Connects typing, switches and sliders to the next-token weights; of many changes only the last is used."""
        inputs, panes = self.inputs, self.panes
        models = [pane.model.change for pane in panes]
        typed = [self.prompt.change, *(pane.chips.input for pane in panes), *(pane.parts.input for pane in panes)]
        changed = [self.answer_format.change, self.count.change, self.blind.change, *models]
        last: dict[str, Any] = {"trigger_mode": "always_last", **PRIVATE}
        gr.on([*typed, *changed], self._player.read_next, inputs, [pane.next for pane in panes], **last)
        gr.on([self.count.change, *models], self._player.legend, inputs, self.legend, **last)

    def _wire_arena(self) -> None:
        arena = self._arena
        revealed = [self.memory, *self.answers, *self.choices, self.ratings]
        for choice, button in self.votes.items():
            wanted = [self.memory, self.pair, *self.inputs]
            vote = button.click(partial(arena.vote, choice), wanted, revealed, **PRIVATE)
            vote.success(None, js="() => window.workbench.voted()", **PRIVATE)
        self.count.change(_pairs_update, self.count, self.pair, **PRIVATE)
        self.pair.change(arena.ratings, [self.memory, self.pair], self.ratings, **PRIVATE)
        searched = [self.search.input, self.open_history.click]
        gr.on(searched, arena.history, self.search, self.history, trigger_mode="always_last", **PRIVATE)

    def _wire_grid(self) -> None:
        wanted = [self.grid_models, self.grid_prompts, *self.sampling]
        filling = self.fill_grid.click(partial(fill, self._player), wanted, self.cells, **PRIVATE)
        gr.on([self.stop.click, self.stop_grid.click], None, cancels=[filling], **PRIVATE)
        names = self._player.names
        self.panes[0].model.change(lambda: gr.update(choices=names()), None, self.grid_models, **PRIVATE)


def _html(value: str = "", **settings: Any) -> gr.HTML:
    return gr.HTML(value, apply_default_css=False, **settings)


def _opening(button: gr.Button, drawer: str) -> gr.Button:
    """The button, which opens or closes a drawer."""
    button.click(None, js=f"() => window.workbench.drawer('{drawer}')", **PRIVATE)
    return button


def _pairs_update(count: int) -> Any:
    return gr.update(choices=pairs_of(count), value="A–B", visible=count > 2)
