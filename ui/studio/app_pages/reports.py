"""Reports: view and delete the certificates and measurements that jobs wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from engine.plugins import load_object
from ui.pages.catalog import page_at
from ui.present.next_steps import STEP_AFTER
from ui.present.pages import EXPERTS, REPORTS
from ui.present.text.formatting import clock, plain, pluralize
from ui.reports.report_type import Part, report_sentence, report_type, report_types
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one, choose_some
from ui.widgets.charts_and_tables import show_table
from ui.widgets.notices import empty, offer_deletion
from ui.widgets.page_head import show_head, show_next_step
from workbench.answers.cards import ReportCard
from workbench.registry import reports
from workbench.registry.database import reading


def show() -> None:
    """Draws the page."""
    right = show_head(REPORTS)
    with reading() as session:
        cards = reports.list_reports(session)
    if not cards:
        why = "No report has been written yet."
        empty(why, "Certify an addition or a removal on the card of an expert.", EXPERTS.script, EXPERTS.title)
        show_example(REPORTS)
        return
    show_next_step(right, STEP_AFTER[REPORTS])
    there_are = sorted({card.kind for card in cards})
    kinds = choose_some(
        st.pills, "Kind", there_are, selection_mode="multi", key="reports.kinds", wrap=True, format_func=_title
    )
    shown = [card for card in cards if not kinds or card.kind in kinds]
    st.caption(f"{pluralize(len(shown), 'report')}, the newest first. Reports are kept when their models are deleted.")
    show_table([_row(card) for card in shown], "reports", "The reports that jobs left")
    by_id = {card.id: card for card in shown}
    chosen = choose_one(
        st.selectbox, "Report", list(by_id), format_func=lambda id: _label(by_id[id]), key="reports.chosen"
    )
    _show_report(by_id[chosen])


def _title(kind: str) -> str:
    return report_types()[kind].title if kind in report_types() else kind


def _label(card: ReportCard) -> str:
    return f"{card.title}, {clock(card.created_at)} ({card.id[:8]})"


def _row(card: ReportCard) -> dict[str, Any]:
    ok = card.findings.get("ok")
    return {
        "id": card.id[:8],
        "kind": _title(card.kind),
        "report": card.title,
        "made": clock(card.created_at),
        "holds": "" if ok is None else "yes" if ok else "NO",
        "says": report_sentence(card),
    }


def _show_report(card: ReportCard) -> None:
    report = report_type(card)
    st.header(plain(card.title), divider="gray")
    if report.draw:
        load_object(report.draw)(card)
    else:
        st.markdown(plain(report.sentence(card.findings)))
        for number, part in enumerate(report.describe(card.findings)):
            _show_part(part, f"{card.kind}_{card.id}_{number}", card.title)
    if link := report.link:
        state = link.state(card.findings)
        page = page_at(link.address)
        st.page_link(page.script, label=link.label, icon=page.icon, query_params=state)
    offer_deletion(
        "Deletes the report with its pages. The models in it are kept.",
        f"delete_{card.id}",
        lambda session: reports.delete_report(session, card.id),
        f"The report “{card.title}” is deleted.",
    )


def _show_part(part: Part, key: str, title: str) -> None:
    if isinstance(part, str):
        st.caption(plain(part))
    elif isinstance(part, Mapping):
        st.code(json.dumps(part, indent=1, ensure_ascii=False), language="json", wrap_lines=True)
    else:
        show_table(part, key, title)


if __name__ == "__main__":
    show()
