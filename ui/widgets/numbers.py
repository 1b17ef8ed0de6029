"""A field for a number that says when it is out of its range.

Streamlit's own bounds keep the last valid number in silence, and a button would send that one. Here the number that was
written is the field's value, the fault stands beneath it, and whoever draws the button refuses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.present.forms.number_faults import number_fault
from ui.present.text.formatting import plain


class DrawnNumber(NamedTuple):
    """What was written, in its range or not, and what is wrong with it, if anything; a whole number is an int."""

    value: Any
    fault: str


def draw_number(
    label: str,
    *,
    key: str,
    default: float | None,
    lowest: float | None = None,
    highest: float | None = None,
    is_integer: bool = True,
    step: float = 1,
    help: str | None = None,
    place: DeltaGenerator | None = None,
    instead: float | None = None,
) -> DrawnNumber:
    """The field, with its fault beneath it. `instead` is what is used while there is one, where anything is."""
    value = None if default is None else float(default)
    with (place or st).container(gap="xsmall", key=f"number.{key}"):
        # Whole ones are floats for Streamlit, too: of an int it cuts off a fraction, and keeps the last one of 2**53.
        written = st.number_input(plain(label), value=value, step=float(step), format="%g", key=key, help=help)
        _mark_ends(written, step, lowest, highest)
        fault = number_fault(label, written, lowest, highest, is_integer)
        if fault:
            used = "" if instead is None else f" Used until then: {instead:g}."
            st.error(plain(fault + used), icon=":material/error:")
    if is_integer and written is not None and written == int(written):
        return DrawnNumber(int(written), fault)
    return DrawnNumber(written, fault)


def _mark_ends(value: float | None, step: float, lowest: float | None, highest: float | None) -> None:
    """Marks an end of the range that one more step would leave: the style sheet takes that button away."""
    is_lowest = value is not None and lowest is not None and value - step < lowest
    is_highest = value is not None and highest is not None and value + step > highest
    ends = ["at-lowest"] * is_lowest + ["at-highest"] * is_highest
    if ends:
        st.html(f'<i class="unseen {" ".join(ends)}"></i>')
