"""A round of the playground: the request of all panes, and what a window remembers of rounds before."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Json, TypeAdapter, ValidationError

from ui.errors import BadUsageError
from ui.generation.model_host import new_seed
from ui.playground.address import CHAT, COMPLETION, SAMPLING
from ui.playground.view import PaneAnswer
from ui.present.forms.settings_in_address import MemberSetting, member_values, read_members
from workbench.formatting.palette import look_of
from workbench.specs.requests import MixtureRequest

if TYPE_CHECKING:
    from workbench.answers.cards import ExpertCard, MixtureCard
    from workbench.answers.posteriors import Manifest


HEAVIEST = 2  # of the sliders in chips.html
MOST_CHIPS = 64  # more experts than anybody switches by hand; a request without changes still takes all of them


def chips_of(card: MixtureCard | ExpertCard | None) -> dict[str, Any]:
    """The chips of a mixture or of an expert. The largest weight stands as 1."""
    if card is None:
        return {"experts": [], "open": False}
    members = [one for one in getattr(card, "members", ()) if one.enabled][:MOST_CHIPS]
    largest = max((member.weight for member in members), default=1.0) or 1.0
    shown = [
        _chip(member.expert, member.mark, member.colour_number, member.active, member.weight / largest)
        for member in members
    ]
    if not hasattr(card, "members"):
        shown = [_chip(card.name, card.mark, card.colour_number, True, 1.0)]
    return {"experts": shown, "open": False}


def _chip(name: str, mark: str, number: int, is_on: bool, weight: float) -> dict[str, Any]:
    look = look_of(number)
    return {
        "name": name,
        "mark": mark,
        "colour": look.colour,
        "letters": look.letters,
        "on": is_on,
        "active": is_on,  # as stored; so are the next two at first
        "weight": round(weight, 2),
        "stored": round(weight, 2),
    }


def _with_switches(chips: dict[str, Any], chosen: Mapping[str, tuple[bool, float]]) -> dict[str, Any]:
    """The chips with which are on and with their weights, by name; those that are not named stay."""
    experts = []
    for chip in chips["experts"]:
        is_on, weight = chosen.get(chip["name"], (chip["on"], chip["weight"]))
        experts.append({**chip, "on": is_on, "weight": weight})
    return {**chips, "experts": experts}


def chips_as(chips: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """The chips as they were in a stored answer."""
    largest = max((expert.weight for expert in manifest.experts), default=1.0) or 1.0
    on = {expert.name: (True, round(expert.weight / largest, 2)) for expert in manifest.experts}
    return _with_switches(chips, {chip["name"]: (False, chip["weight"]) for chip in chips["experts"]} | on)


def chips_with(chips: dict[str, Any], values: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The chips as an address sets them, and a sentence for each value that cannot be used."""
    settings, faults = read_members(values, _stored_settings(chips))
    return _with_switches(chips, {name: (setting.is_on, setting.weight) for name, setting in settings.items()}), faults


def chips_chosen(chips: dict[str, Any], sent: Mapping[str, Any], without: str = "") -> dict[str, Any]:
    """The chips with what a browser chose: which are on, but never `without`, and their weights."""
    chosen = {one["name"]: (one["on"] and one["name"] != without, one["weight"]) for one in sent["experts"]}
    chips = _with_switches(chips, chosen)
    experts = [{**chip, "weight": min(HEAVIEST, max(0.0, chip["weight"]))} for chip in chips["experts"]]
    return {**chips, "experts": experts}


def chip_values(chips: Mapping[str, Any]) -> list[str]:
    """What was switched and weighed, as an address has it. The largest stored weight is 1."""
    now = {str(one["name"]): MemberSetting(bool(one["on"]), float(one["weight"])) for one in chips["experts"]}
    return member_values(_stored_settings(chips), now)


def _stored_settings(chips: Mapping[str, Any]) -> dict[str, MemberSetting]:
    return {
        str(one["name"]): MemberSetting(bool(one["active"]), float(one["stored"]), HEAVIEST) for one in chips["experts"]
    }


def request_of(
    model: str, chips: Mapping[str, Any], num_members: int, parts: Mapping[str, Sequence[str]]
) -> MixtureRequest:
    """The request of a pane. Weights that nobody moved are left as they are stored."""
    experts = chips["experts"]
    if num_members > len(experts):  # more than there are chips for
        return MixtureRequest(model, parts=parts)
    active = [str(expert["name"]) for expert in experts if expert["on"]]
    moved = any(expert["weight"] != expert["stored"] for expert in experts)
    weights = {str(expert["name"]): float(expert["weight"]) for expert in experts if expert["on"]} if moved else None
    return MixtureRequest(model, active, weights, parts=parts)


NUM_PANES = 4
LETTERS = "ABCD"


@dataclass(frozen=True)
class PaneRequest:
    """The request of one pane: the values of its components."""

    model: str | None
    chips: Mapping[str, Any]
    parts: Sequence[str] = ()


