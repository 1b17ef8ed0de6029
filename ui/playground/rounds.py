"""A round of the playground: the request of all panes, and what a window remembers of rounds before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Json, TypeAdapter, ValidationError

from ui.errors import BadUsageError
from ui.playground.address import CHAT, COMPLETION, SAMPLING
from ui.playground.view import Answer

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
    answer_format: str = COMPLETION
    is_blind: bool = False
    without: bool = False

    @classmethod
    def of(cls, values: Sequence[Any]) -> Round:
        """The values of the page's components, in the order of `app.inputs_of`."""
        answer_format, count, is_blind, prompt, max_tokens, temperature, top_p, top_k, seed, without, *rest = values
        given = zip(SAMPLING, (max_tokens, temperature, top_p, top_k, seed), strict=True)
        try:
            sampling = {
                name: None if value is None else int(value) if SAMPLING[name].is_integer else float(value)
                for name, value in given
            }
        except (TypeError, ValueError, OverflowError):
            raise BadUsageError("A sampling setting is not a number.") from None
        panes = [pane_of(*rest[3 * place : 3 * place + 3]) for place in range(count_of(count))]
        return cls(str(prompt or ""), sampling, panes, answer_format, bool(is_blind), bool(without))

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
    raise BadUsageError(f"There are 2 to {NUM_PANES} panes.", "Reload the page.")


@dataclass(frozen=True)
class Memory:
    """The state of a window: the last answers, the conversations so far, and which model is behind each letter."""

    answers: Mapping[int, Answer] = field(default_factory=dict)
    turns: Mapping[int, tuple[Mapping[str, str], ...]] = field(default_factory=dict)
    order: tuple[int, ...] = ()  # of a blind round: the pane whose model stands behind each letter; empty: not blind
    comparison: str = ""  # the id of what is stored
    replayed: str = ""  # the id of what the address asks for
    fills: bool = False  # whether the address asks for a grid, which can be filled
    values: Mapping[str, Any] = field(default_factory=dict)  # for the chat template

    def turns_of(self, place: int, request: Round) -> tuple[Mapping[str, str], ...]:
        """The conversation of a pane with the new question; empty in a completion."""
        if request.answer_format != CHAT:
            return ()
        return (*self.turns.get(place, ()), {"role": "user", "content": request.prompt})

    def with_answer(self, place: int, answer: Answer) -> Memory:
        """The memory with the end of an answer."""
        spoken = {"role": "assistant", "content": answer.generated}
        turns = {**self.turns, place: (*answer.turns, spoken)} if answer.turns else self.turns
        return replace(self, answers={**self.answers, place: answer}, turns=turns)
