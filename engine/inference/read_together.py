"""One forward pass for the tokens of several streams, and whether a model can do it.

Every token is a row of its own, whatever its expert, so texts of different lengths need no padding: linear maps read
their weights once for all rows, and attention is computed for each stream separately, over its own keys and values.

Shapes: N rows of a pass, one token each; E experts of a stream, T positions, D width; H heads, A their width, M tokens
of a stream's experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engine.device import is_onednn_faster
from engine.errors import is_out_of_memory
from engine.models.discovery import keeps_other_states
from engine.models.likelihoods import decoder_of
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.models.shared_layers import (
    Levels,
    Text,
    are_alike,
    differ_by_rounding,
    first_layers,
    plan_levels,
    row_owners,
)

_BLOCK = 64  # positions by which a cache grows at least
_FEW_TOKENS = 8  # of a stream that decodes


class Slot:
    """The keys and values of a stream's rows, by layer; gone when the stream is."""

    def __init__(self) -> None:
        self.length = 0
        self.first_layers_E: Sequence[int] = ()  # from which its experts have rows of their own; set at the first read
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}  # [rows, H, capacity, A] each

    @property
    def num_layers(self) -> int:
        """Layers that have written keys and values."""
        return len(self._layers)

    def append(self, layer: int, keys_EHTA: Tensor, values_EHTA: Tensor) -> tuple[Tensor, Tensor]:
        """Writes keys and values of a layer's rows behind the read positions; gives all up to there [E, H, S, A]."""
        end = self.length + keys_EHTA.shape[2]
        keys, values = self._layers.get(layer, (None, None))
        if keys is None or values is None or keys.shape[2] < end:
            keys, values = self._grow(keys, keys_EHTA), self._grow(values, values_EHTA)
            self._layers[layer] = keys, values
        keys[:, :, self.length : end] = keys_EHTA
        values[:, :, self.length : end] = values_EHTA
        return keys[:, :, :end], values[:, :, :end]

    def crop(self, length: int) -> None:
        """Forgets what was read from this position on; what comes next is written over it."""
        self.length = min(self.length, length)

    def row(self, index: int) -> Slot:
        """One expert, which reads on separately: it writes behind the read positions, where the whole overwrites it."""
        row = Slot()
        row.length = self.length
        for layer, (keys, values) in self._layers.items():
            owners = row_owners(self.first_layers_E, layer)
            at = sorted({*owners}).index(owners[index])
            row._layers[layer] = keys[at : at + 1], values[at : at + 1]
        return row

    def num_bytes(self) -> int:
        """Bytes of keys and values, with what they may grow by."""
        return sum(tensor.nbytes for pair in [*self._layers.values()] for tensor in pair)

    def _grow(self, kept: Tensor | None, new: Tensor) -> Tensor:
        num_rows, heads, coming, width = new.shape
        capacity = -(-(self.length + coming) * 5 // 4 // _BLOCK) * _BLOCK
        grown = new.new_empty(num_rows, heads, capacity, width)
        if kept is not None:
            grown[:, :, : self.length] = kept[:, :, : self.length]
        return grown


class _Pass:
    """A pass in which the tokens of each stream attend to its own text."""

    def __init__(self, slots: Sequence[Slot], levels: Levels) -> None:
        self._slots, self._levels = slots, levels
        self._orders: dict[int, tuple[Tensor, Tensor]] = {}  # by level: the rows, in the order of the streams, and back

    def attend(self, module: Any, *states_NH1A: Tensor, **options: Any) -> tuple[Tensor, None]:
        """Attention [N, 1, H, A] of each stream's tokens over its own text."""
        level = self._levels.at(module.layer_idx)
        if level.first_layer not in self._orders:
            places_N = torch.cat([rows_RT.flatten() for rows_RT in level.own_rows])
            self._orders[level.first_layer] = places_N, places_N.argsort()
        places_N, order_N = self._orders[level.first_layer]
        sizes = [rows_RT.numel() for rows_RT in level.own_rows]
        by_stream = [states[places_N, :, 0].split(sizes) for states in states_NH1A]  # one gather for all streams
        own = zip(self._slots, level.own_rows, *by_stream, strict=True)
        parts = [_attend(slot, rows_RT.shape, module, states_MHA, options) for slot, rows_RT, *states_MHA in own]
        return torch.cat(parts)[order_N], None


def _attend(
    slot: Slot, shape: tuple[int, int], module: Any, states_MHA: Sequence[Tensor], options: Mapping[str, Any]
) -> Tensor:
    """Attention [M, 1, H, A] of a stream's rows of this shape [rows, T]."""
    num_new = shape[1]
    query, new_keys, new_values = (states.unflatten(0, shape).transpose(1, 2) for states in states_MHA)
    keys, values = slot.append(module.layer_idx, new_keys, new_values)
    mask = None
    if 1 < num_new < keys.shape[2]:
        mask = torch.ones(num_new, keys.shape[2], dtype=torch.bool, device=query.device)
        mask = mask.tril(keys.shape[2] - num_new)[None, None]
    if num_new <= _FEW_TOKENS and _is_faster_in_float32(query):
        query, keys, values = query.float(), keys.float(), values.float()
    out_RTHA: Tensor
    out_RTHA, _ = _plain_attention()(module, query, keys, values, mask, **options)
    return out_RTHA.flatten(0, 1)[:, None].to(new_keys.dtype)


def _is_faster_in_float32(query: Tensor) -> bool:
    """Whether attention of a few tokens is slow in 16 bits: where MKL does not know the processor's products."""
    return query.dtype != torch.float32 and query.device.type == "cpu" and is_onednn_faster()


_pass: ContextVar[_Pass | None] = ContextVar("pass", default=None)


def _plain_attention() -> Any:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    return sdpa_attention_forward


def shared_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None, **options: Any
) -> Any:
    """transformers' “sdpa”, by whose names families call it, and within a shared pass that of each stream."""
    shared = None if torch.compiler.is_compiling() else _pass.get()  # layers that train are read by no stream
    if shared is None:
        return _plain_attention()(module, query, key, value, attention_mask, **options)
    return shared.attend(module, query, key, value, **options)


