"""A job that has ended can be deleted where it is looked at."""

from __future__ import annotations

import pytest

from tests.ui.studio.visits import named, open_page, output, read
from workbench.job_records import jobs as rows

pytestmark = pytest.mark.usefixtures("filled_home")


def test_a_job_that_has_ended_is_deleted_and_one_that_runs_is_not() -> None:
    by_state = {job.state: job for job in read(rows.list_jobs)}
    app = open_page("jobs_page", job=by_state["running"].id)
    assert not [button for button in app.button if "Delete for good" in button.label]
    app = open_page("jobs_page", job=by_state["cancelled"].id)
    named(app.button, "Delete for good").click().run()
    assert not app.exception
    assert "are deleted" in output(app)
    assert by_state["cancelled"].id not in [job.id for job in read(rows.list_jobs)]
