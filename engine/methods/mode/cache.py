"""The keys and values of a text that experts of MoDE read: they follow their layers to wherever these lie by now.

A model may leave memory in the middle of a text, and come back with its experts in another order or in other company.
"""

from __future__ import annotations

from collections.abc import Mapping

from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class PartsCache(DynamicCache):
    """A cache that knows where the layers of each expert lay when it was used last."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, range] = {}

    def follow(self, places: Mapping[str, range], num_backbone: int) -> None:
        """Puts what each expert kept where its layers lie now; the backbone's are the first in every model."""
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
