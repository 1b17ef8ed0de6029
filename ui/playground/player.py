"""The events of the playground: what is offered, the answers of all panes in one stream, and what is read meanwhile."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.concurrency import run_in_threadpool

from engine.config import SamplingConfig
from engine.errors import Problem
from engine.events import Done, Token
from engine.foreign_files import short
from engine.text.chat.conversations import clean_values
from ui.generation.ablation import without_each
from ui.generation.known_models import known_models
from ui.generation.model_host import new_seed
from ui.playground.address import CHAT, panes_address
from ui.playground.pacing import newest_of
from ui.playground.rounds import (
    LETTERS,
    NUM_PANES,
    Memory,
    PaneRequest,
    Round,
    begin,
    chip_values,
    chips_chosen,
    chips_of,
    count_of,
    pane_of,
    request_of,
)
from ui.playground.view import (
    PaneAnswer,
    answer_html,
    diff_html,
    hint_html,
    legend_html,
    next_html,
    plain_html,
    problem_html,
)
from ui.present.charts.colours import read_looks
from ui.present.forms.settings_in_address import part_values
from ui.present.next_step_text import problem_text
from workbench.answers.posteriors import Manifest, StoredAnswer
from workbench.registry.comparisons import get_comparison
from workbench.registry.resources import RESOURCES
from workbench.requests.verification import changes_since

if TYPE_CHECKING:
    from engine.inference.generate import Prompt
    from engine.loading.plan import GenerationPlan
    from ui.generation.app_state import AppState
    from workbench.answers.history import ComparedAnswerCard, ComparisonCard
    from workbench.answers.server import Model
    from workbench.specs.requests import MixtureRequest

CHOOSE = "Choose a mixture or an expert first."
FAILED_BLIND = "This model gave no answer; the reason may name it. Turn “Blind” off and generate again to read it."
_NO_MANIFEST = Manifest(model="", experts=[], tokenizer_sha256="", gate={}, clustering_sha256=None)  # until planned
NUM_NEXT = 3  # most probable next tokens that are shown while one types
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredText:
    """A stored text without its tokens; `problem` says why it cannot be made again."""

    text: str
    problem: str = ""


Frame = PaneAnswer | StoredText | str  # an answer so far, a stored text, or the sentence of a problem


def frame_html(frame: Frame) -> str:
    """The HTML of a pane."""
    if isinstance(frame, StoredText):
        return plain_html(frame.text) + (problem_html(frame.problem) if frame.problem else "")
    return problem_html(frame) if isinstance(frame, str) else answer_html(frame)


class Player:
    """Handles the events of the page."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def comparison(self, id: str) -> ComparisonCard:
        """A stored comparison."""
        return self._state.read(get_comparison, id, self._state.settings.history_days)

    def switches_of(self, model: str | None) -> list[Any]:
        """The chips of a model's experts, the active ones on, and the parts of experts that have parts."""
        match = self.model(model)
        return [self._chips(match), parts_update(match.parts if match else {})]

    def names(self) -> list[str]:
        """The names of all models."""
        return [model.id for model in known_models(self._state.settings)]

    def model(self, name: str | None) -> Model | None:
        """A mixture or an enabled expert by its name; None where there is none."""
        return next((one for one in known_models(self._state.settings) if one.id == name), None)

    def _chips(self, model: Model | None) -> dict[str, Any]:
        return chips_of(None if model is None else self._state.read(RESOURCES[model.kind].get, model.id))

    def address(self, *values: Any) -> str:
        """The address of the panes that are shown, by the same inputs as `play`; empty while a setting is empty."""
        request = Round.of(values)
        if request.lacks_setting:
            return ""
        models = {model.id: model for model in known_models(self._state.settings)}
        panes = []
        for pane in request.panes:
            model = models.get(pane.model or "")
            off = part_values(model.parts, parts_of(pane.parts, model.parts)) if model else []
            panes.append((pane.model or "", chip_values(pane.chips), off))
        return panes_address(panes, request.prompt, request.system, request.answer_format, request.sampling)

    def legend(self, *values: Any) -> str:
        """The legend of the experts in the panes that are shown, by the same inputs as `play`."""
        request = Round.of(values)
        names = [str(one["name"]) for pane in request.panes for one in pane.chips.get("experts", ())]
        return legend_html(list(dict.fromkeys(names)), read_looks(self._state.settings))

    async def play(
        self, memory: Memory, *values: Any, only: int | None = None, without_of: int | None = None
    ) -> AsyncGenerator[list[Any], None]:
        """The growing answers of all panes, or of `only` one with another seed: the HTML of each, memory, and prompt.

        With `without_of`, the pane next to that one ends as a diff against it (see `leave_out`). Both answer the last
        question of a conversation again. A new question leaves the field once a model answers it.
        """
        memory, request = begin(memory, Round.of(values), only, without_of)
        is_sent = request.answer_format == CHAT and only is None and without_of is None
        places = [only] if only is not None else list(range(len(request.panes)))
        streams = [self.answer(request, place, memory) for place in places]
        async with aclosing(self._draw(memory, places, streams)) as drawn:
            async for update in drawn:
                memory = update[-1] if isinstance(update[-1], Memory) else memory
                yield [*update, "" if is_sent and memory.is_read else gr.skip()]
                is_sent = is_sent and not memory.is_read
        if without_of is not None:
            yield [*self._compare(memory, without_of, len(request.panes)), gr.skip()]

    @staticmethod
    def new_chat(memory: Memory) -> list[Any]:
        """The memory without its conversations, empty panes, and neither a link nor ratings."""
        return [Memory(values=memory.values), *[hint_html()] * NUM_PANES, "", ""]

    def leave_out(self, count: int, *values: Any, index: int) -> list[Any]:
        """The number of panes, and the inputs of the pane next to a pane: the same model without an expert.

        The chip that asks for it names the expert. A single pane gets a neighbour.
        """
        pane = pane_of(*values[3 * index : 3 * index + 3])
        neighbour = _neighbour(index, count_of(count))
        updates: list[Any] = [gr.skip()] * (3 * NUM_PANES)
        updates[3 * neighbour : 3 * neighbour + 3] = self.inputs_of(pane, str(pane.chips.get("without", "")))
        return [max(count, 2), *updates]

    def inputs_of(self, pane: PaneRequest, without: str = "") -> list[Any]:
        """The inputs of a pane from the registry: of what a browser sent nothing but its choices is used."""
        model = self.model(pane.model)
        parts = model.parts if model else {}
        chosen = parts_of(pane.parts, parts)
        on = {name: [one for one in names if one in chosen[name]] for name, names in parts.items()}
        chips = chips_chosen(self._chips(model), pane.chips, without)
        return [model.id if model else None, chips, parts_update(parts, on)]

    def _compare(self, memory: Memory, index: int, count: int) -> list[Any]:
        """The pane next to one as a diff against it, if both have ended."""
        updates: list[Any] = [gr.skip()] * (NUM_PANES + 1)
        neighbour = _neighbour(index, count)
        before, after = memory.answers.get(index), memory.answers.get(neighbour)
        if before is not None and after is not None:
            updates[neighbour] = answer_html(after, diff_html(before, after, LETTERS[index]))
        return updates

    async def replay(self, memory: Memory) -> AsyncGenerator[list[Any], None]:
        """The answers of the shown comparison, made again; each ends with what differs. Outputs as of `play`."""
        if not memory.replayed:
            yield [gr.skip()] * (NUM_PANES + 1)
            return
        card = await run_in_threadpool(self.comparison, memory.replayed)
        streams = [self._again(card, index) for index in range(len(card.answers))]
        memory = replace(memory, comparison=card.id)
        async with aclosing(self._draw(memory, list(range(len(streams))), streams)) as drawn:
            async for update in drawn:
                yield update

    async def _again(self, card: ComparisonCard, index: int) -> AsyncGenerator[Frame, None]:
        stored = card.answers[index]
        try:
            known = StoredAnswer.model_validate(stored.model_dump())
            ids, choice = stored.choices[0].prompt_token_ids, known.choices[0]
            sampling = known.sampling(choice)
            turns = card.turns_of(stored)
            start = PaneAnswer("" if turns else card.prompt, [], _NO_MANIFEST, turns=turns)
            begins = known.manifest.evidence_from
            async with aclosing(self._answers(known.request(), start, sampling, False, ids, begins)) as answers:
                async for answer in answers:
                    is_over = answer.done is not None
                    yield replace(answer, replayed=_differences(stored, answer)) if is_over else answer
        except Problem as problem:
            yield StoredText(stored.text, problem_text(problem))

    async def _draw(
        self, memory: Memory, indices: Sequence[int], streams: Sequence[AsyncGenerator[Frame, None]]
    ) -> AsyncGenerator[list[Any], None]:
        """The streams of some panes as updates of all, few enough for a browser, and the memory of what has ended."""
        async with aclosing(newest_of(*streams)) as updates:
            async for new in updates:
                frames = {indices[at]: frame for at, frame in new.items()}
                before, answers = memory, {at: one for at, one in frames.items() if isinstance(one, PaneAnswer)}
                if not memory.is_read and any(one.texts or one.done for one in answers.values()):
                    memory = replace(memory, is_read=True)
                for index, answer in answers.items():
                    memory = memory.with_answer(index, answer) if answer.done else memory
                shown = {index: frame_html(frame) for index, frame in frames.items()}
                changed = gr.skip() if memory is before else memory
                yield [*(shown.get(index, gr.skip()) for index in range(NUM_PANES)), changed]

    def set_values(self, memory: Memory, text: str | None) -> tuple[Memory, str]:
        """The memory with values for the chat template, a JSON object; and what is wrong with the text."""
        try:
            given = json.loads(text) if text and text.strip() else {}
            if not isinstance(given, dict):
                raise ValueError("it is not a JSON object")
            return replace(memory, values=clean_values(given)), ""
        except (ValueError, RecursionError) as error:
            sentence = f"The values for the chat template cannot be used: {short(error)}. None are set."
            return replace(memory, values={}), problem_html(sentence)

    async def answer(self, request: Round, index: int, memory: Memory | None = None) -> AsyncGenerator[Frame, None]:
        """The growing answer of one pane, or the sentence of what went wrong."""
        memory = memory or Memory()
        pane = request.panes[memory.order[index] if memory.order else index]
        if not pane.model:
            yield CHOOSE
            return
        try:
            sampling = SamplingConfig(**request.sampling)
            if sampling.seed is None:
                sampling = replace(sampling, seed=new_seed())
            wanted = await run_in_threadpool(self.request_of, pane)
            start = PaneAnswer("" if request.answer_format == CHAT else request.prompt, [], _NO_MANIFEST)
            turns = memory.turns_of(index, request)
            start = replace(start, turns=turns, is_blind=bool(memory.order), values=memory.values)
            async with aclosing(self._answers(wanted, start, sampling, request.without)) as answers:
                async for answer in answers:
                    yield answer
        except Problem as problem:
            yield FAILED_BLIND if memory.order else problem_text(problem)  # the text may name the model
        except Exception:
            log.exception("A generation of the playground failed.")
            yield "The server raised an unexpected error. See its log."

    def request_of(self, pane: PaneRequest) -> MixtureRequest:
        """The request of a pane. The parts are those that are selected of each expert that has parts; maybe none."""
        assert pane.model
        match = self.model(pane.model)
        parts = parts_of(pane.parts, match.parts if match else {})
        return request_of(pane.model, pane.chips, len(match.members) if match else 0, parts)

    async def _answers(
        self,
        request: MixtureRequest,
        answer: PaneAnswer,
        sampling: SamplingConfig,
        without: bool,
        ids: list[int] | None = None,
        evidence_from: int = 0,
    ) -> AsyncGenerator[PaneAnswer, None]:
        """The growing answer to its prompt or conversation, or to the `ids` that were read for a stored one.

        Evidence of a stored one begins at its token `evidence_from`.
        """
        generations, slots = self._state.generations, self._state.slots
        plan = await run_in_threadpool(generations.plan, request)
        plan = replace(plan, evidence_from=evidence_from)
        prompt: Prompt = ids or ()
        if ids is None:
            prompt = answer.prompt
            if answer.turns:
                render = partial(generations.conversation, values=answer.values)
                plan, prompt = await run_in_threadpool(render, plan, answer.turns)
        answer = await run_in_threadpool(self._begin, plan, answer, sampling)
        yield answer
        started = time.monotonic()
        async with aclosing(slots.stream(lambda: generations.stream(plan, prompt, sampling))) as tokens:
            async for event in tokens:
                answer = replace(answer.with_event(event), seconds=time.monotonic() - started)
                if isinstance(event, Done):
                    read = await run_in_threadpool(generations.host.prompt_ids, plan, prompt)
                    answer = replace(answer, prompt_ids=tuple(read))
                yield answer
        if without and answer.texts and not answer.turns:
            async with aclosing(without_each(self._state, request, plan, answer.text)) as losses:
                async for one_less in losses:
                    answer = replace(answer, without=(*answer.without, one_less))
                    yield answer

    def _begin(self, plan: GenerationPlan, answer: PaneAnswer, sampling: SamplingConfig) -> PaneAnswer:
        names = [expert.name for expert in plan.experts]
        parts_of = {name: one.parts[name] for one in known_models(self._state.settings) for name in one.parts}
        return replace(
            answer,
            columns=names,
            manifest=Manifest.of(plan, sampling),
            parts={name: parts_of[name] for name in names if name in parts_of},
            looks=read_looks(self._state.settings),
            num_before=self._state.slots.num_waiting,
        )

    async def read_next(self, *values: Any) -> AsyncGenerator[list[Any], None]:
        """For each pane, the weights after the prompt and the most probable next tokens, as the switches say."""
        request = Round.of(values)
        if request.is_blind or request.answer_format == CHAT:
            yield [""] * NUM_PANES
            return
        streams = [self._next(request, pane) for pane in request.panes]
        async with aclosing(newest_of(*streams)) as updates:
            async for new in updates:
                yield [new.get(number, gr.skip()) for number in range(NUM_PANES)]

    async def _next(self, request: Round, pane: PaneRequest) -> AsyncGenerator[str, None]:
        if not pane.model or not request.prompt:
            yield ""
            return
        try:
            wanted = await run_in_threadpool(self.request_of, pane)
            plan = await run_in_threadpool(self._state.generations.plan, wanted, NUM_NEXT)
            sampling = SamplingConfig(1, 0.0, num_candidates=NUM_NEXT)
            make = self._state.generations.stream
            async with aclosing(self._state.slots.stream(lambda: make(plan, request.prompt, sampling))) as tokens:
                async for event in tokens:
                    if isinstance(event, Token):
                        looks = await run_in_threadpool(read_looks, self._state.settings)
                        yield next_html(event, looks, request.prompt)
        except Problem as problem:
            yield problem_html(problem_text(problem))


