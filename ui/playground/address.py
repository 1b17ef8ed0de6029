"""The playground's address: a stored comparison, or panes with their settings, or the models and prompts of a grid.

`?left=both&left.set=both/law:off&prompt=the sea&seed=1` for panes, `?x=both&x=both/law&y=the sea&y=the hill&seed=1` for
a grid, whose prompts are `y`. An address may be old or written by hand: what cannot be used is named, not dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, urlencode

from ui.addresses import LONGEST_QUERY

PANES = ("left", "right", "third", "fourth")  # their models, from the left
SET, OFF = ".set", ".off"  # after the name of a pane: its experts, and the parts of experts that are off
COMPARISON, PROMPT, SYSTEM, COUNT, FORMAT, MODELS, PROMPTS = "r", "prompt", "system", "panes", "format", "x", "y"
CHAT, COMPLETION = "Chat", "Completion"
_OF_GRADIO = ("__", "view")  # not of the playground


class SamplingSetting(NamedTuple):
    """A setting of sampling: its label, its bounds, its usual value, and the steps of its slider."""

    label: str
    lowest: float
    highest: float
    usual: float
    step: float = 1

    @property
    def is_integer(self) -> bool:
        return self.step == 1


SAMPLING: Mapping[str, SamplingSetting] = {
    "max_tokens": SamplingSetting("Max tokens", 1, 512, 96),
    # Experts of 135M parameters leave their text for noise at temperature 0.8 and top p 1.
    "temperature": SamplingSetting("Temperature", 0, 2, 0.5, 0.05),
    "top_p": SamplingSetting("Top p", 0.05, 1, 0.9, 0.05),
    "top_k": SamplingSetting("Top k", 0, 200, 0),
    "seed": SamplingSetting("Seed", 0, 2**53 - 1, 1),
}
_SINGLE = (COMPARISON, PROMPT, SYSTEM, COUNT, FORMAT, *PANES, *SAMPLING)
NAMES = (*_SINGLE, *(f"{pane}{more}" for pane in PANES for more in (SET, OFF)), MODELS, PROMPTS)


@dataclass(frozen=True)
class PlaygroundAddress:
    """What an address asks for; `faults` are sentences on what of it cannot be used."""

    comparison: str = ""
    models: Mapping[str, str] = field(default_factory=dict)  # by pane
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by pane and `.set` or `.off`
    prompt: str | None = None
    system: str = ""
    count: int | None = None
    answer_format: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    grid_models: tuple[str, ...] = ()
    grid_prompts: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def has_grid(self) -> bool:
        """Whether it asks for a grid."""
        return bool(self.grid_models or self.grid_prompts)

    @property
    def is_more_than_comparison(self) -> bool:
        """Whether it asks for something besides a stored comparison."""
        return self != PlaygroundAddress(self.comparison, faults=self.faults)


def read_address(pairs: Iterable[tuple[str, str]]) -> PlaygroundAddress:
    """What an address of these names and values asks for."""
    given = dict[str, list[str]]()
    for name, value in pairs:
        if not name.startswith(_OF_GRADIO):
            given.setdefault(name, []).append(value)
    faults = [f"“{name}” is not a setting of the playground." for name in given if name not in NAMES]
    faults += [f"“{name}” is there more than once." for name in _SINGLE if len(given.get(name, ())) > 1]
    last = {name: values[-1] for name, values in given.items()}
    sampling = {name: _number(name, last[name], faults) for name in SAMPLING if name in last}
    count = _choice(COUNT, last.get(COUNT), [str(number) for number in range(1, len(PANES) + 1)], faults)
    answer_format = _choice(FORMAT, last.get(FORMAT), (CHAT.lower(), COMPLETION.lower()), faults)
    return PlaygroundAddress(
        last.get(COMPARISON, ""),
        {pane: last[pane] for pane in PANES if pane in last},
        {name: values for name, values in given.items() if name.endswith((SET, OFF)) and name in NAMES},
        last.get(PROMPT),
        last.get(SYSTEM, ""),
        int(count) if count else None,
        answer_format.capitalize() if answer_format else None,
        {name: value for name, value in sampling.items() if value is not None},
        tuple(given.get(MODELS, ())),
        tuple(given.get(PROMPTS, ())),
        tuple(faults),
    )


def _choice(name: str, value: str | None, options: Sequence[str], faults: list[str]) -> str | None:
    if value is None or value in options:
        return value
    faults.append(f"“{name}” is {', '.join(options[:-1])} or {options[-1]}, not “{value}”.")
    return None


def _number(name: str, text: str, faults: list[str]) -> float | None:
    setting = SAMPLING[name]
    try:
        value = int(text) if setting.is_integer else float(text)
    except ValueError:
        value = None
    if value is not None and setting.lowest <= value <= setting.highest:
        return value
    kind = "a whole number" if setting.is_integer else "a number"
    faults.append(f"“{name}” is {kind} from {setting.lowest} to {setting.highest}, not “{text}”.")
    return None


def panes_address(
    panes: Sequence[tuple[str, Sequence[str], Sequence[str]]],
    prompt: str,
    system: str,
    answer_format: str,
    sampling: Mapping[str, float | None],
) -> str:
    """The address of panes, each a model, the changes of its experts, and its parts that are off."""
    pairs = list[tuple[str, object]]()
    for name, (model, changes, off) in zip(PANES, panes, strict=False):
        pairs += [(name, model), *((name + SET, change) for change in changes), *((name + OFF, one) for one in off)]
    pairs += [(PROMPT, prompt), *([(SYSTEM, system)] if system else [])]
    pairs += [(COUNT, len(panes)), (FORMAT, answer_format.lower())]
    return _query([*pairs, *_sampling_pairs(sampling)])


def grid_address(models: Sequence[str], prompts: Sequence[str], sampling: Mapping[str, float | None]) -> str:
    """The address of a grid."""
    return _query(
        [*((MODELS, model) for model in models), *((PROMPTS, prompt) for prompt in prompts), *_sampling_pairs(sampling)]
    )


def _sampling_pairs(sampling: Mapping[str, float | None]) -> list[tuple[str, object]]:
    wanted = {name: value for name, value in sampling.items() if value is not None}
    return [(name, int(value) if SAMPLING[name].is_integer else float(value)) for name, value in wanted.items()]


def _query(pairs: Sequence[tuple[str, object]]) -> str:
    return f"?{urlencode(pairs, quote_via=quote, safe='/', errors='replace')}"


def fits(address: str) -> bool:
    """Whether a browser and a server take an address of this length."""
    return len(address) <= LONGEST_QUERY
