"""A report as a picture to share, with its sentence, its link and its command."""

from __future__ import annotations

import base64

import streamlit as st

from ui.addresses import public_studio_address
from ui.present.pages import REPORTS
from ui.reports.report_type import report_picture, show_report_line
from ui.widgets.elements.components import download_button
from workbench.answers.cards import ReportCard
from workbench.settings import get_settings

_WIDTH = 600  # pixels on a page: half of the picture's own, so that numbers below it stay on the first screen


def show_report_picture(report: ReportCard, key: str) -> None:
    """The picture of a report, if its sort has one, and what to share beside it."""
    drawn = report_picture(report)
    if drawn is None:
        return
    svg, sentence = drawn
    encoded = base64.b64encode(svg.encode()).decode()
    link = f"{public_studio_address(get_settings())}/{REPORTS.address}?reports.chosen={report.id}"
    st.image(f"data:image/svg+xml;base64,{encoded}", width=_WIDTH)
    with st.container(horizontal=True, vertical_alignment="center"):
        download_button("Save as PNG", svg, f"{report.kind}-{report.id[:8]}.png", f"{key}_{report.id}", "image/png")
        with st.popover("Share …", icon=":material/share:", key=f"{key}_{report.id}_share"):
            st.caption("What it says")
            st.code(sentence, language=None, wrap_lines=True)
            st.caption("Its page, for who can reach this studio")
            st.code(link, language=None, wrap_lines=True)
            st.caption("Its numbers, and the picture as SVG")
            st.code(f"{show_report_line(report)}\n{show_report_line(report)} --svg", language="bash", wrap_lines=True)
