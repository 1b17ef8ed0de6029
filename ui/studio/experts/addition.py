"""The certificate of an expert's addition: request it, follow its job, read it."""

from __future__ import annotations

import streamlit as st

from jobs.queue.submit import submit
from ui.present.text.addition import change_rows, folder_rows, single_words
from ui.present.text.formatting import clock, plain
from ui.studio.job_views.job_view import show_job
from ui.widgets.data_table import show_table
from ui.widgets.notices import explained
from ui.widgets.rights import cannot_change
from workbench.analysis.changes.additions import additions_of, can_be_certified
from workbench.answers.cards import ExpertCard, ReportCard
from workbench.kinds.analysis import CertifyAddition
from workbench.registry.database import reading


def show_additions(card: ExpertCard) -> None:
    """The newest certificate with its numbers, the older ones in a line each, and the way to another."""
    with reading() as session:
        reports, was_added = additions_of(session, card.name), can_be_certified(session, card.name)
    if reports:
        show_addition(reports[0])
    elif was_added:
        st.caption("Its addition to a mixture has not been certified yet.")
    else:
        st.caption("It was trained together with its model, so there is no addition to certify.")
    for report in reports[1:]:
        st.caption(plain(f"{clock(report.created_at)}: {report.findings['sentence']}"))
    if was_added:
        _show_button(card)


def show_addition(report: ReportCard) -> None:
    """A certificate with its numbers."""
    findings = report.findings
    show = st.success if findings["ok"] else st.error
    show(plain(findings["sentence"]), icon=":material/verified:" if findings["ok"] else ":material/gpp_bad:")
    st.caption(plain(f"{report.title}, {clock(report.created_at)}. {single_words(findings)}"))
    if rows := change_rows(findings):
        st.markdown("##### Perplexity of the mixture before and after: a change below 0 is a gain")
        show_table(rows, f"addition_{report.id}", f"Perplexity per token by domain, {report.title}")
    with st.expander("What was hashed", icon=":material/fingerprint:"):
        show_table(folder_rows(findings), f"hashes_{report.id}", "Folders that were there before, and what was found")
    if reproducible_from := findings.get("reproducible_from"):
        st.caption(plain(f"Reproducible from: {reproducible_from}"))


def _show_button(card: ExpertCard) -> None:
    key = f"certify_{card.id}"
    if not card.mixtures:
        st.caption("It is in no mixture, so there is no addition to certify.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        mixture = st.selectbox("Mixture that it was added to", card.mixtures, key=f"{key}_mixture")
        if st.button("Certify the addition", icon=":material/verified:", key=key, disabled=cannot_change()):
            with explained():
                st.session_state[f"{key}_job"] = submit(CertifyAddition(expert=card.name, mixture=mixture))
    if job_id := st.session_state.get(f"{key}_job"):
        show_job(job_id, key=f"{key}_job_view")
