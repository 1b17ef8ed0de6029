"""Experts that read one text share the layers below the first one that they change.

They begin as one row. Before the first layer that an expert changes it gets a row of its own, a copy of the common one;
experts that change no layer never leave it. A pass has a level for each layer where rows part.

Shapes: E experts of a text, R rows of a text, N rows of a level.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engine.errors import is_out_of_memory
from engine.models.discovery import keeps_other_states
from engine.models.rows import Rows, set_rows, with_rows

if TYPE_CHECKING:
    from engine.models.multi_expert import MultiExpertModel

NEVER = 1 << 30  # the first layer of an expert that changes none
_PLACE = re.compile(r"(?P<layers>.+?)\.(?P<number>\d+)\..+")


class Text(NamedTuple):
    """Some rows with the same experts; an expert's first layer is the first that it changes."""

    keys: Sequence[str]
    first_layers: Sequence[int]
    num_rows: int


class Level(NamedTuple):
    """The rows from one layer on."""

    first_layer: int
    rows: Rows
    of_texts: list[Tensor]  # [E, R] of each text; experts in a common row have the same numbers
    own_rows: list[Tensor]  # [some of E, R] the same, the common row once
    from_below: Tensor  # [N] the row of the level below that each row begins as
    from_input: Tensor  # [N] the same of the first level


def first_layer(places: Iterable[str]) -> int:
    """The first layer that an expert with modules in these places changes; 0 for a place outside of all layers."""
    matches = map(_PLACE.fullmatch, places)
    return min((int(match["number"]) if match else 0 for match in matches), default=NEVER)


def row_owners(first_layers_E: Sequence[int], layer: int) -> list[int]:
    """The expert in whose row each one is computed in a layer: itself, or the first of those that have not parted."""
    common = next((index for index, first in enumerate(first_layers_E) if first > layer), 0)
    return [index if first <= layer else common for index, first in enumerate(first_layers_E)]


def plan_levels(order: Sequence[str], texts: Sequence[Text]) -> list[Level]:
    """The levels of a pass over these texts, whose rows stand in the order of their experts' keys."""
    levels: list[Level] = []
    owners: list[list[int]] = []
    for layer in sorted({0, *(first for text in texts for first in text.first_layers)} - {NEVER}):
        now = [row_owners(text.first_layers, layer) for text in texts]
        if now != owners:
            levels.append(_level(layer, order, texts, now, levels))
            owners = now
    return levels


def _level(
    layer: int, order: Sequence[str], texts: Sequence[Text], owners: Sequence[list[int]], below: Sequence[Level]
) -> Level:
    counts: dict[str, int] = {}
    own: dict[tuple[int, int], Tensor] = {}  # the rows of each text that each owner has
    total = 0
    for key in order:
        for number, text in enumerate(texts):
            for expert in sorted(set(owners[number])):
                if text.keys[expert] == key:
                    own[number, expert] = torch.arange(total, total + text.num_rows)
                    counts[key] = counts.get(key, 0) + text.num_rows
                    total += text.num_rows
    of_texts = [torch.stack([own[number, expert] for expert in row]) for number, row in enumerate(owners)]
    own_rows = [torch.stack([own[number, expert] for expert in sorted({*row})]) for number, row in enumerate(owners)]
    rows = Rows((*counts,), (*counts.values(),))
    if not below:
        return Level(layer, rows, of_texts, own_rows, torch.arange(total), torch.arange(total))
    from_below = torch.cat([below[-1].of_texts[number][expert] for number, expert in own])
    return Level(layer, rows, of_texts, own_rows, from_below, below[-1].from_input[from_below])


class Levels:
    """The levels of one forward pass: rows part within it, between layers that do not know of them."""

    def __init__(self, model: MultiExpertModel, levels: Sequence[Level]) -> None:
        self.layers = _hooked_layers(model) if len(levels) > 1 else []  # whose inputs change
        self._levels = [
            level._replace(from_below=level.from_below.to(model.device), from_input=level.from_input.to(model.device))
            for level in levels
        ]
        self._expanded: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # by level and input, which is kept alive

    @property
    def first(self) -> Level:
        return self._levels[0]

    @property
    def last(self) -> Level:
        return self._levels[-1]

    def at(self, layer: int) -> Level:
        """The level that a layer is in."""
        return next(level for level in reversed(self._levels) if level.first_layer <= layer)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within, this thread's pass of the model begins with the rows of the first level and ends with the last's."""
        token = _current.set(self)
        try:
            with with_rows(self.first.rows):
                yield
        finally:
            _current.reset(token)

    def enter(self, layer: int, inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """A layer's inputs with the rows of its level: its states come with those of the layer before."""
        level = self.at(layer)
        if level is self.first:
            return None
        states, *rest = inputs
        if level.first_layer == layer:
            states = states[level.from_below]
            set_rows(level.rows)
        options = {name: self._expand(level, one) for name, one in options.items()}
        return (states, *(self._expand(level, one) for one in rest)), options

    def _expand(self, level: Level, value: Any) -> Any:
        """An input that the model has computed for the rows of the first level, for those of another."""
        if isinstance(value, tuple):
            return tuple(self._expand(level, one) for one in value)
        num_rows = len(self.first.from_input)
        if not isinstance(value, Tensor) or num_rows == 1 or value.dim() == 0 or len(value) != num_rows:
            return value  # that of one row is broadcast
        key = level.first_layer, id(value)
        if key not in self._expanded:
            self._expanded[key] = value, value[level.from_input]
        return self._expanded[key][1]


