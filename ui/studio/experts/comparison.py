"""Experts side by side: their perplexities and their differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import read_looks
from ui.present.charts.curves_and_bars import curves, expert_bars
from ui.present.text.formatting import listed, millions, plain, short, size
from ui.present.text.measures import comparable
from ui.studio.analysis.specialization_views import offer_retention, offer_scores
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.widgets.charts_and_tables import show_chart, show_table
from ui.widgets.notices import explained
from workbench.analysis import perplexity_tables
from workbench.answers.cards import EvaluationCard, ExpertCard
from workbench.job_records import jobs
from workbench.questions.question import ask
from workbench.questions.retention import RetentionRequest
from workbench.registry.database import reading

_SHOWN_ABOVE = ("parts", "composed_of", "sources", "base_sources")  # of the config


def show_comparison(cards: Sequence[ExpertCard], split: HeldOutSplit) -> None:
    """Perplexities on one split as bars next to the curves of their trainings, and a table of what differs."""
    with reading() as session:
        scores = [
            one for card in cards for one in perplexity_tables.list_evaluations(session, expert=card.name, split=split)
        ]
    left, right = st.columns(2, gap="medium")
    with left:
        _show_bars(cards, scores, split)
    with right:
        _show_curves(cards)
    offer_retention(cards)
    st.markdown("##### Differences, one row for each property")
    show_table(differences(cards), "differences", "Properties in which the chosen experts differ")


def _show_bars(cards: Sequence[ExpertCard], scores: Sequence[EvaluationCard], split: HeldOutSplit) -> None:
    if picture := expert_bars(cards, scores, read_looks()):
        show_chart(picture, "compared")
        if not is_shared(cards, scores, split):
            with explained():
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
    if picture := curves(named, "Dev loss of each on its own domain", listed(list(points)), read_looks()):
        show_chart(picture, "compared_curves")
    if missing := [name for name, line in points.items() if not line]:
        st.caption(plain(f"No curve on dev text of one domain was recorded for {listed(missing)}."))


def is_shared(cards: Sequence[ExpertCard], scores: Sequence[EvaluationCard], split: HeldOutSplit) -> bool:
    """Whether any domain was scored with all of these experts on the same tokens."""
    names = {card.name for card in cards}
    shown = comparable([one for one in scores if one.split == split], cards)
    return len(names) in Counter(one.domain for one in shown).values()


def differences(cards: Sequence[ExpertCard]) -> list[dict[str, Any]]:
    """A row for each property that is not the same in all."""
    properties_of = {card.name: _properties(card) for card in cards}
    properties = dict.fromkeys(name for values in properties_of.values() for name in values)
    rows = [{"property": name, **{expert: v.get(name) for expert, v in properties_of.items()}} for name in properties]
    return [row for row in rows if len({value for key, value in row.items() if key != "property"}) > 1]


def _properties(card: ExpertCard) -> dict[str, str]:
    return {
        "method": card.method,
        "domains": ", ".join(card.domains),
        "parts": ", ".join(card.parts),
        "composed of": ", ".join(one["name"] for one in card.config.get("composed_of", ())),
        "parents": ", ".join(card.parents),
        "seed model": card.seed or "",
        "base": short(card.base_id),
        "tokenizer SHA-256": short(card.tokenizer_sha256),
        "data SHA-256": short(card.data_sha256),
        "parameters": millions(card.total_parameters),
        "own parameters": millions(card.num_parameters),
        "active parameters": millions(card.active_parameters),
        "size": size(card.size_bytes),
        "enabled": "yes" if card.enabled else "no",
        **{f"config: {name}": str(value) for name, value in flat(card.config) if name not in _SHOWN_ABOVE},
    }


def flat(config: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """The leaves of a nested config as `training.num_steps`."""
    leaves: list[tuple[str, Any]] = []
    for name, value in config.items():
        leaves += flat(value, f"{before}{name}.") if isinstance(value, dict) else [(before + name, value)]
    return leaves
