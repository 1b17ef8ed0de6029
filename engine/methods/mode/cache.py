"""The cache of keys and values of MoDE experts, which follows their layers when these move.

A model may be unloaded in the middle of a text and reloaded with its experts in another order or with others.
"""

from __future__ import annotations

from collections.abc import Mapping

from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class PartsCache(DynamicCache):
    """A cache that knows the positions of each expert's layers at its last use."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, range] = {}

    def follow(self, places: Mapping[str, range], num_backbone: int) -> None:
        """Moves each expert's entries to its layers' new positions; the backbone's are the first in every model."""
        if self.layers and places != self._places:
            kept = {
                now: self.layers[before]
                for key in places.keys() & self._places.keys()
                for before, now in zip(self._places[key], places[key], strict=True)
            }
            size = max(kept, default=-1) + 1
            self.layers = self.layers[:num_backbone]
            self.layers += [kept.get(place, DynamicLayer()) for place in range(num_backbone, size)]
        self._places = dict(places)
