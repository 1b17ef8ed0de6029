"""One forward pass for the tokens of several streams, and whether a model can do it.

Every token is a row of its own, whatever its expert, so texts of different lengths need no padding: linear maps read
their weights once for all rows, and attention is computed for each stream separately, over its own keys and values.

Shapes: N rows of a pass, one token each; E experts of a stream, T positions, D width; H heads, A their width, M tokens
of a stream's experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engine.device import is_onednn_faster
from engine.errors import is_out_of_memory
from engine.models.discovery import keeps_other_states
from engine.models.likelihoods import decoder_of
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows, with_rows

_BLOCK = 64  # positions by which a cache grows at least
_FEW_TOKENS = 8  # of a stream that decodes


class Slot:
    """The keys and values of a stream's rows, by layer; gone when the stream is."""

    def __init__(self) -> None:
        self.length = 0
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}  # [E, H, capacity, A] each

    @property
    def num_layers(self) -> int:
        """Layers that have written keys and values."""
        return len(self._layers)

    def append(self, layer: int, keys_EHTA: Tensor, values_EHTA: Tensor) -> tuple[Tensor, Tensor]:
        """Writes keys and values behind the read positions; gives all up to there [E, H, S, A]."""
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
        """One row, which reads on separately: it writes behind the read positions, where the whole writes over it."""
        row = Slot()
        row.length = self.length
        row._layers = {
            layer: (keys[index : index + 1], values[index : index + 1])
            for layer, (keys, values) in self._layers.items()
        }
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


class _Share(NamedTuple):
    """A stream's part of a pass: tokens [E, T], and the row of each."""

    slot: Slot
    ids_ET: Tensor
    rows_ET: Tensor


class _Pass(NamedTuple):
    shares: Sequence[_Share]
    places_N: Tensor  # the rows, in the order of the shares
    order_N: Tensor  # from the order of the shares to that of the rows

    def attend(self, module: Any, *states_NH1A: Tensor, **options: Any) -> tuple[Tensor, None]:
        """Attention [N, 1, H, A] of each stream's tokens over its own text."""
        sizes = [share.rows_ET.numel() for share in self.shares]
        by_share = [states[self.places_N, :, 0].split(sizes) for states in states_NH1A]  # one gather for all streams
        own = zip(self.shares, *by_share, strict=True)
        parts = [self._attend(share, module, states_MHA, options) for share, *states_MHA in own]
        return torch.cat(parts)[self.order_N], None

    def _attend(self, share: _Share, module: Any, states_MHA: Sequence[Tensor], options: Mapping[str, Any]) -> Tensor:
        num_rows, num_new = share.rows_ET.shape
        own = [states.unflatten(0, (num_rows, num_new)).transpose(1, 2) for states in states_MHA]
        query, new_keys, new_values = own
        keys, values = share.slot.append(module.layer_idx, new_keys, new_values)
        mask = None
        if 1 < num_new < keys.shape[2]:
            mask = torch.ones(num_new, keys.shape[2], dtype=torch.bool, device=query.device)
            mask = mask.tril(keys.shape[2] - num_new)[None, None]
        if num_new <= _FEW_TOKENS and _is_faster_in_float32(query):
            query, keys, values = query.float(), keys.float(), values.float()
        out_ETHA: Tensor
        out_ETHA, _ = _plain_attention()(module, query, keys, values, mask, **options)
        return out_ETHA.flatten(0, 1)[:, None].to(new_keys.dtype)


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
    present = [key for key in model.keys if any(key in keys for _, keys, _ in wanted)]
    rows: list[list[Any]] = [[None] * len(keys) for _, keys, _ in wanted]
    counts, row = [], 0
    for key in present:
        began = row
        for stream, (_, keys, ids_ET) in enumerate(wanted):
            if key in keys:
                rows[stream][list(keys).index(key)] = torch.arange(row, row + ids_ET.shape[1])
                row += ids_ET.shape[1]
        counts.append(row - began)
    shares = [_Share(slot, ids_ET, torch.stack(own)) for (slot, _, ids_ET), own in zip(wanted, rows, strict=True)]
    places_N = torch.cat([share.rows_ET.flatten() for share in shares])
    order_N = places_N.argsort()
    ids_N = torch.cat([share.ids_ET.flatten() for share in shares])[order_N]
    positions = [slot.length + torch.arange(ids.shape[1]).expand(ids.shape) for slot, _, ids in wanted]
    positions_N = torch.cat([position.flatten() for position in positions])[order_N].to(model.device)
    unmasked = torch.ones(row, 1, 1, 1, dtype=torch.bool, device=model.device)  # masks are made for each stream
    token = _pass.set(_Pass(shares, places_N, order_N))
    try:
        with with_rows(Rows(tuple(present), tuple(counts))):
            out = decoder_of(model.lm)(
                input_ids=ids_N[:, None], position_ids=positions_N[:, None], attention_mask=unmasked, use_cache=False
            )
    finally:
        _pass.reset(token)
    return [out.last_hidden_state[share.rows_ET.flatten(), 0].unflatten(0, share.rows_ET.shape) for share in shares]


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
                if not _differ_by_rounding(ours, model.read(piece, Rows.one_each(keys), cache)):
                    return False
    except Exception as error:  # its code takes no such positions or masks
        if is_out_of_memory(error):
            raise
        return False
    return all(slot.num_layers == model.lm.config.num_hidden_layers for slot in slots)


def _differ_by_rounding(ours_ETD: Tensor, theirs_ETD: Tensor) -> bool:
    """Whether no token's state is further from the other than the root of the precision, as a share of its length.

    A single element may be far off by mere rounding, the length of all is not: of SmolLM2-135M 4e-6 in float32, 0.0007
    in float16, 0.025 in bfloat16, where this allows 0.0003, 0.03 and 0.09; one key left out makes 0.16, wrong positions
    0.92.
    """
    ours, theirs = ours_ETD.float(), theirs_ETD.float()
    least = torch.finfo(theirs_ETD.dtype).eps ** 0.5
    return bool(((ours - theirs).norm(dim=-1) <= least * theirs.norm(dim=-1)).all())
