"""What a training makes of its seed: the method, and the settings that only this method has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.methods.base import Method
from engine.methods.registry import get_method


@dataclass(frozen=True)
class Recipe:
    """`config` is one of the method's own dataclass; None stands for its defaults."""

    method: str = "demix"
    config: Any = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """The recipe made from the stored values of its fields."""
        return cls(data["method"], get_method(data["method"]).config_from(data["config"] or {}))

    @property
    def descriptor(self) -> Method:
        return get_method(self.method)

    def learns(self, keys: Sequence[str]) -> Sequence[str] | None:
        """The experts that learn alone; None: all that they share learns, too."""
        return keys if self.descriptor.base_is_frozen else None
