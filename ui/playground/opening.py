"""What the playground opens with: what its address asks for, else the most useful models and a prompt of their text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gradio as gr

from engine.config import SamplingConfig
from engine.errors import Problem
from engine.events import Done
from ui.generation.known_models import known_models
from ui.playground.address import (
    CHAT,
    COMPARISON,
    COMPLETION,
    FORMAT,
    OFF,
    PANES,
    SAMPLING,
    SET,
    PlaygroundAddress,
    read_address,
)
from ui.playground.player import Player, StoredText, frame_html, parts_update
from ui.playground.rounds import NUM_PANES, Memory, chips_as, chips_with
from ui.playground.view import PaneAnswer, problem_html
from ui.present.charts.colours import read_looks
from ui.present.forms.settings_in_address import not_used, read_parts
from ui.present.next_step_text import problem_text
from workbench.analysis.sample_texts import example, to_word_end
from workbench.answers.posteriors import StoredAnswer
from workbench.registry.mixtures import most_useful_first
from workbench.specs.base import SEED
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage

if TYPE_CHECKING:
    from ui.generation.app_state import AppState
    from workbench.answers.history import ComparisonCard
    from workbench.answers.posteriors import Manifest
    from workbench.answers.server import Model

FIRST_PROMPT = "import os\n\ndef main("
PROMPT_CHARACTERS = 80  # of held-out text
NO_MODELS = (
    "There is no mixture or expert yet. Train experts in the studio, or with "
    "`workbench train joint NAME --seed-model S --domains A,B`."
)


class Opening:
    """Handles the events of the page's loading."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._player = Player(state)

    def load(self, request: gr.Request) -> list[Any]:
        """The models that exist now, and what the address asks for; nothing that it names is left out in silence.

        The outputs are the memory, those of `restore_comparison`, the inputs of each pane, the notice, and the models,
        prompts and cells of the grid.
        """
        models = known_models(self._state.settings)
        address, card, faults = self._read_query(request.query_params.multi_items())
        if not models:
            gr.Info(NO_MODELS)
        mixtures = [mixture.name for mixture in self._state.read(most_useful_first)]
        sides = first_choice(models, address.models, mixtures)
        stored = [answer.manifest.model for answer in card.answers] if card else []
        shown_models = [stored[index % len(stored)] for index in range(len(PANES))] if card else sides
        panes = self._panes(models, shown_models, address, card, faults)
        if address.answer_format == CHAT and sides[0] in {model.id for model in models}:
            address, why = self._without_chat(address, sides[0])
            faults += why
        known = [name for name in address.grid_models if name in {model.id for model in models}]
        faults += _unknown([name for name in address.grid_models if name not in known])
        notice = problem_html(not_used(faults)) if faults else ""
        choices = gr.update(choices=[model.id for model in models], value=known)
        grid = [choices, "\n".join(address.grid_prompts), notice if address.has_grid else ""]
        prompt = address.prompt
        if prompt is None:
            prompt = "" if address.answer_format == CHAT else self.first_prompt(sides[0], mixtures)
        shown = [address.answer_format or gr.skip(), address.count or gr.skip()]
        sampling = [address.sampling.get(name, gr.skip()) for name in SAMPLING]
        first = restore_comparison(card) if card else [*shown, prompt, address.system, *sampling]
        memory = Memory(replayed=card.id if card else "", fills=address.has_grid and not faults)
        return [memory, *first, *panes, notice, *grid]

    def _without_chat(self, address: PlaygroundAddress, model: str) -> tuple[PlaygroundAddress, list[str]]:
        """The address, as a completion where its first model cannot chat, and then why."""
        generations = self._state.generations
        try:
            generations.conversation(generations.plan(MixtureRequest(model)), [{"role": "user", "content": "?"}])
        except Problem as problem:
            return replace(address, answer_format=COMPLETION), [f"“{FORMAT}=chat”: {problem_text(problem)}"]
        return address, []

    def _read_query(
        self, query: Iterable[tuple[str, str]]
    ) -> tuple[PlaygroundAddress, ComparisonCard | None, list[str]]:
        """What an address requests, with the sentences on what there is not."""
        address = read_address(query)
        faults, card = list(address.faults), None
        if address.comparison:
            try:
                card = self._player.comparison(address.comparison)
            except Problem as problem:
                faults.append(problem_text(problem))
            if address.is_more_than_comparison:
                faults.append(f"“{COMPARISON}” opens a stored comparison: nothing else can be requested with it.")
                address = PlaygroundAddress(address.comparison)
        return address, card, faults

    def _panes(
        self,
        models: Sequence[Model],
        wanted: Sequence[str],
        address: PlaygroundAddress,
        card: ComparisonCard | None,
        faults: list[str],
    ) -> list[Any]:
        """The inputs of each pane. Faults are added."""
        by_name = {model.id: model for model in models}
        choices = [(f"{model.id} ({describe_kind(model)})", model.id) for model in models]
        answers = card.answers if card else []
        faults += _unknown(name for name in address.models.values() if name and name not in by_name)
        updates: list[Any] = []
        for index, (pane, name) in enumerate(zip(PANES, wanted, strict=True)):
            model = by_name.get(name)
            manifest = answers[index].manifest if index < len(answers) else None
            switches, unusable = self._switches(model, pane, address.changes, manifest)
            faults += unusable
            updates += [gr.update(choices=choices, value=model.id if model else None), *switches]
        return updates

    def _switches(
        self, model: Model | None, pane: str, changes: Mapping[str, Sequence[str]], manifest: Manifest | None
    ) -> tuple[list[Any], list[str]]:
        """The chips and the parts of a pane, as in a stored answer or as the address asks for them; and faults."""
        chips, _ = self._player.switches_of(model.id if model else None)
        parts = model.parts if model else {}
        if manifest is not None:
            on = {
                expert.name: expert.parts
                for expert in manifest.experts
                if expert.parts is not None and expert.name in parts
            }
            return [chips_as(chips, manifest), parts_update(parts, {**parts, **on})], []
        if model is None:  # which is said once, without a word on its experts
            return [chips, parts_update({})], []
        chips, faults = chips_with(chips, changes.get(pane + SET, ()))
        active, others = read_parts(changes.get(pane + OFF, ()), parts)
        return [chips, parts_update(parts, active)], [*faults, *others]

    def show_stored(self, memory: Memory) -> list[Any]:
        """The answers of the comparison that the address asks for, as they are stored. Outputs as of `play`."""
        if not memory.replayed:
            return [gr.skip()] * (NUM_PANES + 1)
        card = self._player.comparison(memory.replayed)
        memory = replace(memory, comparison=card.id)
        shown: list[Any] = [gr.skip()] * NUM_PANES
        for index in range(len(card.answers)):
            frame = self._stored(card, index)
            shown[index] = frame_html(frame)
            if isinstance(frame, PaneAnswer):
                memory = memory.with_answer(index, frame)
            elif turns := card.turns_of(card.answers[index]):  # its tokens cannot be read, but it can go on
                spoken = {"role": "assistant", "content": card.answers[index].text}
                memory = replace(memory, turns={**memory.turns, index: (*turns, spoken)})
        return [*shown, memory]

    def _stored(self, card: ComparisonCard, index: int) -> PaneAnswer | StoredText:
        """A stored answer by token, or its text only where its tokens can no longer be read."""
        stored = card.answers[index]
        choice = stored.choices[0]
        try:
            plan = self._state.generations.plan(StoredAnswer.model_validate(stored.model_dump()).request())
            texts = self._state.generations.host.token_texts(plan, choice.prompt_token_ids, choice.token_ids)
        except Problem as problem:
            return StoredText(stored.text, problem_text(problem))
        if not stored.text.startswith("".join(texts)):  # cut at a stop phrase, or another tokenizer by now
            return StoredText(stored.text)
        turns = card.turns_of(stored)
        start = PaneAnswer("" if turns else card.prompt, stored.experts, stored.manifest, turns=turns)
        rest = stored.text.removeprefix("".join(texts))
        return replace(
            start,
            looks=read_looks(self._state.settings),
            texts=tuple(texts),
            weights=tuple(tuple(row) for row in stored.weights),
            token_ids=tuple(choice.token_ids),
            prompt_ids=tuple(choice.prompt_token_ids),
            done=Done(choice.finish_reason or "", len(choice.prompt_token_ids), len(texts), rest),
            is_stored=True,
        )

    def first_prompt(self, model: str, mixtures: Sequence[str]) -> str:
        """The start of held-out text of a mixture, up to the end of a word; the default prompt if there is none."""
        if model in mixtures:
            with suppress(Problem):
                text = self._state.read(example, get_storage(self._state.settings), model)
                return to_word_end(text, PROMPT_CHARACTERS) or FIRST_PROMPT
        return FIRST_PROMPT


