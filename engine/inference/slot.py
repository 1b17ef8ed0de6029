"""The key-value cache of one stream that shares its forward passes with others.

Shapes: E rows, H heads, T new positions, S positions in the cache, A width of a head.
"""

from __future__ import annotations

from torch import Tensor

_BLOCK = 64  # positions by which a cache grows at least


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
            keys, values = self._grown(keys, keys_EHTA), self._grown(values, values_EHTA)
            self._layers[layer] = keys, values
        keys[:, :, self.length : end] = keys_EHTA
        values[:, :, self.length : end] = values_EHTA
        return keys[:, :, :end], values[:, :, :end]

    def crop(self, length: int) -> None:
        """Forgets what was read from this position on; what comes next is written over it."""
        self.length = min(self.length, length)

    def row(self, place: int) -> Slot:
        """One row, which reads on by itself: it writes behind the read positions, where the whole writes over it."""
        row = Slot()
        row.length = self.length
        row._layers = {
            layer: (keys[place : place + 1], values[place : place + 1])
            for layer, (keys, values) in self._layers.items()
        }
        return row

    def num_bytes(self) -> int:
        """Bytes of keys and values, with what they may grow by."""
        return sum(tensor.nbytes for pair in [*self._layers.values()] for tensor in pair)

    def _grown(self, kept: Tensor | None, new: Tensor) -> Tensor:
        num_rows, heads, coming, width = new.shape
        capacity = -(-(self.length + coming) * 5 // 4 // _BLOCK) * _BLOCK
        grown = new.new_empty(num_rows, heads, capacity, width)
        if kept is not None:
            grown[:, :, : self.length] = kept[:, :, : self.length]
        return grown
