"""What is wrong with a number of a form, as a sentence: it is out of its range, or not whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ui.present.forms.questions import Question


def number_fault(label: str, value: float | None, lowest: float | None, highest: float | None, is_integer: bool) -> str:
    """What is wrong with a number, and what it must be; empty where nothing is."""
    if value is None:
        return ""
    is_in_range = (lowest is None or lowest <= value) and (highest is None or value <= highest)
    if is_in_range and (not is_integer or value == int(value)):
        return ""
    kind = "a whole number" if is_integer else "a number"
    return f"{label} must be {kind}{_range_words(lowest, highest)}, not {_digits(value)}."


def number_faults(questions: Iterable[Question], answers: Mapping[tuple[str, ...], Any]) -> list[str]:
    """What is wrong with the numbers among the answers."""
    numbers = [one for one in questions if one.answer_type in ("integer", "number")]
    faults = [fault_of(one, answers.get(one.path)) for one in numbers]
    return [fault for fault in faults if fault]


def fault_of(question: Question, value: float | None) -> str:
    """What is wrong with a number as the answer to a question."""
    return number_fault(
        question.label, value, question.minimum, question.maximum, is_integer=question.answer_type == "integer"
    )


def _range_words(lowest: float | None, highest: float | None) -> str:
    if lowest is not None and highest is not None:
        return f" from {_digits(lowest)} to {_digits(highest)}"
    if lowest is not None:
        return f" of at least {_digits(lowest)}"
    return f" of at most {_digits(highest)}" if highest is not None else ""


def _digits(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