def _unknown(names: Iterable[str]) -> list[str]:
    return [f"There is no mixture or enabled expert “{name}”." for name in dict.fromkeys(names)]


def restore_comparison(card: ComparisonCard) -> list[Any]:
    """Format, number of panes, prompt, system prompt, and the sampling of the first answer.

    A conversation goes on: its questions stand in the panes.
    """
    sampling = SamplingConfig(**(card.answers[0].manifest.sampling or {}))
    system = next((turn.content for turn in card.messages if turn.role == "system"), "")
    drawn = [getattr(sampling, name) for name in SAMPLING]
    answer_format, prompt = (CHAT, "") if card.messages else (COMPLETION, card.prompt)
    return [answer_format, len(card.answers), prompt, system, *drawn]


def describe_kind(model: Model) -> str:
    """What a model is, as a choice says it."""
    return "seed model" if model.id.startswith(SEED) and model.kind == "expert" else model.kind


def first_choice(models: Sequence[Model], given: Mapping[str, str], useful: Sequence[str]) -> list[str]:
    """The model of each pane: those given in the address; else the most useful mixture, next to models with others.

    A model stands in two panes only where there are fewer models than panes: the same model gives the same text.
    """
    experts = {model.id: model.experts for model in models}
    names = [*useful, *(name for name in experts if name not in useful)] or [""]
    left = given.get(PANES[0], names[0])
    own = experts.get(left, [])
    others = [name for name in names if name != left and experts.get(name) != own]
    # The first expert is that of the prompt: its text would be the same as that of the mixture.
    right = given.get(PANES[1], next(iter([*own[:0:-1], *others]), left))
    beside = [name for name in dict.fromkeys([*others, *own[:0:-1]]) if name not in (left, right)]
    third, fourth = [*beside, left, right][:2]
    return [left, right, given.get(PANES[2], third), given.get(PANES[3], fourth)]