def parts_update(parts: Mapping[str, Sequence[str]], on: Mapping[str, Sequence[str]] | None = None) -> Any:
    """The switches of parts of experts, all on unless `on` says which; hidden where there are none."""
    choices = [
        (f"{expert}: {part}" if len(parts) > 1 else part, json.dumps([expert, part]))
        for expert, names in parts.items()
        for part in names
    ]
    chosen = [json.dumps([expert, part]) for expert, names in (parts if on is None else on).items() for part in names]
    return gr.update(choices=choices, value=chosen, visible=bool(choices))


def parts_of(chosen: Sequence[str], parts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The parts that are on, by expert, from the values of their switches."""
    pairs = [json.loads(one) for one in chosen]
    return {name: [part for one, part in pairs if one == name] for name in parts}


def _neighbour(index: int, count: int) -> int:
    """The pane at the right, or of the last one that at the left; of a single one that which is to come."""
    return index + 1 if index + 1 < max(count, 2) else index - 1


def _differences(stored: ComparedAnswerCard, answer: PaneAnswer) -> str:
    """The differences between a stored answer and the same made again."""
    ids = stored.choices[0].token_ids
    pairs = zip(ids, answer.token_ids, strict=False)
    same = next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(ids), len(answer.token_ids)))
    changed = changes_since(stored.manifest, answer.manifest)
    since = f" Changed since: {'; '.join(changed)}." if changed else ""
    if same == len(ids):
        return f"The same text as stored.{since}"
    return f"Differs from the stored text from token {same + 1}.{since}"