_current: ContextVar[Levels | None] = ContextVar("levels", default=None)
_layers: WeakKeyDictionary[MultiExpertModel, list[nn.Module]] = WeakKeyDictionary()
_hooking = Lock()


def _hooked_layers(model: MultiExpertModel) -> list[nn.Module]:
    """The layers that experts lie in; before each of them the pass under way may exchange its inputs."""
    with _hooking:
        if model not in _layers:
            path = next(match["layers"] for match in map(_PLACE.fullmatch, model.places) if match)
            _layers[model] = list(model.lm.get_submodule(path).children())
            for number, layer in enumerate(_layers[model]):
                layer.register_forward_pre_hook(partial(_before_layer, number), with_kwargs=True)
        return _layers[model]


def _before_layer(
    number: int, layer: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    levels = None if torch.compiler.is_compiling() else _current.get()
    if levels is None or not levels.layers or levels.layers[number] is not layer:
        return None
    return levels.enter(number, inputs, options)


def first_layers(model: MultiExpertModel, keys: Sequence[str], input_ids_ET: Tensor) -> list[int]:
    """From which layer on each expert needs a row of its own; 0 where fewer than two could share one.

    Rows that are views of one text say so: an expanded tensor has the stride 0 there.
    """
    own = [model.first_layer(key) for key in keys]
    is_one_text = not (input_ids_ET.stride(0) or torch.is_grad_enabled() or model.lm.training)
    return own if is_one_text and sum(first > 0 for first in own) > 1 else [0] * len(own)


def levels_of_one_text(model: MultiExpertModel, input_ids_ET: Tensor, rows: Rows) -> Levels | None:
    """The levels of experts that read one text; None where a pass computes a row of each in every layer."""
    if len(rows.keys) != sum(rows.num_rows) or not any(first_layers_E := first_layers(model, rows.keys, input_ids_ET)):
        return None
    levels = plan_levels(rows.keys, [Text(rows.keys, first_layers_E, 1)])
    return Levels(model, levels) if can_share(model, rows.keys) else None


_alike: WeakKeyDictionary[MultiExpertModel, bool] = WeakKeyDictionary()
_is_trying: ContextVar[bool] = ContextVar("is_trying", default=False)


def can_share(model: MultiExpertModel, keys: Sequence[str]) -> bool:
    """Whether rows may part within a model's own forward passes; tried once."""
    if model not in _alike and not _is_trying.get():
        rows, shared, separate = Rows.one_each(keys), model.new_cache(), model.new_cache()
        token = _is_trying.set(True)
        try:
            _alike[model] = not keeps_other_states(model.lm) and are_alike(
                model,
                len(keys),
                lambda ids_ET: model.read(ids_ET, rows, shared),
                lambda ids_ET: model.read(ids_ET.contiguous(), rows, separate),
            )
        finally:
            _is_trying.reset(token)
    return _is_trying.get() or _alike[model]


@torch.inference_mode()
def are_alike(model: MultiExpertModel, num_experts: int, *readers: Callable[[Tensor], Tensor]) -> bool:
    """Whether two ways to read a text of a few tokens, in two pieces [E, T], give the same states up to rounding."""
    ids_T = torch.randint(1, model.vocab_size, (7,), generator=torch.Generator().manual_seed(0)).to(model.device)
    try:
        for piece_T in (ids_T[:5], ids_T[5:]):
            ours, theirs = (read(piece_T.expand(num_experts, -1)) for read in readers)
            if not differ_by_rounding(ours, theirs):
                return False
    except Exception as error:  # the model's code computes something of its own between layers
        if is_out_of_memory(error):
            raise
        return False
    return True


def differ_by_rounding(ours_ETD: Tensor, theirs_ETD: Tensor) -> bool:
    """Whether no token's state is further from the other than the root of the precision, as a share of its length.

    A single element may be far off by mere rounding, the length of all is not: of SmolLM2-135M 4e-6 in float32, 0.0007
    in float16, 0.025 in bfloat16, where this allows 0.0003, 0.03 and 0.09; one key left out makes 0.16, wrong positions
    0.92.
    """
    ours, theirs = ours_ETD.float(), theirs_ETD.float()
    least = torch.finfo(theirs_ETD.dtype).eps ** 0.5
    return bool(((ours - theirs).norm(dim=-1) <= least * theirs.norm(dim=-1)).all())
