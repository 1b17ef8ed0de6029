"""What specs of trainings share that choose a method: its settings, in a group of their own or as `options`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import JsonValue, field_validator, model_validator

from engine.errors import EngineError
from engine.methods.base import Method
from engine.methods.registry import get_method
from workbench.specs.base import Spec

OPTIONS = "Settings of a method that has no group of its own, as a JSON object."


class MethodSettings(Spec):
    """A spec with the fields `method` and `options`; groups of settings are named by the methods' `config_field`."""

    if TYPE_CHECKING:
        method: str
        options: dict[str, JsonValue]

    offered: ClassVar[Callable[[], Mapping[str, Method]]]  # the methods to choose from, the usual one first

    @field_validator("method", check_fields=False)
    @classmethod
    def _is_offered(cls, value: str) -> str:
        if value not in cls.offered():
            raise ValueError(f"there is no such method; choose one of {', '.join(cls.offered())}")
        return value

    @field_validator("options", mode="before", check_fields=False)
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _configured(self) -> Self:
        method = get_method(self.method)
        if self.options and method.config_field != "options":
            raise ValueError(f"options must be empty with the method {self.method}: set {method.config_field} instead")
        try:
            _ = self.method_config
        except EngineError as error:
            raise ValueError(str(error).rstrip(".")) from None
        return self

    @property
    def method_config(self) -> Any:
        """The settings of this spec's method, as its own dataclass; None if it has none."""
        method = get_method(self.method)
        group = getattr(self, method.config_field)
        return method.config_from(group) if group is self.options else group
