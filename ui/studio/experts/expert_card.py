"""The view of one expert: switch, numbers, lineage, curve, provenance, notes, rename and delete."""

from __future__ import annotations

import json

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import read_looks
from ui.present.charts.lineage import lineage_dot, lineage_words
from ui.present.headlines import perplexity_text
from ui.present.pages import PLAYGROUND
from ui.present.text.formatting import clock, millions, plain, pluralize, size
from ui.present.text.measures import in_percent
from ui.present.text.parents import known_words
from ui.studio.experts.addition import show_additions
from ui.studio.experts.comparison import flat
from ui.studio.experts.enable_experts import show_switch
from ui.studio.experts.mode_parts import offer_composition, show_parts
from ui.studio.experts.removal import show_removal_of
from ui.studio.experts.rename_delete import show_end
from ui.studio.job_views.curves import show_curves
from ui.studio.job_views.forgetting import show_forgetting, show_forgotten
from ui.studio.job_views.mode_gate_history import show_gates
from ui.studio.shared.aliases import show_aliases
from ui.studio.shared.job_popover import show_job_popover
from ui.studio.shared.use_it import show_use
from ui.widgets.address import open_tabs
from ui.widgets.data_table import show_table
from ui.widgets.notices import explained, keep
from ui.widgets.parents import show_posterior
from ui.widgets.rights import cannot_change
from workbench.analysis import perplexity_tables
from workbench.analysis.changes.additions import additions_of, worse_than_before
from workbench.analysis.perplexity_tables import in_domain_scores
from workbench.answers.cards import ExpertCard
from workbench.exports.facts import old_masks
from workbench.formatting.number_format import DASH
from workbench.job_records import jobs as rows
from workbench.registry import experts
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings
from workbench.store.storage import get_storage


def show_expert(card: ExpertCard, split: HeldOutSplit) -> None:
    """The card of an expert, with its score on one split."""
    st.header(plain(card.name), divider="gray")
    with st.container(horizontal=True, vertical_alignment="center"):
        show_switch(card)
        _show_certificate(card)
        for tag in card.tags:
            st.badge(plain(tag), color="gray")
        show_aliases(card.name)
        show_job_popover("export-expert", "expert", card.name, "Export")
        show_job_popover("pack-expert", "expert", card.name, "Pack", ":material/package_2:")
        show_job_popover("push-expert", "expert", card.name, "Push to the hub", ":material/cloud_upload:")
        if card.enabled:
            with st.container(width="content", key="other_step"):
                st.page_link(PLAYGROUND.script, label="Open in playground", icon="", query_params={"left": card.name})
    _show_numbers(card, split)
    if worse := worse_than_before(card.metrics):
        st.warning(worse, icon=":material/trending_down:")
    if card.stale:
        st.warning(
            "The documents of its cluster have changed since it was trained. Train a model on the new ones "
            "with `workbench train clusters`; this one stays as it is.",
            icon=":material/history:",
        )
    with reading() as session:
        warning = old_masks(session, get_storage(get_settings()), card.name)
    if warning:
        st.warning(warning, icon=":material/history:")
    parts = _PARTS
    if experts.has_parts(card):
        offer_composition(card)
        parts = {"Parts": show_parts} | parts
    for tab, draw in zip(open_tabs(list(parts), key="experts.tab"), parts.values(), strict=True):
        with tab, explained():
            draw(card)


def _show_certificate(card: ExpertCard) -> None:
    with reading() as session:
        is_certified = any(report.findings.get("ok") for report in additions_of(session, card.name))
    if is_certified:
        st.badge("certified", color="green", icon=":material/verified:", help="See the tab Addition.")


