"""The registry of experts as cards, as a table or as a lineage: filtered, ordered, and in pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from engine.methods.registry import method_of
from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import Looks, looks_of
from ui.present.charts.lineage import edge_rows, lineage_dot, registry_lineage
from ui.present.picture import PictureScores, card_of, place_of, scores_of
from ui.present.text.formatting import clock, parameters_text, plain, pluralize, short, size
from ui.present.text.measures import describe_comparability, in_percent, measure_text, odd_measures
from ui.studio.shared.contents import curves_of, with_intervals
from ui.widgets.address import choose_one, choose_some
from ui.widgets.charts_and_tables import rows_ticked, show_table
from ui.widgets.elements.components import show_cards
from workbench.analysis.changes.additions import KIND as ADDITION
from workbench.analysis.perplexity_tables import in_domain_scores, scored_domains
from workbench.answers.cards import DomainCard, EvaluationCard, ExpertCard
from workbench.registry import aliases, corpora, experts, reports, seeds
from workbench.registry.database import reading

CERTIFIED, NOT_SCORED, WITH_ALIAS = "certified", "not scored", "with an alias"


@dataclass(frozen=True)
class ExpertRegistry:
    """All experts, and what their rows and cards say next to them."""

    cards: Sequence[ExpertCard]
    home: Mapping[str, EvaluationCard] = field(default_factory=dict)  # in-domain scores on `split` by expert
    scored: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # domains by expert and split
    split: HeldOutSplit = "test"
    certified: frozenset[str] = frozenset()  # ids
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by expert
    domains: Mapping[str, DomainCard] = field(default_factory=dict)

    def states(self, card: ExpertCard) -> list[str]:
        """What can be said of an expert besides its names."""
        states = {
            "enabled": card.enabled,
            "disabled": not card.enabled,
            CERTIFIED: card.id in self.certified,
            "in a mixture": bool(card.mixtures),
            NOT_SCORED: card.name not in self.scored,
            WITH_ALIAS: card.name in self.aliases,
            "documents changed": card.stale,
        }
        return [state for state, is_so in states.items() if is_so]


def expert_row(card: ExpertCard, registry: ExpertRegistry) -> dict[str, Any]:
    """A row for one expert, with the numbers of one split."""
    home = registry.home.get(card.name)
    return {
        "mark": card.mark,
        "expert": card.name,
        "enabled": card.enabled,
        "domains": ", ".join(card.domains),
        "in-domain perplexity (per token)": home.perplexity if home else None,
        "in-domain accuracy (%)": in_percent(home.accuracy) if home else None,
        "measured on": measure_text(home) if home else _elsewhere(registry.scored.get(card.name, {}), registry.split),
        "tokenizer": short(card.tokenizer_sha256),
        "method": method_of(card.method).title,
        "parents": ", ".join(card.parents) or card.seed,
        "mixtures": ", ".join(card.mixtures),
        "aliases": ", ".join(registry.aliases.get(card.name, ())),
        "parameters": parameters_text(card.total_parameters),
        "own parameters": parameters_text(card.num_parameters),
        "size": size(card.size_bytes),
        "tags": ", ".join(card.tags),
        "base": short(card.base_id),
        "made": clock(card.created_at),
    }


def _elsewhere(scored: Mapping[str, int], split: HeldOutSplit) -> str:
    """What an expert without an in-domain score was measured on, such as one trained on several domains."""
    if split in scored:
        return f"{split}, on {pluralize(scored[split], 'domain')}"
    return f"on {' and '.join(sorted(scored))} only" if scored else "not scored"


# filters ---------------------------------------------------------------------------------------------

METHOD, STATE, DOMAIN, MIXTURE, TAG = "method", "state", "domain", "mixture", "tag"


def facets(registry: ExpertRegistry) -> dict[str, Callable[[ExpertCard], Sequence[str]]]:
    """By name of a filter, the values that an expert has for it."""
    return {
        METHOD: lambda card: [card.method],
        STATE: registry.states,
        DOMAIN: lambda card: card.domains,
        MIXTURE: lambda card: card.mixtures,
        TAG: lambda card: card.tags,
    }


def counts(registry: ExpertRegistry) -> dict[str, dict[str, int]]:
    """By filter the values that experts have, with the number of these experts, in alphabetical order."""
    return {
        name: dict(sorted(Counter(value for card in registry.cards for value in values(card)).items()))
        for name, values in facets(registry).items()
    }


def filter_experts(registry: ExpertRegistry, search: str, wanted: Mapping[str, Sequence[str]]) -> list[ExpertCard]:
    """The experts that match every word of the search, all states and one value of each other filter."""
    words, values_of = search.casefold().split(), facets(registry)

    def matches(card: ExpertCard) -> bool:
        aliases = registry.aliases.get(card.name, ())
        text = " ".join(
            (card.name, *card.domains, card.notes, card.method, method_of(card.method).title, *card.tags, *aliases)
        ).casefold()
        return all(word in text for word in words) and all(
            (all if name == STATE else any)(value in values_of[name](card) for value in chosen)
            for name, chosen in wanted.items()
            if chosen
        )

    return [card for card in registry.cards if matches(card)]


def _perplexity(registry: ExpertRegistry, card: ExpertCard) -> float:
    home = registry.home.get(card.name)
    return home.perplexity if home else float("inf")


ORDERS: dict[str, Callable[[ExpertRegistry, ExpertCard], Any]] = {
    "name": lambda _, card: card.name,
    "newest first": lambda _, card: -card.created_at,
    "in-domain perplexity": _perplexity,
    "own parameters": lambda _, card: card.num_parameters,
}


CARDS, TABLE, LINEAGE = "Cards", "Table", "Lineage"
PER_PAGE = {CARDS: 24, TABLE: 50, LINEAGE: 60}
MOST_CHIPS = 20  # of a filter; with more values it is a field with a search
CHOSEN, OPEN, PAGE = "experts.chosen", "experts.open", "experts.page"


def read_registry(split: HeldOutSplit) -> ExpertRegistry:
    """All experts with what their cards say: as many statements with a thousand experts as with ten."""
    with reading() as session:
        named: dict[str, list[str]] = {}
        for alias in aliases.list_aliases(session):
            if alias.kind == "expert":
                named.setdefault(alias.model, []).append(alias.name)
        additions = reports.list_reports(session, kind=ADDITION)
        return ExpertRegistry(
            cards=experts.list_experts(session),
            home=in_domain_scores(session, split),
            scored=scored_domains(session),
            split=split,
            certified=frozenset(
                addition.about_id for addition in additions if addition.about_id and addition.findings.get("ok")
            ),
            aliases=named,
            domains={domain.name: domain for domain in corpora.list_domains(session)},
        )


def show_registry(registry: ExpertRegistry, search: str, view: str) -> None:
    """The filters, and the experts that they leave."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        shown = filter_experts(registry, search, _choose_filters(registry))
        order = choose_one(
            st.selectbox, "Sorted by", list(ORDERS), key="experts.sort", width=190, on_change=_to_first_page
        )
    st.caption(f"{pluralize(len(shown), 'expert')}. {_HINTS[view]}")
    if not shown:
        st.info("No expert matches. Take a filter away, or search for less.")
        return
    listed = sorted(shown, key=lambda card: ORDERS[order](registry, card))
    per_page = PER_PAGE[view]
    pages = list(range(1, (len(listed) + per_page - 1) // per_page + 1))
    above = st.container()

    def paginate(_: str, options: Sequence[int], **more: Any) -> int:
        return st.pagination(len(options), **more)

    page = choose_one(paginate, "Page", pages, key=PAGE) if len(pages) > 1 else 1
    first = (page - 1) * per_page
    here = listed[first : first + per_page]
    if len(pages) > 1:
        st.caption(f"{first + 1:,} to {first + len(here):,} of {len(listed):,}, {per_page} on a page.")
    with above:
        _VIEWS[view](registry, here, page)


_HINTS = {
    CARDS: "Open one by its name.",
    TABLE: "Tick one to see its card, several to compare them.",
    LINEAGE: "From left to right: what each was made from, and the mixtures that it is in.",
}


def _to_first_page() -> None:
    st.session_state.pop(PAGE, None)


# filters ---------------------------------------------------------------------------------------------


def _choose_filters(registry: ExpertRegistry) -> dict[str, list[str]]:
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
        format_func=lambda value: plain(
            f"{method_of(value).title if name == METHOD else value} {there_are.get(value, 0):,}"
        ),
        on_change=_to_first_page,
        **more,
    )


def _key(name: str) -> str:
    return f"experts.{name}"


# views -----------------------------------------------------------------------------------------------


def _show_cards(registry: ExpertRegistry, here: Sequence[ExpertCard], _: int) -> None:
    looks, curves = looks_of(here), curves_of(here)
    scores = with_intervals(scores_of(list(registry.home.values()), registry.split), here)
    measures = scores.measures(here)
    odd = odd_measures(measures)
    cards = [_card(registry, one, scores, looks, curves.get(one.id, ()), odd.get(one.name, "")) for one in here]
    if words := describe_comparability(measures):
        st.caption(words)
    if opened := show_cards(cards, "registry_cards"):
        st.session_state[OPEN] = list(place_of(opened)[1].values())
        st.rerun()


def _card(
    registry: ExpertRegistry, expert: ExpertCard, scores: PictureScores, looks: Looks, curve: Sequence[float], odd: str
) -> Mapping[str, Any]:
    is_certified = expert.id in registry.certified
    domain, instead = registry.domains.get(expert.domain), measured_on(registry, expert)
    card = card_of(expert, domain, scores, looks, curve, is_certified, odd=odd, instead=instead)
    names = [[name, "going"] for name in registry.aliases.get(expert.name, ())]
    tags = [[f"#{tag}", ""] for tag in expert.tags[:3]]
    unit = card["unit"]
    if registry.split != "test":
        unit = unit.replace("perplexity ↓", f"perplexity ({registry.split}) ↓")
    return card | {"badges": [*names, *card["badges"], *tags], "unit": unit}


def measured_on(registry: ExpertRegistry, expert: ExpertCard) -> str:
    """What a card says of an expert without an in-domain score."""
    scored = registry.scored.get(expert.name, {})
    if registry.split in scored:
        return f"scored on {pluralize(scored[registry.split], 'domain')}"
    return f"scored {_elsewhere(scored, registry.split)}" if scored else "not scored"


def _show_table(registry: ExpertRegistry, here: Sequence[ExpertCard], page: int) -> None:
    key = "experts" if page == 1 else f"experts_{page}"
    names = [one.name for one in here]

    def choose() -> None:
        elsewhere = [name for name in st.session_state.get(CHOSEN, ()) if name not in names]
        st.session_state[CHOSEN] = [*elsewhere, *(names[place] for place in rows_ticked(key) if place < len(names))]

    rows = [expert_row(card, registry) for card in here]
    measures = scores_of(list(registry.home.values()), registry.split).measures(here)
    if words := describe_comparability(measures, "see the columns “measured on” and “tokenizer”"):
        st.caption(words)
    show_table(rows, key, "The registry of experts", on_select=choose, looks=looks_of(here).experts.values())


def _show_lineage(registry: ExpertRegistry, here: Sequence[ExpertCard], _: int) -> None:
    with reading() as session:
        copied = {seed.name: expert.name for seed, expert in seeds.copied_experts(session)}
    lineage = registry_lineage(here, copied)
    rows = edge_rows(lineage)
    words = f"Lineage of {pluralize(len(here), 'expert')} with {pluralize(len(rows), 'edge')}; the table lists them."
    st.graphviz_chart(lineage_dot(lineage, "", looks_of(registry.cards)), alt=words)
    with st.expander(f"The same as a table: {pluralize(len(rows), 'edge')}"):
        show_table(rows, "lineage_edges", "Each edge of the lineage: from what, to what, and what it means")


_VIEWS = {CARDS: _show_cards, TABLE: _show_table, LINEAGE: _show_lineage}
