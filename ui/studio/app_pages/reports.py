"""Reports: view and delete the certificates and measurements that jobs wrote."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from ui.present.next_steps import STEP_AFTER
from ui.present.pages import EXPERTS, REPLICATIONS, REPORTS, SHARED_TEXT, SPECIALIZATION, Page
from ui.present.text.formatting import clock, plain, pluralize
from ui.present.text.reports import report_row
from ui.studio.analysis.classification_view import show_classification
from ui.studio.experts.addition import show_addition
from ui.studio.experts.removal import show_removal_report
from ui.studio.shared.examples import show_example_certificate
from ui.widgets.address import choose_one, choose_some
from ui.widgets.data_table import show_table
from ui.widgets.notices import empty, explained, keep
from ui.widgets.page_head import show_head, show_next_step
from ui.widgets.rights import cannot_change
from workbench.registry import reports
from workbench.registry.cards import ReportCard
from workbench.registry.database import reading, transaction


def show() -> None:
    """Draws the page."""
    right = show_head(REPORTS)
    with reading() as session:
        cards = reports.list_reports(session)
    if not cards:
        why = "No report has been written yet."
        empty(why, "Certify an addition or a removal on the card of an expert.", EXPERTS.script, EXPERTS.title)
        show_example_certificate()
        return
    show_next_step(right, STEP_AFTER[REPORTS])
    there_are = sorted({card.kind for card in cards})
    kinds = choose_some(st.pills, "Kind", there_are, selection_mode="multi", key="reports.kinds", wrap=True)
    shown = [card for card in cards if not kinds or card.kind in kinds]
    st.caption(f"{pluralize(len(shown), 'report')}, the newest first. Reports are kept when their models are deleted.")
    show_table([report_row(card) for card in shown], "reports", "The reports that jobs left")
    by_id = {card.id: card for card in shown}
    chosen = choose_one(
        st.selectbox, "Report", list(by_id), format_func=lambda id: _label(by_id[id]), key="reports.chosen"
    )
    _show_report(by_id[chosen])


def _label(card: ReportCard) -> str:
    return f"{card.title}, {clock(card.created_at)} ({card.id[:8]})"


def _show_report(card: ReportCard) -> None:
    st.header(plain(card.title), divider="gray")
    if draw := _PARTS.get(card.kind):
        draw(card)
    with st.popover("Delete …", icon=":material/delete:"):
        st.markdown("Deletes the report with its pages. The models in it are kept.")
        if st.button("Delete for good", key=f"delete_{card.id}", type="primary", disabled=cannot_change()):
            with explained():
                _delete(card)


def _delete(card: ReportCard) -> None:
    with transaction() as session:
        reports.delete_report(session, card.id)
    keep(f"The report “{card.title}” is deleted.")
    st.rerun()


def _show_overlap(card: ReportCard) -> None:
    names = card.findings["domains"]
    st.caption("The share of frequent bigrams that two domains have in common: 0 is none, 1 is all.")
    rows = [
        {"domain": name, **dict(zip(names, row, strict=True))}
        for name, row in zip(names, card.findings["overlap"], strict=True)
    ]
    show_table(rows, f"overlap_{card.id}", "Bigram overlap of every two domains")
    _link(SPECIALIZATION, "See it beside the specialization", {"specialization.view": SHARED_TEXT})


def _show_replication(card: ReportCard) -> None:
    _link(REPLICATIONS, "See its claims", {"replication.name": str(card.findings.get("name", ""))})


def _link(page: Page, label: str, state: dict[str, str]) -> None:
    st.page_link(page.script, label=label, icon=page.icon, query_params=state)


_PARTS: dict[str, Callable[[ReportCard], None]] = {
    "addition": show_addition,
    "removal": show_removal_report,
    "classification": show_classification,
    "overlap": _show_overlap,
    "replication": _show_replication,
}


if __name__ == "__main__":
    show()