@dataclass(frozen=True)
class Round:
    """The request of all panes together; a setting of sampling is None where its field is empty."""

    prompt: str
    sampling: Mapping[str, Any]
    panes: Sequence[PaneRequest]
    system: str = ""  # the system prompt of a conversation, in the place of its own; empty: it keeps its own
    answer_format: str = COMPLETION
    is_blind: bool = False
    without: bool = False

    @classmethod
    def of(cls, values: Sequence[Any]) -> Round:
        """The values of the page's components, in the order of `app.PlaygroundPage.inputs`."""
        answer_format, count, is_blind, prompt, system, *values = values
        max_tokens, temperature, top_p, top_k, seed, without, *rest = values
        given = zip(SAMPLING, (max_tokens, temperature, top_p, top_k, seed), strict=True)
        try:
            sampling = {
                name: None if value is None else int(value) if SAMPLING[name].is_integer else float(value)
                for name, value in given
            }
        except (TypeError, ValueError, OverflowError):
            raise BadUsageError("A sampling setting is not a number.") from None
        panes = [pane_of(*rest[3 * number : 3 * number + 3]) for number in range(count_of(count))]
        system = str(system or "").strip()
        return cls(str(prompt or ""), sampling, panes, system, answer_format, bool(is_blind), bool(without))

    @property
    def lacks_setting(self) -> bool:
        """Whether a setting is empty without which no token can be drawn; without a seed one is chosen."""
        return any(value is None for name, value in self.sampling.items() if name != "seed")


class _Chip(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    name: str
    on: bool
    active: bool
    weight: float
    stored: float


class _Chips(BaseModel):
    experts: list[_Chip]


_PARTS = TypeAdapter(list[Json[tuple[str, str]]])


def pane_of(model: Any, chips: Any, parts: Any) -> PaneRequest:
    """The request of one pane. Raises BadUsageError for values of another shape than the page sends."""
    try:
        _Chips.model_validate(chips or {"experts": []})
        _PARTS.validate_python(parts or [])
    except ValidationError:
        raise BadUsageError("The switches of a pane cannot be read.", "Reload the page.") from None
    return PaneRequest(model if isinstance(model, str) else None, chips or {"experts": []}, parts or [])


def count_of(panes: Any) -> int:
    """How many panes are shown. Raises BadUsageError for more or fewer than there can be."""
    if type(panes) is int and 1 <= panes <= NUM_PANES:
        return panes
    raise BadUsageError(f"There are 1 to {NUM_PANES} panes.", "Reload the page.")


@dataclass(frozen=True)
class Memory:
    """The state of a window: the last answers, the conversations so far, and which model is behind each letter."""

    answers: Mapping[int, PaneAnswer] = field(default_factory=dict)
    turns: Mapping[int, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    order: tuple[int, ...] = ()  # of a blind round: the pane whose model stands behind each letter; empty: not blind
    comparison: str = ""  # the id of what is stored
    replayed: str = ""  # the id of what the address asks for
    fills: bool = False  # whether the address asks for a grid, which can be filled
    values: Mapping[str, Any] = field(default_factory=dict)  # for the chat template
    is_read: bool = False  # whether a model began to answer in the last round

    def turns_of(self, pane: int, request: Round) -> tuple[Mapping[str, str], ...]:
        """The conversation of a pane with the new question; empty in a completion."""
        if request.answer_format != CHAT:
            return ()
        turns = self.turns.get(pane, ())
        if request.system:
            spoken = [turn for turn in turns if turn["role"] != "system"]
            turns = ({"role": "system", "content": request.system}, *spoken)
        return (*turns, {"role": "user", "content": request.prompt})

    def with_answer(self, pane: int, answer: PaneAnswer) -> Memory:
        """The memory with the end of an answer."""
        spoken = {"role": "assistant", "content": answer.generated}
        turns = {**self.turns, pane: (*answer.turns, spoken)} if answer.turns else self.turns
        return replace(self, answers={**self.answers, pane: answer}, turns=turns)


def begin(memory: Memory, request: Round, only: int | None, without_of: int | None) -> tuple[Memory, Round]:
    """What a round begins with: of all panes, of `only` one with another seed, or of a pane and one without an expert.

    The last two answer the last question again. A blind round draws who stands behind which letter, and a conversation
    keeps that. Raises BadUsageError for a round that nobody can answer.
    """
    is_chat = request.answer_format == CHAT
    again = without_of if only is None else only
    before = None if again is None else memory.answers.get(again)
    turns = before.turns if before is not None and is_chat else ()
    if turns:
        request = replace(request, prompt=turns[-1]["content"])
    if request.lacks_setting:
        raise BadUsageError("A sampling setting is empty.", "Fill it in, under Sampling.")
    if is_chat and not request.prompt.strip():
        raise BadUsageError("The message is empty.", "Write one first.")
    if only is not None:
        request = replace(request, sampling={**request.sampling, "seed": new_seed()}, is_blind=bool(memory.order))
        return replace(memory, turns={**memory.turns, only: turns[:-1]}, comparison="", is_read=False), request
    order = list(range(len(request.panes)))
    if without_of is not None:
        request = replace(request, is_blind=False)
        return Memory(turns=dict.fromkeys(order, turns[:-1]), values=memory.values), request
    goes_on = is_chat and bool(memory.turns)
    if not goes_on:
        random.shuffle(order)
    elif len(memory.order) == len(order):
        order = list(memory.order)
    shown = tuple(order) if request.is_blind else ()
    return Memory(turns=memory.turns if is_chat else {}, order=shown, values=memory.values), request