def read_together(model: MultiExpertModel, wanted: Sequence[tuple[Slot, Sequence[str], Tensor]]) -> list[Tensor]:
    """Hidden states [E, T, D] of each stream's tokens [E, T], in one pass; no slot's length changes."""
    slots, _, ids = zip(*wanted, strict=True)
    for slot, keys, ids_ET in wanted:
        slot.first_layers_E = slot.first_layers_E or _first_layers(model, keys, ids_ET)  # for good
        assert not (any(slot.first_layers_E) and ids_ET.stride(0)), "the experts of a slot that shares read one text"
    texts = [Text(keys, slot.first_layers_E, ids_ET.shape[1]) for slot, keys, ids_ET in wanted]
    levels = Levels(model, plan_levels(model.keys, texts))
    of_texts = levels.first.of_texts
    row_of_token_N = torch.cat([rows_ET.flatten() for rows_ET in of_texts])
    num_rows = len(levels.first.from_input)
    ids_N = torch.empty(num_rows, dtype=torch.long, device=model.device)
    ids_N[row_of_token_N] = torch.cat([ids_ET.flatten() for ids_ET in ids])
    positions = [slot.length + torch.arange(ids_ET.shape[1]).expand(ids_ET.shape) for slot, _, ids_ET in wanted]
    positions_N = torch.empty_like(ids_N)
    positions_N[row_of_token_N] = torch.cat([positions_ET.flatten() for positions_ET in positions]).to(model.device)
    unmasked = torch.ones(num_rows, 1, 1, 1, dtype=torch.bool, device=model.device)  # masks are made for each stream
    token = _pass.set(_Pass(slots, levels))
    try:
        with levels.in_use():
            out = decoder_of(model.lm)(
                input_ids=ids_N[:, None], position_ids=positions_N[:, None], attention_mask=unmasked, use_cache=False
            )
    finally:
        _pass.reset(token)
    return [out.last_hidden_state[rows_ET.flatten(), 0].unflatten(0, rows_ET.shape) for rows_ET in levels.last.of_texts]


def _first_layers(model: MultiExpertModel, keys: Sequence[str], ids_ET: Tensor) -> Sequence[int]:
    """From which layer on the experts of a stream have rows of their own."""
    first_layers_E = first_layers(model, keys, ids_ET)
    return first_layers_E if any(first_layers_E) and _rows_part(model, keys, first_layers_E) else [0] * len(keys)


_reasons: WeakKeyDictionary[MultiExpertModel, str] = WeakKeyDictionary()


def why_separate(model: MultiExpertModel) -> str:
    """Why the streams of a model share no passes. Empty where they can.

    That is where texts of different lengths, read and continued in one pass, have the states of passes of their own.
    """
    if model not in _reasons:
        _reasons[model] = _why_separate(model)
    return _reasons[model]


def _why_separate(model: MultiExpertModel) -> str:
    config = model.lm.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size", "window_size")]
    if model.placement.method.extra_positions or not model.keys:
        return "its experts have positions of their own before the text"
    if keeps_other_states(model.lm):
        return "its layers keep states in addition to keys and values"
    if kinds != {"full_attention"} or (any(windows) and getattr(config, "layer_types", None) is None):
        return "its attention has windows"
    if getattr(config, "_attn_implementation", None) != "sdpa":
        return "its attention is of its own kind"
    return "" if _reads_alike(model) else "its states come out otherwise in a shared pass"


@torch.inference_mode()
def _reads_alike(model: MultiExpertModel) -> bool:
    """Tries two texts in shared passes, and each in its own."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(1, model.vocab_size, (1, length), generator=generator) for length in (7, 4)]
    texts = [text.to(model.device) for text in texts]
    keys, slots, caches = model.keys[:1], [Slot(), Slot()], [model.new_cache(), model.new_cache()]
    try:
        for part in (slice(0, 2), slice(2, -1), slice(-1, None)):
            pieces = [text[:, part] for text in texts]
            together = read_together(model, [(slot, keys, piece) for slot, piece in zip(slots, pieces, strict=True)])
            for slot, cache, piece, ours in zip(slots, caches, pieces, together, strict=True):
                slot.length += piece.shape[1]
                if not differ_by_rounding(ours, model.read(piece, Rows.one_each(keys), cache)):
                    return False
    except Exception as error:  # its code takes no such positions or masks
        if is_out_of_memory(error):
            raise
        return False
    return all(slot.num_layers == model.lm.config.num_hidden_layers for slot in slots)


_parting: WeakKeyDictionary[MultiExpertModel, bool] = WeakKeyDictionary()


def _rows_part(model: MultiExpertModel, keys: Sequence[str], first_layers_E: Sequence[int]) -> bool:
    """Whether rows may part within shared passes; tried once."""
    if model not in _parting:

        def read_in(slot: Slot, ids_ET: Tensor) -> Tensor:
            (hidden_ETD,) = read_together(model, [(slot, keys, ids_ET)])
            slot.length += ids_ET.shape[1]
            return hidden_ETD

        shared, separate = Slot(), Slot()
        shared.first_layers_E, separate.first_layers_E = first_layers_E, [0] * len(keys)
        _parting[model] = are_alike(model, len(keys), partial(read_in, shared), partial(read_in, separate))
    return _parting[model]
