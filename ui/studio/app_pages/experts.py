"""The experts: search, open one, compare several, save views, import, enable and disable, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode

import streamlit as st

from engine.methods.registry import method_of
from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import read_looks
from ui.present.charts.curves_and_bars import curves, expert_bars
from ui.present.next_steps import STEP_AFTER
from ui.present.pages import EXPERTS, Page
from ui.present.text.formatting import listed, parameters_text, plain, short, size
from ui.present.text.measures import comparable
from ui.studio.analysis.specialization_views import offer_retention, offer_scores
from ui.studio.experts.expert_card import flat, show_bulk_switches, show_expert
from ui.studio.experts.registry_view import CARDS, CHOSEN, LINEAGE, OPEN, TABLE, read_registry, show_registry
from ui.studio.job_views.job_view import show_form_and_job
from ui.studio.job_views.pending_jobs import empty_until_scored, empty_until_trained
from ui.studio.job_views.training_charts import choose_log_steps
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one, choose_some, choose_split, reopen, write_text
from ui.widgets.charts_and_tables import show_chart, show_table
from ui.widgets.notices import apply, cannot_change, explain_problems
from ui.widgets.page_head import show_head, show_next_step
from workbench.analysis import perplexity_tables
from workbench.answers.cards import EvaluationCard, ExpertCard, ViewCard
from workbench.job_records import jobs
from workbench.questions.question import ask
from workbench.questions.retention import RetentionRequest
from workbench.registry import corpora, experts, seeds, views
from workbench.registry.database import reading

_SHOWN_ABOVE = ("parts", "composed_of", "sources", "base_sources")  # of the config


def show_comparison(cards: Sequence[ExpertCard], split: HeldOutSplit) -> None:
    """Perplexities on one split as bars next to the curves of their trainings, and a table of what differs."""
    with reading() as session:
        scores = [
            evaluation
            for card in cards
            for evaluation in perplexity_tables.list_evaluations(session, expert=card.name, split=split)
        ]
    left, right = st.columns(2, gap="medium")
    with left:
        _show_bars(cards, scores, split)
    with right:
        _show_curves(cards)
    offer_retention(cards)
    st.markdown("## Differences, one row for each property")
    show_table(differences(cards), "differences", "Properties in which the chosen experts differ")


def _show_bars(cards: Sequence[ExpertCard], scores: Sequence[EvaluationCard], split: HeldOutSplit) -> None:
    if picture := expert_bars(cards, scores, read_looks()):
        show_chart(picture, "compared")
        if not is_shared(cards, scores, split):
            with explain_problems():
                last, *others = dict.fromkeys(name for card in cards for name in card.domains)
                names = [card.name for card in cards]
                missing = RetentionRequest(retain=last, targets=others, experts=names, split=split)
                offer_scores(ask(missing.answer), "compared")
    else:
        why = f"None of them has been scored on the {split} split yet."
        mixture = next((name for card in cards for name in card.mixtures), None)
        empty_until_scored(why, "Evaluate their mixture.", mixture, split)


def _show_curves(cards: Sequence[ExpertCard]) -> None:
    with reading() as session:
        points = {
            card.name: jobs.metrics(session, card.job_id, f"dev_loss/{card.domain}") if card.job_id else []
            for card in cards
        }
    named = [one.model_copy(update={"name": name}) for name, line in points.items() for one in line]
    chart = st.container()
    is_log = bool(named) and choose_log_steps("compared_curves.steps")
    title = "Held-out loss of each on its own domain"
    if picture := curves(named, title, listed(list(points)), read_looks(), is_log=is_log):
        with chart:
            show_chart(picture, "compared_curves")
    if missing := [name for name, line in points.items() if not line]:
        st.caption(plain(f"No curve on dev text of one domain was recorded for {listed(missing)}."))


def is_shared(cards: Sequence[ExpertCard], scores: Sequence[EvaluationCard], split: HeldOutSplit) -> bool:
    """Whether any domain was scored with all of these experts on the same tokens."""
    names = {card.name for card in cards}
    shown = comparable([score for score in scores if score.split == split], cards)
    return len(names) in Counter(one.domain for one in shown).values()


def differences(cards: Sequence[ExpertCard]) -> list[dict[str, Any]]:
    """A row for each property that is not the same in all."""
    properties_of = {card.name: _properties(card) for card in cards}
    properties = dict.fromkeys(name for values in properties_of.values() for name in values)
    rows = [{"property": name, **{expert: v.get(name) for expert, v in properties_of.items()}} for name in properties]
    return [row for row in rows if len({value for key, value in row.items() if key != "property"}) > 1]


def _properties(card: ExpertCard) -> dict[str, str]:
    shown = {name: value for name, value in card.config.items() if name not in _SHOWN_ABOVE}
    return {
        "method": method_of(card.method).title,
        "domains": ", ".join(card.domains),
        "parts": ", ".join(card.parts),
        "composed of": ", ".join(one["name"] for one in card.config.get("composed_of", ())),
        "parents": ", ".join(card.parents),
        "seed model": card.seed or "",
        "base": short(card.base_id),
        "tokenizer SHA-256": short(card.tokenizer_sha256),
        "data SHA-256": short(card.data_sha256),
        "parameters": parameters_text(card.total_parameters),
        "own parameters": parameters_text(card.num_parameters),
        "active parameters": parameters_text(card.active_parameters),
        "size": size(card.size_bytes),
        "enabled": "yes" if card.enabled else "no",
        **{f"setting: {words}": str(value) for words, value in flat(shown)},
    }


def show_views(page: Page) -> None:
    """A popover that saves what is chosen now, and opens and deletes what was saved. Call it when all is drawn."""
    with reading() as session:
        saved = views.list_views(session, f"/{page.address}")
    with st.popover(f"Views ({len(saved)})" if saved else "Views", icon=":material/bookmark:"):
        for view in saved:
            _show_view(view)
        if not saved:
            st.caption("A view is a name for the filters, the order and the experts that are chosen now.")
        _show_form(page)


def _show_view(view: ViewCard) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        query = parse_qs(view.address.partition("?")[2])
        st.button(plain(view.name), key=f"view.open.{view.name}", on_click=reopen, args=(query,))
        if st.button(
            "Delete",
            key=f"view.delete.{view.name}",
            type="tertiary",
            help=plain(f"Delete {view.name}"),
            disabled=cannot_change(),
        ):
            apply(lambda session: views.delete_view(session, view.name), f"The view {view.name} is deleted.")


def _show_form(page: Page) -> None:
    with st.form("view.new", clear_on_submit=True, border=False):
        name = st.text_input("Name of the view")
        if st.form_submit_button("Save this view", disabled=cannot_change()):
            apply(
                lambda session: views.save_view(session, name, address_now(page)),
                lambda card: f"The view {card.name} is saved.",
            )


def address_now(page: Page) -> str:
    """The address of the page with all that is chosen on it, as a browser writes it."""
    query = urlencode({key: st.query_params.get_all(key) for key in st.query_params}, doseq=True)
    return f"/{page.address}" + (f"?{query}" if query else "")


_ADAPTER, _PACKED = "Adapter or model", "Packed file"


def show_import() -> None:
    """A popover with both forms."""
    with st.popover("Import", icon=":material/upload:"), explain_problems():
        what = st.segmented_control(
            "What do you have?", [_ADAPTER, _PACKED], default=_ADAPTER, key="import_expert.what", required=True
        )
        if what == _PACKED:
            st.caption("A file of `workbench expert pack`, made by this or another workbench.")
            show_form_and_job("unpack-expert", {}, "Unpack it")
        else:
            _show_adapter()


def _show_adapter() -> None:
    with reading() as session:
        names = [seed.name for seed in seeds.list_seeds(session)]
        domains = [domain.name for domain in corpora.list_domains(session)]
    if names:
        st.caption("An adapter of PEFT, or a fine-tuned model, trained elsewhere from a seed model of this workbench.")
        show_form_and_job("import-expert", {"seed_model": names, "domains": domains}, "Import it")
    else:
        st.caption(
            "An import needs the seed model that the expert was trained from. Make one first, on the page Train."
        )


def show() -> None:
    """Draws the page."""
    right = show_head(EXPERTS)
    with reading() as session:
        names = [name for _, name, _ in experts.list_states(session)]
    with right:
        views = st.container(width="content")
        show_import()
    if not names:
        empty_until_trained("There is no expert yet.", "Train a DEMix model: one for each domain.")
        show_example(EXPERTS)
        return
    show_next_step(right, STEP_AFTER[EXPERTS])
    _show_experts(sorted(names))
    with views:
        show_views(EXPERTS)


def _show_experts(names: Sequence[str]) -> None:
    columns = st.columns([3, 4, 2, 3], vertical_alignment="bottom")
    search = write_text(
        columns[0].text_input, "Search", key="experts.search", placeholder="Names, tags, notes, aliases"
    )
    with columns[1]:
        chosen = _choose(names)
    split = choose_split(columns[2], "experts.split", help="Which stored scores perplexity and accuracy come from.")
    views = [CARDS, TABLE, LINEAGE]
    view = choose_one(columns[3].segmented_control, "View", views, default=CARDS, key="experts.view", required=True)
    if chosen and view != TABLE:
        st.button(
            "All experts",
            icon=":material/arrow_back:",
            type="tertiary",
            on_click=st.session_state.update,
            args=({CHOSEN: []},),
        )
        others = st.expander("Search and filter all experts", key="experts.others", on_change="rerun")
        if others.open:  # a registry of a thousand is read only where it is looked at
            with others:
                show_registry(read_registry(split), search, view)
    else:
        show_registry(read_registry(split), search, view)
    with reading() as session:
        there = [experts.get_expert(session, name) for name in chosen]
    if len(there) == 1:
        show_expert(there[0], split)
    elif there:
        show_bulk_switches(there)
        show_comparison(there, split)


def _choose(names: Sequence[str]) -> list[str]:
    wanted = st.session_state.pop(OPEN, None) or st.session_state.get(CHOSEN, [])
    kept = [name for name in wanted if name in names]
    if kept != st.session_state.get(CHOSEN):
        st.session_state[CHOSEN] = kept  # one of them has been deleted or renamed
    return choose_some(st.multiselect, "Experts", list(names), key=CHOSEN, placeholder="Open one, or compare several")


if __name__ == "__main__":
    show()
