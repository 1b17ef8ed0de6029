"""The form of a kind of job with the job that it submitted last."""

from __future__ import annotations

from typing import Any

from ui.kinds.catalog import command_of
from ui.present.forms.questions import Offers
from ui.studio.job_views.job_view import show_job
from ui.widgets.job_form import last_job, show_job_form


def show_form_and_job(kind: str, offers: Offers, label: str, **options: Any) -> None:
    """The form, with the options of `show_job_form`, and its last job beneath it."""
    show_job_form(kind, offers, label, command=command_of(kind), **options)
    show_last(kind)


def show_last(kind: str) -> None:
    """The job that this form submitted last, live."""
    if job_id := last_job(kind):
        show_job(job_id, key=f"{kind}_job")
