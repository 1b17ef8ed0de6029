"""A few-shot classification, read in the studio."""

from __future__ import annotations

import streamlit as st

from ui.present.charts.classification_bars import accuracy_bars
from ui.present.text.classification import cluster_rows, method_words, task_rows
from ui.present.text.formatting import plain
from ui.widgets.data_table import show_table
from ui.widgets.show_chart import show_chart
from workbench.answers.cards import ReportCard


def show_classification(report: ReportCard) -> None:
    """Accuracies as bars and numbers, what to know about them, the clusters that speak for each task."""
    findings = report.findings
    st.markdown(plain(findings["sentence"]))
    show_chart(accuracy_bars(findings), f"classification_{report.id}")
    st.caption(plain(method_words(findings)))
    for note in findings["notes"]:
        st.caption(plain(note))
    if rows := cluster_rows(findings):
        st.markdown("##### The clusters whose experts weigh most, with their mean weight")
        show_table(rows, f"classification_clusters_{report.id}", f"Clusters by task, {report.title}")
    st.markdown("##### The tasks")
    show_table(task_rows(findings), f"classification_tasks_{report.id}", f"Tasks of {report.title}")