def _show_numbers(card: ExpertCard, split: HeldOutSplit) -> None:
    with reading() as session:
        home = in_domain_scores(session, split).get(card.name)
    numbers = {
        f"Perplexity ({split}) ↓": perplexity_text(home.perplexity) if home else DASH,
        "Domain": card.domain or pluralize(len(card.domains), "domain"),
        "Method": card.method,
        "Parameters": millions(card.total_parameters),
        "Own parameters": millions(card.num_parameters),
        "Size on disk": size(card.size_bytes),
    }
    for column, (label, value) in zip(st.columns(len(numbers)), numbers.items(), strict=True):
        column.metric(label, plain(value))


def _show_lineage(card: ExpertCard) -> None:
    with reading() as session:
        lineage = experts.lineage(session, card.name)
    words = lineage_words(lineage)
    st.markdown("##### Lineage, from left to right")
    st.graphviz_chart(lineage_dot(lineage, card.name, read_looks()), alt=words)
    st.caption(plain(words))
    if known := known_words(card.metrics, card.parent or "Its parent"):
        st.caption(plain(known))
    show_posterior(card.metrics, card.parent or "", f"expert_{card.id}")


def _show_curve(card: ExpertCard) -> None:
    with reading() as session:
        job = rows.get_job(session, card.job_id) if card.job_id else None
        points = rows.metrics(session, job.id) if job else []
    if job and points:
        show_curves(points, f"expert_{card.id}", card.name, job.id)
        show_forgetting(job, points, f"expert_{card.id}")
        show_gates(job, points, f"expert_{card.id}")
    else:
        st.caption("No curve was recorded for this expert: it was not trained by a job of this registry.")


def _show_scores(card: ExpertCard) -> None:
    with reading() as session:
        scores = perplexity_tables.list_evaluations(session, expert=card.name)
    if not scores:
        st.caption("Not scored yet. Evaluate a mixture that holds it (page Train).")
        return
    values = [
        {
            "domain": one.domain,
            "perplexity (per token)": one.perplexity,
            "accuracy (%)": in_percent(one.accuracy),
            "split": one.split,
            "tokens": one.num_tokens,
            "context (tokens)": one.block_size,
            "scored": clock(one.created_at),
        }
        for one in scores
    ]
    show_table(values, f"scores_{card.id}", f"Perplexities of {card.name}")


def _show_provenance(card: ExpertCard) -> None:
    values = {
        "made": clock(card.created_at),
        "domains": ", ".join(card.domains),
        "parent experts": ", ".join(card.parents) or "none",
        "seed model": card.seed or "none",
        "weights SHA-256": card.sha256,
        "tokenizer SHA-256": card.tokenizer_sha256,
        "data SHA-256": card.data_sha256,
        "base": card.base_id,
        "code version": card.code_version,
        "reproducible from": card.reproducible_from or "not recorded",
        "job": card.job_id or "none",
    }
    origin = [{"property": name, "value": value} for name, value in values.items()]
    show_table(origin, f"origin_{card.id}", f"Origin of {card.name}")
    config = [{"setting": name, "value": json.dumps(value)} for name, value in flat(card.config)]
    show_table(config, f"config_{card.id}", f"Configuration of {card.name}")


def _show_notes(card: ExpertCard) -> None:
    with st.form(f"notes_{card.id}"):
        notes = st.text_area("Notes", card.notes)
        tags = st.text_input("Tags, separated by commas", ", ".join(card.tags))
        if st.form_submit_button("Save", disabled=cannot_change()):
            kept = [tag.strip() for tag in tags.split(",") if tag.strip()]
            with transaction() as session:
                experts.describe(session, card.name, notes=notes, tags=kept)
            keep("Saved.")
            st.rerun()


def _show_use(card: ExpertCard) -> None:
    show_use(card.name, "expert", card.enabled)


_PARTS = {
    "Use it": _show_use,
    "Lineage": _show_lineage,
    "Curve": _show_curve,
    "Perplexities": _show_scores,
    "Forgetting": show_forgotten,
    "Addition": show_additions,
    "Removal": show_removal_of,
    "Provenance": _show_provenance,
    "Notes & tags": _show_notes,
    "Rename or delete": show_end,
}
