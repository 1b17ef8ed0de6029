"""Words of the forecast of a job."""

from __future__ import annotations

from ui.present.forms.job_forecast import not_measured_words
from workbench.errors import BadSpecError, Complaint


def test_a_complaint_about_all_fields_is_a_sentence_and_one_of_a_field_names_it() -> None:
    assert (
        not_measured_words(BadSpecError([Complaint("a share is of one GPU.")]))
        == "Not measured yet. A share is of one GPU."
    )
    assert not_measured_words(BadSpecError(["name: is missing."])) == "Not measured yet. Name: is missing."
