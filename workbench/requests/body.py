"""What all request bodies share: unknown fields are refused, and null may mean that a field was left out.

How much a body holds is looked at before its fields are: thousands of faults would take longer than an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from workbench.specs.base import Sane

MAX_NAMED = 1024  # experts of one request, or parts of one expert
MAX_TEXT = 4096  # characters of a text that is no prompt, such as a name
MAX_ITEMS = 4096  # of one list or object
MAX_VALUES = 65_536  # of a body: texts, numbers, lists and objects together
_BOUNDED = ("prompt", "spec", "stop")  # by bounds of their own
MAX_FIELDS = 256  # of an object whose fields are known


class FieldError(ValueError):
    """What is wrong with a field that is only wrong beside others."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


Names = Annotated[list[str], Field(max_length=MAX_NAMED)]


class RequestBody(Sane):
    """Refuses unknown fields and unpaired surrogates: pydantic checks text only where it has a bound.

    `hints` are fields of known clients that ask a server to be quicker, and change nothing in an answer: they may be
    there.
    """

    model_config = ConfigDict(extra="forbid", str_max_length=MAX_TEXT)
    hints: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if len(data) > MAX_FIELDS:
            raise ValueError(f"an object must have at most {MAX_FIELDS} fields, but one has {len(data):,}")
        require_few_values(data)
        return {name: value for name, value in data.items() if name not in cls.hints} if cls.hints else data


def require_few_values(data: Mapping[str, Any]) -> None:
    """Raises ValueError for a body that holds more values than any request needs; only its containers are walked."""
    left, number = [value for name, value in data.items() if name not in _BOUNDED], len(data)
    while left:
        value = left.pop()
        if isinstance(value, dict | list):
            number += len(value)
            if len(value) > MAX_ITEMS or number > MAX_VALUES:
                raise ValueError(
                    f"a request must hold at most {MAX_ITEMS:,} values in a list or object, and {MAX_VALUES:,} in all"
                )
            inner = value.values() if isinstance(value, dict) else value
            left += [one for one in inner if isinstance(one, dict | list)]


class Nullable(RequestBody):
    """Null means that a field was left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in data.items() if value is not None or name not in optional}
