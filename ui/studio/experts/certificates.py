"""Reports of jobs on a page: certificates of additions and removals, classifications, and what removals cost."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from jobs.queue.submit import submit
from ui.present.charts.colours import read_looks
from ui.present.charts.curves_and_bars import accuracy_bars, removal_bars
from ui.present.text.formatting import clock, plain
from ui.present.text.reports import (
    change_rows,
    cluster_rows,
    describe_extraction,
    describe_new_expert,
    describe_priors,
    describe_settings,
    extraction_rows,
    folder_rows,
    perplexity_rows,
    task_rows,
)
from ui.studio.job_views.job_view import show_form_and_job, show_job
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.studio.shared.report_picture import show_report_picture
from ui.widgets.background import ask_scores
from ui.widgets.charts_and_tables import show_chart, show_table
from ui.widgets.fields import Answers
from ui.widgets.notices import cannot_change, explain_problems
from workbench.analysis.changes.additions import additions_of, can_be_certified
from workbench.analysis.changes.retrained_baselines import candidates, what_stays
from workbench.answers.cards import ExpertCard, MixtureCard, ReportCard
from workbench.kinds.analysis import CertifyAddition, CertifyRemoval
from workbench.questions import removal
from workbench.questions.removal import DomainRemoval, RemovalRequest, RemovalTable
from workbench.registry import mixtures
from workbench.registry.database import reading
from workbench.registry.experts import expert_row


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
    show_report_picture(report, "addition")
    st.caption(plain(f"{report.title}, {clock(report.created_at)}. {describe_new_expert(findings)}"))
    if rows := change_rows(findings):
        st.markdown("## Perplexity of the mixture before and after: a change below 0 is a gain")
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
            with explain_problems():
                st.session_state[f"{key}_job"] = submit(CertifyAddition(expert=card.name, mixture=mixture))
    if job_id := st.session_state.get(f"{key}_job"):
        show_job(job_id, key=f"{key}_job_view")


KIND = "certify-removal"
_OWN_FIELDS = ("expert", "mixture", "retrained")  # of the form's fields, those that this page draws itself
_TUCKED = [name for name in CertifyRemoval.model_fields if name not in ("kind", *_OWN_FIELDS)]
_NOBODY = "none: leave –Domain out"


def show_removal(mixture: str) -> None:
    """The removal view of a mixture: the costs of every removal, then one to certify."""
    with reading() as session:
        card = mixtures.get_mixture(session, mixture)
    question = RemovalRequest(mixture=mixture, retrained=_draw_retrained(card))
    if answer := ask_scores("removal", question, "Reading the stored scores"):
        _show_costs(answer, mixture)
    st.divider()
    expert = st.selectbox(
        "Expert whose removal is certified", [member.expert for member in card.members], key="removal.expert"
    )
    show_removal_certificates(expert, [mixture])


def _draw_retrained(card: MixtureCard) -> dict[str, str]:
    """Draws the choice of mixtures trained without a domain; returns the first one chosen for each domain."""
    with reading() as session:
        offers = {member.domain: candidates(session, member.expert) for member in card.members if member.domain}
    names = sorted({name for offered in offers.values() for name in offered})
    if not names:
        return {}
    chosen = st.multiselect(
        "–Domain: mixtures that were trained without a domain",
        names,
        key=f"removal.retrained.{card.id}",
        help="Each is the –Domain mixture of the domains that it was not trained on.",
    )
    picked = {domain: [name for name in offered if name in chosen] for domain, offered in offers.items()}
    return {domain: names[0] for domain, names in picked.items() if names}


def _show_costs(answer: RemovalTable, mixture: str) -> None:
    rows = answer.rows
    picture = removal_bars(rows, read_looks().among([row.expert for row in rows]))
    if picture is None:
        empty_until_scored(
            "The costs are not known yet: they need scores of the test text, and of dev text for the priors.",
            f"Certify a removal below, or score {answer.num_blocks} blocks of the dev split on the page Train.",
            mixture,
            "dev",
        )
    else:
        show_chart(picture, "removal")
    _show_missing(rows)


def _show_missing(rows: Sequence[DomainRemoval]) -> None:
    for row in rows:
        if row.why:
            st.caption(plain(f"{row.domain}: {row.why}"))


def show_removal_certificates(expert: str, mixture_names: Sequence[str]) -> None:
    """The certificates of an expert's removal, and a new one from one of these mixtures."""
    with reading() as session:
        reports = removal.removal_reports(session, expert)
        row = expert_row(session, expert)
        notes = dict.fromkeys(what_stays(session, name, row) for name in mixture_names)
    for sentence in filter(None, notes):
        st.info(plain(sentence), icon=":material/info:")
    for number, report in enumerate(reports):
        icon = ":material/verified:" if report.findings["ok"] else ":material/error:"
        result = "certified" if report.findings["ok"] else "NOT certified"
        title = f"{report.title}: {result} {clock(report.created_at)}"
        with st.expander(plain(title), expanded=number == 0, icon=icon):
            show_removal_report(report)
    if not reports:
        st.caption("Its removal has not been certified yet.")
    if mixture_names:
        _show_certificate_form(expert, mixture_names)
    else:
        st.caption("It is in no mixture, so there is nothing to remove it from.")


