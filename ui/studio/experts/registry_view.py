"""The registry of experts as cards, as a table or as a lineage: filtered, ordered, and in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import Looks, looks_of
from ui.present.charts.lineage import edge_rows, lineage_dot, registry_lineage
from ui.present.comparability import comparability_words, odd_measures
from ui.present.expert_table import (
    DOMAIN,
    METHOD,
    MIXTURE,
    ORDERS,
    STATE,
    TAG,
    Registry,
    counts,
    expert_row,
    filtered,
    ordered,
)
from ui.present.picture import Scores, card_of, place_of, scores_of
from ui.present.text.formatting import plain, pluralize
from ui.studio.overview.curves import curves_of
from ui.widgets.address import choose_one, choose_some
from ui.widgets.data_table import show_table, ticked
from ui.widgets.elements.components import show_cards
from workbench.analysis.changes.additions import ADDITIONS as ADDITION
from workbench.analysis.perplexity_tables import in_domain_scores, scored_domains
from workbench.answers.cards import ExpertCard
from workbench.registry import aliases, corpora, experts, reports, seeds
from workbench.registry.database import reading

CARDS, TABLE, LINEAGE = "Cards", "Table", "Lineage"
PER_PAGE = {CARDS: 24, TABLE: 50, LINEAGE: 60}
MOST_CHIPS = 20  # of a filter; with more values it is a field with a search
CHOSEN, OPEN, PAGE = "experts.chosen", "experts.open", "experts.page"


def read_registry(split: HeldOutSplit) -> Registry:
    """All experts with what their cards say: as many statements with a thousand experts as with ten."""
    with reading() as session:
        named: dict[str, list[str]] = {}
        for alias in aliases.list_aliases(session):
            if alias.kind == "expert":
                named.setdefault(alias.model, []).append(alias.name)
        additions = reports.list_reports(session, kind=ADDITION)
        return Registry(
            cards=experts.list_experts(session),
            home=in_domain_scores(session, split),
            scored=scored_domains(session),
            split=split,
            certified=frozenset(one.about_id for one in additions if one.about_id and one.findings.get("ok")),
            aliases=named,
            domains={one.name: one for one in corpora.list_domains(session)},
        )


def show_registry(registry: Registry, search: str, view: str) -> None:
    """The filters, and the experts that they leave."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        shown = filtered(registry, search, _choose_filters(registry))
        order = choose_one(
            st.selectbox, "Sorted by", list(ORDERS), key="experts.sort", width=190, on_change=_to_first_page
        )
    st.caption(f"{pluralize(len(shown), 'expert')}. {_HINTS[view]}")
    if not shown:
        st.info("No expert matches. Take a filter away, or search for less.")
        return
    listed = ordered(registry, shown, order)
    per_page = PER_PAGE[view]
    pages = list(range(1, (len(listed) + per_page - 1) // per_page + 1))
    place = st.container()
    page = choose_one(_paginate, "Page", pages, key=PAGE) if len(pages) > 1 else 1
    first = (page - 1) * per_page
    here = listed[first : first + per_page]
    if len(pages) > 1:
        st.caption(f"{first + 1:,} to {first + len(here):,} of {len(listed):,}, {per_page} on a page.")
    with place:
        _VIEWS[view](registry, here, page)


_HINTS = {
    CARDS: "Open one by its name.",
    TABLE: "Tick one to see its card, several to compare them.",
    LINEAGE: "From left to right: what each was made from, and the mixtures that it is in.",
}


def _paginate(_: str, options: Sequence[int], **more: Any) -> int:
    return st.pagination(len(options), **more)


def _to_first_page() -> None:
    st.session_state.pop(PAGE, None)


# filters ---------------------------------------------------------------------------------------------


def _choose_filters(registry: Registry) -> dict[str, list[str]]:
    """The values that are looked for, by filter: those of one line first, the others behind a button."""
    there_are = counts(registry)
    chosen = {name: _choose(name, there_are[name]) for name in (METHOD, STATE)}
    behind = (DOMAIN, MIXTURE, TAG)
    active = sum(len(st.session_state.get(_key(name)) or ()) for name in behind)
    label = f"More filters ({active})" if active else "More filters"
    with st.popover(label, icon=":material/filter_list:", key="more_filters"):
        chosen |= {name: _choose(name, there_are[name]) for name in behind}
    return chosen


def _choose(name: str, there_are: Mapping[str, int]) -> list[str]:
    if not there_are:
        return []
    widget = st.pills if len(there_are) <= MOST_CHIPS else st.multiselect
    more: dict[str, Any] = {"selection_mode": "multi", "wrap": True} if widget is st.pills else {}
    return choose_some(
        widget,
        name.capitalize(),
        list(there_are),
        key=_key(name),
        format_func=lambda value: plain(f"{value} {there_are.get(value, 0):,}"),
        on_change=_to_first_page,
        **more,
    )


def _key(name: str) -> str:
    return f"experts.{name}"


# views -----------------------------------------------------------------------------------------------


def _show_cards(registry: Registry, here: Sequence[ExpertCard], _: int) -> None:
    looks, curves = looks_of(here), curves_of(here)
    scores = scores_of(list(registry.home.values()), registry.split)
    measures = scores.measures(here)
    odd = odd_measures(measures)
    cards = [_card(registry, one, scores, looks, curves.get(one.id, ()), odd.get(one.name, "")) for one in here]
    if words := comparability_words(measures):
        st.caption(words)
    if opened := show_cards(cards, "registry_cards"):
        st.session_state[OPEN] = list(place_of(opened)[1].values())
        st.rerun()


def _card(
    registry: Registry, one: ExpertCard, scores: Scores, looks: Looks, curve: Sequence[float], odd: str
) -> Mapping[str, Any]:
    is_certified = one.id in registry.certified
    card = card_of(one, registry.domains.get(one.domain), scores, looks, curve, is_certified, odd=odd)
    names = [[name, "going"] for name in registry.aliases.get(one.name, ())]
    tags = [[f"#{tag}", ""] for tag in one.tags[:3]]
    unit = "perplexity ↓" if registry.split == "test" else f"perplexity ({registry.split}) ↓"
    return card | {"badges": [*names, *card["badges"], *tags], "unit": unit}


def _show_table(registry: Registry, here: Sequence[ExpertCard], page: int) -> None:
    key = "experts" if page == 1 else f"experts_{page}"
    names = [one.name for one in here]

    def choose() -> None:
        elsewhere = [name for name in st.session_state.get(CHOSEN, ()) if name not in names]
        st.session_state[CHOSEN] = [*elsewhere, *(names[place] for place in ticked(key) if place < len(names))]

    rows = [expert_row(card, registry) for card in here]
    measures = scores_of(list(registry.home.values()), registry.split).measures(here)
    if words := comparability_words(measures, "see the columns “measured on” and “tokenizer”"):
        st.caption(words)
    show_table(rows, key, "The registry of experts", on_select=choose, looks=looks_of(here).experts.values())


def _show_lineage(registry: Registry, here: Sequence[ExpertCard], _: int) -> None:
    with reading() as session:
        copied = seeds.names_of_copied_experts(session)
    lineage = registry_lineage(here, copied)
    rows = edge_rows(lineage)
    words = f"Lineage of {pluralize(len(here), 'expert')} with {pluralize(len(rows), 'edge')}; the table lists them."
    st.graphviz_chart(lineage_dot(lineage, "", looks_of(registry.cards)), alt=words)
    with st.expander(f"The same as a table: {pluralize(len(rows), 'edge')}"):
        show_table(rows, "lineage_edges", "Each edge of the lineage: from what, to what, and what it means")


_VIEWS = {CARDS: _show_cards, TABLE: _show_table, LINEAGE: _show_lineage}
