"""The story of a cell of the heatmap: its numbers, and the passages where its expert differs most from the own one."""

from __future__ import annotations

import math

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import Looks, marked
from ui.present.charts.heatmap import Scores
from ui.present.charts.token_view import difference_data
from ui.present.text.formatting import plain, spoken
from ui.present.text.specialization import contrast_words, passage_words
from ui.widgets.address import choose_one
from ui.widgets.background import ask_scores
from ui.widgets.elements.components import show_tokens
from workbench.formatting.shell_command import shell_command, split_options
from workbench.questions.token_comparison import ContrastRequest, Passage, TokenComparison

EXPERT, DOMAIN, SIDE, PASSAGE = "contrast.expert", "contrast.domain", "contrast.side", "contrast.passage"
WORST, BEST = "Worst", "Best"
Cell = tuple[str, str]  # expert, domain


def choose_cell(cell: Cell) -> None:
    """Takes up another cell, with its first passage."""
    st.session_state[EXPERT], st.session_state[DOMAIN] = cell
    _go_to_first_passage()


def _go_to_first_passage() -> None:
    st.session_state[PASSAGE] = 1


def show_cell(shown: Scores, looks: Looks) -> Cell | None:
    """The second part: which cell, and its numbers. None where there is nothing to compare."""
    cells = shown.compared()
    if not cells:
        st.caption("Score a second expert on a domain that has an expert of its own: then there is a cell to choose.")
        return None
    usual = max(cells, key=lambda cell: shown.ratio(*cell) or 0.0)
    title = st.empty()
    left, right = st.columns(2)
    expert = choose_one(
        left.selectbox, "Expert", shown.experts, key=EXPERT, usual=usual[0], on_change=_go_to_first_passage
    )
    domain = choose_one(
        right.selectbox, "Domain of the text", shown.domains, key=DOMAIN, usual=usual[1], on_change=_go_to_first_passage
    )
    title.markdown(f"##### 2 · {plain(expert)} reading {plain(domain)}")
    _show_numbers(shown, looks, expert, domain)
    _draw_steps(cells, (expert, domain))
    return expert, domain


def _show_numbers(shown: Scores, looks: Looks, expert: str, domain: str) -> None:
    ratio, home = shown.ratio(expert, domain), shown.own_expert(domain)
    if home is None or ratio is None:
        st.info("This cell has not been scored.")
        return
    times, nats = st.columns(2)
    times.metric("of the in-domain expert's perplexity", f"{ratio:.2f} ×")
    nats.metric("nats per token", f"{-math.log(ratio):+.2f}".replace("-", "−"))
    names = dict.fromkeys((expert, home))
    st.table(
        [
            {
                "expert": plain(marked(name, looks.expert(name))),
                "perplexity (per token)": f"{shown.perplexity_of(name, domain):,.1f}",
            }
            for name in names
        ]
    )


def _draw_steps(cells: list[Cell], cell: Cell) -> None:
    """Buttons to the cells before and after this one, row by row."""
    place = cells.index(cell) if cell in cells else 0
    with st.container(horizontal=True):
        for label, step in (("Previous cell", -1), ("Next cell", 1)):
            st.button(
                label,
                key=f"contrast.step{step}",
                on_click=choose_cell,
                args=(cells[(place + step) % len(cells)],),
            )


def show_passages(shown: Scores, cell: Cell, split: HeldOutSplit) -> None:
    """The third part: one passage, token by token."""
    expert, domain = cell
    home = shown.own_expert(domain)
    if home is None or home == expert:
        st.markdown("##### 3 · The passage")
        st.info(plain(f"{expert} is the in-domain expert of {domain}: choose a cell of another domain."))
        return
    question = ContrastRequest(domain=domain, expert=expert, rival=home, split=split)
    if answer := ask_scores("contrast", question, "Comparing the two experts token by token"):
        _show(answer)


def _show(answer: TokenComparison) -> None:
    title = st.empty()
    left, right = st.columns(2)
    side = choose_one(left.segmented_control, "Passages", [WORST, BEST], default=WORST, key=SIDE, required=True)
    passages = answer.worst if side == WORST else answer.best
    title.markdown(f"##### 3 · The passage where it {'loses' if side == WORST else 'wins'} most")
    st.caption(plain(contrast_words(answer)))
    if not passages:
        st.info("No passage of this kind was scored.")
        return
    numbers = list(range(1, len(passages) + 1))
    place = choose_one(right.segmented_control, "Passage", numbers, default=1, key=PASSAGE, required=True)
    _show_passage(answer, passages[place - 1])
    names = (answer.domain, answer.expert, answer.rival)
    command = shell_command("evaluate", "contrast", *names, *split_options(answer.split))
    st.caption(spoken(f"On the command line: `{command}`"))


def _show_passage(answer: TokenComparison, passage: Passage) -> None:
    st.caption(plain(passage_words(passage)))
    data = difference_data(passage.tokens, passage.differences, answer.expert, answer.rival)
    show_tokens(data, "contrast.tokens")
