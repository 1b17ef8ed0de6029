"""Parses specs.

A spec validates itself, is stored as JSON with its job, and is the job's only input. The specs of the kinds of job are
in `workbench.kinds`. Every description is shown as form help and in `--help`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from workbench.errors import BadSpecError, Complaint
from workbench.kinds.kind import kind_named
from workbench.specs.base import Sane

SpecType = TypeVar("SpecType", bound=Sane)


def parse_spec(data: dict[str, Any]) -> Any:
    """A job's spec from its JSON. Raises BadSpecError with all complaints at once."""
    return parse_as(kind_named(data.get("kind")).spec, data)


def unreadable_reason(data: dict[str, Any]) -> str:
    """Why a queued job with this spec waits for another worker, as a sentence; empty if this version can read it."""
    try:
        parse_spec(data)
    except BadSpecError as bad:
        fault = bad.complaints[0].partition(";")[0].rstrip(".")  # without the list of all kinds
        return f"Waits for a newer worker, or one with its plug-in: its spec cannot be read here ({fault})."
    return ""


def paths_read(data: dict[str, Any]) -> list[str]:
    """The local file or folder that a job with this spec reads, if any.

    If the spec is invalid or its kind is not installed: every text in it, since any of them may be that path.
    """
    try:
        path = kind_named(data.get("kind")).reads(parse_spec(data))
    except BadSpecError:
        return [*_texts(data)]
    return [path] if path else []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def parse_as(spec: type[SpecType], data: dict[str, Any]) -> SpecType:
    """A spec, or a question, of this type. Raises BadSpecError with all complaints at once."""
    try:
        return spec.model_validate(data)
    except ValidationError as error:
        raise BadSpecError(complaints_of(error)) from None


def complaints_of(error: ValidationError) -> list[Complaint]:
    """A complaint for each validation error, with the path of its field."""
    complaints = []
    for details in error.errors():
        if details["type"] != "default_factory_not_called":  # the field that it waits for has a fault of its own
            field = tuple(str(part) for part in details["loc"])
            complaints.append(Complaint(f"{_complaint(details)}.", field))
    return complaints


def _complaint(details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            return "is missing"
        case "too_short":
            return f"give at least {context['min_length']}, not {context['actual_length'] or 'none'}"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "there is no such field"
        case "string_too_short":
            return "must not be empty"
        case "value_error" | "assertion_error":
            return str(context["error"])
        case type if type in _EXPECTED:
            return f"must be {_EXPECTED[type].format(**context)}, not {details['input']!r}"
    return details["msg"]


_EXPECTED = {  # by the type of pydantic's errors
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a JSON object",
    "dataclass_type": "a JSON object",
    "model_type": "a JSON object",
    "model_attributes_type": "a JSON object",
}
