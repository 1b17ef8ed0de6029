"""The specialization of experts: heatmap, overlap, oracle gap, removal and forgetting, from stored scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.text.split_names import HeldOutSplit
from jobs.queue.submit import submit
from ui.present.charts.colours import Looks, read_looks
from ui.present.charts.heatmap import HeatmapScores, specialization
from ui.present.charts.scatters import affinity_scatter
from ui.present.jobs.job_status import coming
from ui.present.pages import LEARNED_AND_KEPT, SHARED_TEXT, SPECIALIZATION
from ui.present.text.formatting import ago, listed, plain, plain_with_code
from ui.present.text.measures import RULE, describe_measures
from ui.present.text.specialization import HOW_TO_MEASURE, describe_affinity, describe_missing_cells
from ui.studio.analysis.specialization_views import (
    COMPARED,
    Cell,
    choose_cell,
    show_cell,
    show_passages,
    show_retention,
)
from ui.studio.experts.certificates import show_removal
from ui.studio.job_views.job_view import show_last
from ui.studio.job_views.pending_jobs import empty_until_scored, empty_until_trained, offer_scoring, unfinished_jobs
from ui.studio.mixtures.effect_view import show_oracle_gap
from ui.studio.mixtures.mixture_controls import saved_request
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one, choose_split, write_text
from ui.widgets.charts_and_tables import click_position, show_chart, show_table
from ui.widgets.elements.components import bring_into_view
from ui.widgets.notices import cannot_change, empty, explain_problems
from ui.widgets.page_head import show_head
from workbench.analysis import perplexity_tables
from workbench.analysis.missing_scores import evaluations_of_cells
from workbench.analysis.perplexity_tables import scored_domains
from workbench.answers.cards import ExpertCard
from workbench.kinds.analysis import MeasureOverlap
from workbench.questions.affinity import Affinity, AffinityRequest
from workbench.questions.question import ask
from workbench.registry import experts, mixtures
from workbench.registry.database import reading

KIND = "measure-overlap"


def show_affinity(mixture: str | None, split: HeldOutSplit, _: HeatmapScores) -> None:
    """The scatter plot, what its correlation says, and how to measure the overlap (again)."""
    answer = ask(AffinityRequest(mixture=mixture, split=split).answer)
    picture = affinity_scatter(answer, read_looks())
    if picture:
        show_chart(picture, "affinity")
    for sentence in describe_affinity(answer) if answer.report else []:
        st.markdown(plain_with_code(sentence))
    _offer_measuring(answer)
    show_last(KIND)


def _offer_measuring(answer: Affinity) -> None:
    if answer.measured_at is None:
        empty(
            "The overlap of the domains has not been measured yet.",
            f"Measure it here, or in a terminal: `{HOW_TO_MEASURE}`. It reads at most 8 MiB of each domain.",
        )
    else:
        st.caption(plain(f"The overlap was measured {ago(answer.measured_at)}."))
    is_coming = coming(unfinished_jobs(), KIND) is not None
    label = "Measure the overlap again" if answer.report else "Measure the overlap"
    if st.button(label, icon=":material/join_inner:", key="overlap.submit", disabled=cannot_change() or is_coming):
        with explain_problems():
            st.session_state[f"{KIND}.job"] = submit(MeasureOverlap())
            st.rerun()


ALL = "All experts"
_AT_FIRST = 12  # experts that are compared until others are chosen
_MOST = 50  # rows and columns of the heatmap
_CLICKS = "specialization.clicks"  # on cells


def show() -> None:
    """Draws the page."""
    show_head(SPECIALIZATION)
    with reading() as session:
        names = [card.name for card in mixtures.most_useful_first(session)]
        cards = experts.list_experts(session)
    if not cards:
        empty_until_trained("There is no expert yet.", "Train a DEMix model: one for each domain.")
        show_example(SPECIALIZATION)
        return
    columns = st.columns([3, 2, 7], vertical_alignment="bottom")
    mixture, split = _draw_choices(columns[0], columns[1], names)
    view = choose_one(
        columns[2].segmented_control,
        "View",
        list(_VIEWS),
        default=next(iter(_VIEWS)),
        key="specialization.view",
        required=True,
        wrap=True,
    )
    scores = _scores(mixture, split, cards)
    if not scores.domains and view != LEARNED_AND_KEPT:  # which has experts of its own
        why = f"None of these experts has been scored on the {split} split yet."
        empty_until_scored(why, "Evaluate its mixture: the scores are stored once.", mixture, split)
        return
    _VIEWS[view](mixture, split, scores)


def _show_heatmap(mixture: str | None, split: HeldOutSplit, scores: HeatmapScores) -> None:
    """The story: the heatmap, a cell of it, and a passage behind the cell. What is chosen stands in the address."""
    first = st.container(border=True)
    with first:
        scores = _within_limit(scores)
    shown = scores.at_home_somewhere()
    if not shown.domains:
        with first:
            _show_table(scores)
        _show_missing_scores(mixture, split, scores)
    else:
        looks = read_looks()
        _show_missing_scores(mixture, split, shown)
        left, right = st.columns([5, 8])
        with left, st.container(border=True, key="chosen_cell"):
            cell = show_cell(shown, looks)
        with first:
            _show_scores(scores, looks, cell)
        bring_into_view(".st-key-chosen_cell", st.session_state.get(_CLICKS, 0), "chosen_cell_in_view")
        if cell:
            with right, st.container(border=True):
                show_passages(shown, cell, split)
    with st.expander("How this is measured", icon=":material/straighten:"):
        _show_reading_guide(scores)


def _within_limit(scores: HeatmapScores) -> HeatmapScores:
    """At most 50 rows and columns, with a field that brings others to the front."""
    counts = len(scores.experts), len(scores.domains)
    if max(counts) <= _MOST:
        return scores
    search = write_text(st.text_input, "Find an expert or a domain", key="specialization.search")
    scores = scores.at_most(_MOST, search)
    st.caption(
        f"{len(scores.experts):,} of {counts[0]:,} experts and {len(scores.domains):,} of {counts[1]:,} domains: "
        "those with the greatest ratios. What you search for comes first."
    )
    return scores


def _show_reading_guide(scores: HeatmapScores) -> None:
    st.caption(plain(describe_measures(scores.texts)))
    has_homes = bool(scores.at_home_somewhere().domains)
    if out_of_domain := scores.without_own_expert() if has_homes else []:
        st.caption(
            plain(
                f"Only in the table, because no expert here was trained on one of these only: {listed(out_of_domain)}."
            )
        )
    if has_homes:
        st.caption(
            "Numbers are ratios of perplexities on the same held-out tokens, and have no unit. "
            "Colours follow their logarithm, and end at the 95th percentile, so that an outlier does not hide others."
        )
    if scores.accuracy_is_known():
        where = "in the table and on a cell" if has_homes else "in the table"
        st.caption(f"Accuracy, {where}, is the share of tokens that the expert found most probable.")


def _show_gap(mixture: str | None, split: HeldOutSplit, _: HeatmapScores) -> None:
    if mixture is None:
        st.info("The oracle chooses among the experts of one mixture: choose a mixture above.")
        return
    with reading() as session:
        card = mixtures.get_mixture(session, mixture)
    show_oracle_gap(saved_request(card), split)


def _show_removal(mixture: str | None, _split: str, _scores: HeatmapScores) -> None:
    if mixture is None:
        st.info("An expert is removed from a mixture: choose one above.")
        return
    show_removal(mixture)


def _show_retention(mixture: str | None, split: HeldOutSplit, _: HeatmapScores) -> None:
    with reading() as session:
        cards = experts.list_experts(session)
    members = [card for card in cards if mixture in card.mixtures]
    made_of = {one["name"] for card in members for one in card.config.get("composed_of", ())}
    own = members + [card for card in cards if card.name in made_of and card not in members]
    cards = own + [card for card in cards if card not in own]
    chosen_before = [card for card in cards if card.name in st.session_state.get(COMPARED, ())]
    comparable = {
        one.name: one for one in cards if one.tokenizer_sha256 == (chosen_before or cards)[0].tokenizer_sha256
    }
    if not set(st.session_state.get(COMPARED, ["none yet"])) <= set(comparable):
        kept = [card.name for card in chosen_before if card.name in comparable]
        if others := [card.name for card in chosen_before if card.name not in comparable]:
            st.info(plain(f"Left out, since their tokenizer differs from that of {kept[0]}: {listed(others)}."))
        usual = [card.name for card in own if card.name in comparable] or [*comparable]
        st.session_state[COMPARED] = kept or usual[:_AT_FIRST]
    chosen = st.multiselect(
        "Experts to compare",
        list(comparable),
        key=COMPARED,
        help="Of any method, such as full fine-tuning (dense), LoRA and MoDE. They must share a tokenizer.",
    )
    if chosen:
        show_retention([comparable[name] for name in chosen], split, "retention")


_VIEWS: dict[str, Callable[[str | None, HeldOutSplit, HeatmapScores], None]] = {
    "Specialization heatmap": _show_heatmap,
    SHARED_TEXT: show_affinity,
    "Oracle gap": _show_gap,
    "Removal": _show_removal,
    LEARNED_AND_KEPT: _show_retention,
}


def _show_scores(scores: HeatmapScores, looks: Looks, cell: Cell | None) -> None:
    shown = scores.at_home_somewhere()

    def choose() -> None:
        point = click_position("specialization")
        if point and point[0] < len(shown.domains) and point[1] < len(shown.experts):
            choose_cell((shown.experts[point[1]], shown.domains[point[0]]))
            st.session_state[_CLICKS] = st.session_state.get(_CLICKS, 0) + 1

    picture = specialization(scores, looks, cell)
    show_chart(replace(picture, title=f"1 · {picture.title}"), "specialization", choose)


def _show_table(scores: HeatmapScores) -> None:
    st.info("No expert here was trained on only one of these domains, so there is no in-domain expert to compare with.")
    show_table(scores.rows(has_homes=False), "perplexities", "Perplexity of each expert on each domain")


def _show_missing_scores(mixture: str | None, split: HeldOutSplit, scores: HeatmapScores) -> None:
    """Which cells are empty, the button that fills them, and which experts take part in no answer."""
    with reading() as session:
        cards = {card.name: card for card in experts.list_experts(session)}
    elsewhere = [name for name in scores.unscored_experts() if name in scores.elsewhere]
    if elsewhere:
        st.caption(plain(f"No numbers here, since theirs are of other tokens than most: {listed(elsewhere)}. {RULE}"))
    # Without a mixture their tokenizer may be another one, of which no number compares.
    missing = [cell for cell in scores.missing_cells() if mixture or cell[0] not in elsewhere]
    if missing:
        why, specs = describe_missing_cells(missing), evaluations_of_cells(missing, scores.texts, split, cards, mixture)
        if specs:
            tokens_of = {text.domain: text.num_tokens for text in scores.texts}
            num_tokens = sum(tokens_of.get(domain, 0) for _, domain in missing)
            offer_scoring(why, specs, num_tokens, "specialization")
        else:
            st.warning(plain(f"{why} No mixture has their base, so none can score them."))
    if disabled := [name for name in scores.disabled if name in scores.experts]:
        st.caption(plain(f"Disabled, so no mixture uses them: {listed(disabled)}."))


def _draw_choices(left: DeltaGenerator, right: DeltaGenerator, names: list[str]) -> tuple[str | None, HeldOutSplit]:
    choice = choose_one(left.selectbox, "Experts of", [*names, ALL], key="specialization.mixture", on_change=_let_go)
    split = choose_split(right, "specialization.split")
    return None if choice == ALL else choice, split


def _let_go() -> None:
    """The experts to compare are those of the mixture that is chosen now."""
    st.session_state.pop(COMPARED, None)


def _scores(mixture: str | None, split: HeldOutSplit, cards: list[ExpertCard]) -> HeatmapScores:
    with reading() as session:
        table = perplexity_tables.perplexity_table(session, mixture, split)
        elsewhere = [name for name, splits in scored_domains(session).items() if split in splits]
    home_of = {card.name: card.domain for card in cards if card.domain}
    numbers = (table.perplexity, table.specialization)
    disabled = [card.name for card in cards if not card.enabled]
    return HeatmapScores(
        table.experts, table.domains, *numbers, home_of, disabled, table.texts(), table.accuracy, elsewhere
    )


if __name__ == "__main__":
    show()
