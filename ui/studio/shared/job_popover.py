"""A button that opens the form of a kind of job for one model."""

from __future__ import annotations

import streamlit as st

from ui.studio.forms.job_form import show_form_and_job
from ui.widgets.notices import explained
from ui.widgets.on_demand import content_of


def show_job_popover(kind: str, field: str, model: str, label: str, icon: str = ":material/download:") -> None:
    """The form of a kind, where the field that names the model is answered, and the last job of it."""
    key = f"popover.{kind}.{model}"
    box = st.popover(label, icon=icon, key=key, on_change="rerun")
    if content := content_of(box, key):
        with content, explained():
            show_form_and_job(kind, {}, label, skip=(field,), given={(field,): model})
