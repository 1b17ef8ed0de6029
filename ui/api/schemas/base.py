"""What all request bodies share: unknown fields are refused, and null may mean that a field was left out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from ui.serving.security import MAX_BODY_BYTES
from workbench.spec_base import Sane

MAX_NAMED = 1024  # experts of one request, or parts of one expert


class FieldError(ValueError):
    """What is wrong with a field that is only wrong beside others."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


Names = Annotated[list[str], Field(max_length=MAX_NAMED)]


class RequestBody(Sane):
    """Refuses unknown fields and unpaired surrogates: pydantic checks text only where it has a bound."""

    model_config = ConfigDict(extra="forbid", str_max_length=MAX_BODY_BYTES)


class Nullable(RequestBody):
    """Null means that a field was left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in data.items() if value is not None or name not in optional}
