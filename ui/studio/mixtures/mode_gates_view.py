"""The parts of experts on the screen: switches for a request, and what the gates weighed in its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from engine.events import BACKBONE
from ui.present.charts.colours import in_order
from ui.present.charts.mode_gate_charts import gate_strip, gates_by_block
from ui.present.charts.posteriors import leaders, legend, render_tinted_text
from ui.present.forms.settings_in_address import not_used, part_values, read_parts
from ui.present.text.formatting import plain, pluralize
from ui.present.text.mode_gates import Gates, num_blocks, rows_inside
from ui.widgets.address import fresh, note, note_fault
from ui.widgets.show_chart import show_chart
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import PosteriorAnswer

_ALL = "All, on average"


def draw_parts(mixture: MixtureCard, address: str) -> dict[str, list[str]]:
    """Switches for the parts of every expert that has some; those that are on, by expert.

    Those that are off stand in the page's address under the key `address`; `show_fault` says what it could not mean.
    """
    parts = {member.expert: list(member.parts) for member in mixture.members if member.parts}
    keys = {one.expert: f"inside.{mixture.id}.{one.expert_id}.parts" for one in mixture.members}
    if (values := fresh(address)) is not None:
        on, faults = read_parts(values, parts)
        st.session_state.update({keys[expert]: names for expert, names in on.items()})
        note_fault(address, not_used(faults), part_values(parts, on))
    chosen = {
        expert: st.pills(
            f"Active parts of {plain(expert)}",
            names,
            selection_mode="multi",
            default=st.session_state.get(keys[expert], names),
            format_func=plain,
            key=keys[expert],
            help="Parts next to a frozen backbone (MoDE). With no part selected, only the backbone is used.",
        )
        for expert, names in parts.items()
    }
    note(address, part_values(parts, chosen))
    return chosen


def show_inside(answer: PosteriorAnswer, parts: Mapping[str, Sequence[str]]) -> None:
    """What the gates weighed inside each expert that spoke; `parts` are all of each, so that each keeps its colour."""
    for expert, names in parts.items():
        if any(expert in one for one in answer.gate_weights):
            _show_expert(expert, names, answer.tokens, answer.gate_weights)


def _show_expert(expert: str, parts: Sequence[str], tokens: Sequence[str], gates: Gates) -> None:
    st.markdown(f"##### Inside {plain(expert)}: words coloured by what weighed most, backbone or part")
    blocks = range(num_blocks(gates, expert))
    key = f"inside.{expert}"
    chosen = st.segmented_control(
        "Block",
        [_ALL, *(str(block + 1) for block in blocks)],
        default=_ALL,
        key=f"{key}.block",
        required=True,
        help="Each block of layers has gates of its own; in each, the weights add up to 1.",
    )
    rows = rows_inside(gates, expert, parts, None if chosen == _ALL else int(chosen) - 1)
    spoken = [token for token, one in zip(tokens, gates, strict=True) if expert in one]
    looks = in_order(parts)
    st.html(legend([BACKBONE, *parts], leaders(rows), looks))
    st.html(render_tinted_text(spoken, rows, [BACKBONE, *parts], looks))
    st.caption(plain(_words(gates, expert, parts, len(tokens) - len(spoken))))
    show_chart(gate_strip(spoken, rows, parts), f"{key}.strip")
    show_chart(gates_by_block([rows_inside(gates, expert, parts, block) for block in blocks], parts), f"{key}.blocks")


def _words(gates: Gates, expert: str, parts: Sequence[str], num_asleep: int) -> str:
    active = next(one[expert].parts for one in gates if expert in one)
    off = [part for part in parts if part not in active]
    sentences = [
        "Hover a word to read the weights; a stronger colour is a higher weight.",
        f"Switched off, so their weight is 0: {', '.join(off)}." if off else "",
        f"For {pluralize(num_asleep, 'token')} of the text this expert had weight 0 and was not computed."
        if num_asleep
        else "",
    ]
    return " ".join(filter(None, sentences))
