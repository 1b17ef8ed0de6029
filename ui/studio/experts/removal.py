"""Removing experts: what it costs on every domain, and the certificate of one removal."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present.charts.colours import read_looks
from ui.present.charts.curves_and_bars import removal_bars
from ui.present.text.formatting import clock, plain
from ui.present.text.removal import extraction_rows, extraction_words, perplexity_rows, prior_words
from ui.studio.forms.job_form import show_form_and_job
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.widgets.background import ask_scores
from ui.widgets.data_table import show_table
from ui.widgets.fields import Answers
from ui.widgets.show_chart import show_chart
from workbench.analysis.changes.retrained_baselines import candidates, what_stays
from workbench.answers.cards import ExpertCard, MixtureCard, ReportCard
from workbench.kinds.analysis import CertifyRemoval
from workbench.questions import removal
from workbench.questions.removal import DomainRemoval, RemovalRequest, RemovalTable
from workbench.registry import mixtures
from workbench.registry.database import reading
from workbench.registry.experts import expert_row

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
        "Expert whose removal is certified", [one.expert for one in card.members], key="removal.expert"
    )
    _show_certificates(expert, [mixture])


def show_removal_of(card: ExpertCard) -> None:
    """The certificates of one expert's removal, and a new one."""
    _show_certificates(card.name, card.mixtures)


def _draw_retrained(card: MixtureCard) -> dict[str, str]:
    """Draws the choice of mixtures trained without a domain; returns the first one chosen for each domain."""
    with reading() as session:
        offers = {one.domain: candidates(session, one.expert) for one in card.members if one.domain}
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
    """Shows why a number is unknown."""
    for row in rows:
        if row.why:
            st.caption(plain(f"{row.domain}: {row.why}"))


def _show_certificates(expert: str, places: Sequence[str]) -> None:
    with reading() as session:
        reports = removal.removal_reports(session, expert)
        row = expert_row(session, expert)
        notes = dict.fromkeys(what_stays(session, place, row) for place in places)
    for sentence in filter(None, notes):
        st.info(plain(sentence), icon=":material/info:")
    for place, report in enumerate(reports):
        icon = ":material/verified:" if report.findings["ok"] else ":material/error:"
        with st.expander(plain(_headline(report)), expanded=place == 0, icon=icon):
            show_removal_report(report)
    if not reports:
        st.caption("Its removal has not been certified yet.")
    if places:
        _show_certificate_form(expert, places)
    else:
        st.caption("It is in no mixture, so there is nothing to remove it from.")


def _headline(report: ReportCard) -> str:
    result = "certified" if report.findings["ok"] else "NOT certified"
    return f"{report.title}: {result} {clock(report.created_at)}"


def show_removal_report(report: ReportCard) -> None:
    """A certificate with its numbers."""
    findings = report.findings
    rows = [DomainRemoval.model_validate(row) for row in findings["perplexity"]]
    (st.success if findings["ok"] else st.error)(plain(findings["sentence"]))
    if picture := removal_bars(rows[:1], read_looks().among([findings["expert"]])):
        show_chart(picture, f"removal_{report.id}")
    st.markdown("##### Perplexity on every domain: the first is the expert's own")
    show_table(perplexity_rows(rows), f"removal_costs_{report.id}", f"Perplexities of {report.title}")
    _show_missing(rows)
    st.caption(plain(prior_words(findings)))
    st.markdown("##### Extraction: how much of its training text comes back")
    show_table(extraction_rows(findings["extraction"]), f"extraction_{report.id}", f"Extraction test of {report.title}")
    st.caption(plain(extraction_words(findings["extraction"])))
    if reproducible_from := findings.get("reproducible_from"):
        st.caption(plain(f"Reproducible from: {reproducible_from}"))


def _show_certificate_form(expert: str, places: Sequence[str]) -> None:
    st.markdown("##### Certify the removal (the expert itself is not removed)")
    mixture = st.selectbox("Mixture to remove it from", places, key=f"{KIND}.mixture.{expert}")
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
