"""The experts: search, view one, compare several, enable and disable, delete."""

from __future__ import annotations

import streamlit as st

from ui.present.expert_table import expert_row, matches
from ui.present.next_steps import STEP_AFTER
from ui.present.pages import EXPERTS, TRAIN
from ui.present.text.formatting import pluralize
from ui.studio.experts.comparison import show_comparison
from ui.studio.experts.enable_experts import show_bulk_switches
from ui.studio.experts.expert_card import show_expert
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.shared.examples import show_example_experts
from ui.widgets.address import choose_one, choose_some, write_text
from ui.widgets.data_table import show_table, ticked
from ui.widgets.page_head import show_head, show_next_step
from workbench.analysis import perplexity_tables
from workbench.registry import experts
from workbench.registry.cards import EvaluationCard, ExpertCard
from workbench.registry.database import reading


def show() -> None:
    """Draws the page."""
    right = show_head(EXPERTS)
    with reading() as session:
        cards, scores = experts.list_experts(session), perplexity_tables.list_evaluations(session)
    if not cards:
        empty_until(
            "train-joint", "There is no expert yet.", "Train a DEMix model: one for each domain.", TRAIN.script, "Train"
        )
        show_example_experts()
        return
    show_next_step(right, STEP_AFTER[EXPERTS])
    shown, split = _filtered(cards)
    _show_registry(shown, scores, split)
    chosen = _chosen(cards)
    if len(chosen) == 1:
        show_expert(chosen[0])
    elif chosen:
        show_bulk_switches(chosen)
        show_comparison(chosen, scores, split)


def _filtered(cards: list[ExpertCard]) -> tuple[list[ExpertCard], str]:
    """The experts that are looked for, and the split that their numbers are to be of."""
    columns = st.columns([3, 2, 2, 2, 2], vertical_alignment="bottom")
    placeholder = "Names, domains, tags and notes"
    search = write_text(columns[0].text_input, "Search", key="experts.search", placeholder=placeholder)
    there_are = {
        "method": {card.method for card in cards},
        "domain": {name for card in cards for name in card.domains},
        "mixture": {name for card in cards for name in card.mixtures},
    }
    wanted = {
        field: choose_some(column.multiselect, field.capitalize(), sorted(names), key=f"experts.{field}")
        for column, (field, names) in zip(columns[1:-1], there_are.items(), strict=True)
    }
    split = choose_one(
        columns[-1].segmented_control,
        "Held-out text",
        ["test", "dev"],
        default="test",
        key="experts.split",
        required=True,
        help="Which stored scores perplexity and accuracy come from.",
    )
    return [card for card in cards if matches(card, search, **wanted)], split


def _show_registry(shown: list[ExpertCard], scores: list[EvaluationCard], split: str) -> None:
    def choose() -> None:
        places = [place for place in ticked("experts") if place < len(shown)]
        st.session_state["experts.chosen"] = [shown[place].name for place in places]

    st.caption(f"{pluralize(len(shown), 'expert')}. Tick one to see its card, several to compare them.")
    if shown:
        rows = [expert_row(card, scores, split) for card in shown]
        show_table(rows, "experts", "The registry of experts", on_select=choose)


def _chosen(cards: list[ExpertCard]) -> list[ExpertCard]:
    by_name = {card.name: card for card in cards}
    wanted = st.session_state.pop("renamed_to", None) or st.session_state.get("experts.chosen", [])
    kept = [name for name in wanted if name in by_name]
    if kept != st.session_state.get("experts.chosen"):
        st.session_state["experts.chosen"] = kept  # one of them has been deleted or renamed
    names = choose_some(st.multiselect, "Experts", list(by_name), key="experts.chosen")
    return [by_name[name] for name in names]


if __name__ == "__main__":
    show()
