"""Views of the specialization: a cell of the heatmap with its passages, and learning vs. forgetting of experts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from engine.text.split_names import HeldOutSplit
from jobs.queue.submit import submit
from ui.present.charts.colours import Looks, read_looks, with_mark
from ui.present.charts.heatmap import HeatmapScores
from ui.present.charts.scatters import retention_scatter
from ui.present.charts.token_view import difference_data
from ui.present.pages import LEARNED_AND_KEPT, SPECIALIZATION
from ui.present.text.formatting import plain, plain_with_code
from ui.present.text.retention import (
    HOW_TO_READ,
    describe_measured_text,
    describe_missing_evaluations,
    number_of,
    retention_rows,
)
from ui.present.text.specialization import describe_contrast, describe_passage
from ui.studio.job_views.job_view import show_last
from ui.widgets.address import choose_one, go_to
from ui.widgets.background import ask_scores
from ui.widgets.charts_and_tables import show_chart, show_table
from ui.widgets.elements.components import show_tokens
from ui.widgets.notices import cannot_change, explain_problems
from workbench.answers.cards import ExpertCard
from workbench.formatting.shell_command import shell_command, split_options
from workbench.questions.question import ask
from workbench.questions.retention import Metric, Retention, RetentionRequest, suggest_defaults
from workbench.questions.token_comparison import ContrastRequest, Passage, TokenComparison
from workbench.registry.database import reading

COMPARED = "specialization.compared"  # the names of the experts


def offer_retention(cards: Sequence[ExpertCard]) -> None:
    """The way to the comparison of these experts."""
    chosen = {COMPARED: [card.name for card in cards], "specialization.view": LEARNED_AND_KEPT}
    if st.button(
        "Compare learning and forgetting", icon=SPECIALIZATION.icon, on_click=st.session_state.update, args=(chosen,)
    ):
        go_to(SPECIALIZATION)


def show_retention(cards: Sequence[ExpertCard], split: HeldOutSplit, key: str) -> None:
    """Asks for the domain to be kept and for the targets, and shows these experts on them."""
    with reading() as session:
        defaults = suggest_defaults(session, [card.name for card in cards])
    left, right = st.columns([1, 2])
    retain = left.selectbox(
        "Domain that must not be forgotten",
        defaults.retain,
        key=f"{key}.retain",
        help="A domain that the base model knew and the experts were not trained on. The most often retained come "
        "first.",
    )
    there = sorted(name for name in defaults.retain if name != retain)
    targets = right.multiselect(
        "Target domains", there, [name for name in there if name in defaults.targets], key=f"{key}.targets.{retain}"
    )
    if retain is None or not targets:
        st.info("Choose a domain to be learned, and another one that must not be forgotten.")
        return
    names = [card.name for card in cards]
    with explain_problems():
        _show(ask(RetentionRequest(retain=retain, targets=targets, experts=names, split=split).answer), key)


def _show(answer: Retention, key: str) -> None:
    usual = number_of(answer)
    metrics: list[Metric] = ["accuracy", "perplexity"]
    number = st.segmented_control("Compare by", metrics, default=usual, key=f"{key}.number.{usual}", required=True)
    picture = retention_scatter(answer, number, read_looks())
    if picture:
        show_chart(picture, f"{key}_scatter")
        where = "Where names would overlap, hover a point to read its own."
        st.caption(plain(f"{describe_measured_text(answer)} {HOW_TO_READ} {where}"))
    else:
        st.info(plain(f"No expert here has its {number} measured on all of these domains."))
    st.markdown("## Each expert on each domain: higher accuracy and lower perplexity are better")
    show_table(retention_rows(answer), f"{key}_rows", f"Experts on {', '.join(answer.targets)} and {answer.retain}")
    if answer.missing:
        offer_scores(answer, key)


def offer_scores(answer: Retention, key: str) -> None:
    """What is missing, and the evaluations that make it, as a button and as commands."""
    st.warning("Some scores are missing. Only stored evaluations are compared.")
    for sentence, _ in describe_missing_evaluations(answer):
        st.caption(plain(sentence))
    for evaluation in answer.evaluations:
        st.code(evaluation.command, language="bash", wrap_lines=True)
    if answer.evaluations and st.button(
        "Score what is missing", icon=":material/send:", key=f"{key}.score", help=_HOW_SCORED, disabled=cannot_change()
    ):
        with explain_problems():
            for evaluation in answer.evaluations:
                st.session_state[f"{key}.scores.job"] = submit(evaluation.spec)
    show_last(f"{key}.scores")


_HOW_SCORED = "Scores each of these experts on the same tokens of a domain. Stored scores are not computed again."


EXPERT, DOMAIN, SIDE, PASSAGE = "contrast.expert", "contrast.domain", "contrast.side", "contrast.passage"
WORST, BEST = "Worst", "Best"
Cell = tuple[str, str]  # expert, domain


def choose_cell(cell: Cell) -> None:
    """Takes up another cell, with its first passage."""
    st.session_state[EXPERT], st.session_state[DOMAIN] = cell
    _go_to_first_passage()


def _go_to_first_passage() -> None:
    st.session_state[PASSAGE] = 1


def show_cell(shown: HeatmapScores, looks: Looks) -> Cell | None:
    """The second part: which cell, and its numbers. None where there is nothing to compare."""
    cells = shown.compared_cells()
    if not cells:
        st.caption("Score a second expert on a domain that has an expert of its own: then there is a cell to choose.")
        return None
    usual = max(cells, key=lambda cell: shown.cell(*cell).ratio or 0.0)
    title = st.empty()
    left, right = st.columns(2)
    expert = choose_one(
        left.selectbox, "Expert", shown.experts, key=EXPERT, usual=usual[0], on_change=_go_to_first_passage
    )
    domain = choose_one(
        right.selectbox, "Domain of the text", shown.domains, key=DOMAIN, usual=usual[1], on_change=_go_to_first_passage
    )
    title.markdown(f"## 2 · {plain(expert)} reading {plain(domain)}")
    _show_numbers(shown, looks, expert, domain)
    _draw_steps(cells, (expert, domain))
    return expert, domain


def _show_numbers(shown: HeatmapScores, looks: Looks, expert: str, domain: str) -> None:
    ratio, home = shown.cell(expert, domain).ratio, shown.own_expert(domain)
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
                "expert": plain(with_mark(name, looks.expert(name))),
                "perplexity (per token)": f"{shown.cell(name, domain).perplexity:,.1f}",
            }
            for name in names
        ]
    )


def _draw_steps(cells: list[Cell], cell: Cell) -> None:
    """Buttons to the cells before and after this one, row by row."""
    position = cells.index(cell) if cell in cells else 0
    with st.container(horizontal=True):
        for label, step in (("Previous cell", -1), ("Next cell", 1)):
            st.button(
                label,
                key=f"contrast.step{step}",
                on_click=choose_cell,
                args=(cells[(position + step) % len(cells)],),
            )


def show_passages(shown: HeatmapScores, cell: Cell, split: HeldOutSplit) -> None:
    """The third part: one passage, token by token."""
    expert, domain = cell
    home = shown.own_expert(domain)
    if home is None or home == expert:
        st.markdown("## 3 · The passage")
        st.info(plain(f"{expert} is the in-domain expert of {domain}: choose a cell of another domain."))
        return
    question = ContrastRequest(domain=domain, expert=expert, rival=home, split=split)
    if answer := ask_scores("contrast", question, "Comparing the two experts token by token"):
        _show_comparison(answer)


def _show_comparison(answer: TokenComparison) -> None:
    title = st.empty()
    left, right = st.columns(2)
    side = choose_one(left.segmented_control, "Passages", [WORST, BEST], default=WORST, key=SIDE, required=True)
    passages = answer.worst if side == WORST else answer.best
    title.markdown(f"## 3 · The passage where it {'loses' if side == WORST else 'wins'} most")
    st.caption(plain(describe_contrast(answer)))
    if not passages:
        st.info("No passage of this kind was scored.")
        return
    numbers = list(range(1, len(passages) + 1))
    number = choose_one(right.segmented_control, "Passage", numbers, default=1, key=PASSAGE, required=True)
    _show_passage(answer, passages[number - 1])
    names = (answer.domain, answer.expert, answer.rival)
    command = shell_command("evaluate", "contrast", *names, *split_options(answer.split))
    st.caption(plain_with_code(f"On the command line: `{command}`"))


def _show_passage(answer: TokenComparison, passage: Passage) -> None:
    st.caption(plain(describe_passage(passage)))
    data = difference_data(passage.tokens, passage.differences, answer.expert, answer.rival)
    show_tokens(data, "contrast.tokens")