def show_removal_report(report: ReportCard) -> None:
    """A certificate with its numbers."""
    findings = report.findings
    rows = [DomainRemoval.model_validate(row) for row in findings["perplexity"]]
    (st.success if findings["ok"] else st.error)(plain(findings["sentence"]))
    show_report_picture(report, "removal")
    if picture := removal_bars(rows[:1], read_looks().among([findings["expert"]])):
        show_chart(picture, f"removal_{report.id}")
    st.markdown("## Perplexity on every domain: the first is the expert's own")
    show_table(perplexity_rows(rows), f"removal_costs_{report.id}", f"Perplexities of {report.title}")
    _show_missing(rows)
    st.caption(plain(describe_priors(findings)))
    st.markdown("## Extraction: how much of its training text comes back")
    show_table(extraction_rows(findings["extraction"]), f"extraction_{report.id}", f"Extraction test of {report.title}")
    st.caption(plain(describe_extraction(findings["extraction"])))
    if reproducible_from := findings.get("reproducible_from"):
        st.caption(plain(f"Reproducible from: {reproducible_from}"))


def _show_certificate_form(expert: str, mixture_names: Sequence[str]) -> None:
    st.markdown("## Certify the removal (the expert itself is not removed)")
    mixture = st.selectbox("Mixture to remove it from", mixture_names, key=f"{KIND}.mixture.{expert}")
    with reading() as session:
        offers = [None, *candidates(session, expert)]
    retrained = st.selectbox(
        "–Domain: a mixture that was trained without its domain",
        offers,
        key=f"{KIND}.retrained.{expert}",
        format_func=lambda name: name or _NOBODY,
    )
    given: Answers = {("expert",): expert, ("mixture",): mixture, ("retrained",): retrained}
    show_form_and_job(KIND, {}, "Certify the removal", skip=_OWN_FIELDS, given=given, tucked=_TUCKED)


def show_classification(report: ReportCard) -> None:
    """Accuracies as bars and numbers, what to know about them, the clusters that speak for each task."""
    findings = report.findings
    st.markdown(plain(findings["sentence"]))
    show_chart(accuracy_bars(findings), f"classification_{report.id}")
    st.caption(plain(describe_settings(findings)))
    for note in findings["notes"]:
        st.caption(plain(note))
    if rows := cluster_rows(findings):
        st.markdown("## The clusters whose experts weigh most, with their mean weight")
        show_table(rows, f"classification_clusters_{report.id}", f"Clusters by task, {report.title}")
    st.markdown("## The tasks")
    show_table(task_rows(findings), f"classification_tasks_{report.id}", f"Tasks of {report.title}")
