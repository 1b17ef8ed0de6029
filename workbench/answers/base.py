"""The base of all answers: typed results of the services, which the API, its client and the CLI pass on as they are."""

from __future__ import annotations

from typing import Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict

# JSON whose fields belong to somebody else: to a plug-in, to a kind of job or report, or to a library's file format.
# `tests/test_answers.py` lists every place where it crosses a package boundary (docs/decisions/0031-json-objects.md).
JsonObject: TypeAlias = dict[str, Any]


class Answer(BaseModel):
    """A frozen result; its field names are those of its JSON. Fields that it does not know are ignored when read."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def from_fields(cls, source: object, /, **computed: object) -> Self:
        """One with the fields of a row or a question that have its names, and computed ones; others have defaults."""
        names = [name for name in cls.model_fields if name not in computed and hasattr(source, name)]
        return cls(**{name: getattr(source, name) for name in names}, **computed)
