"""A training's page leads on: to the jobs that follow it, to its certificate as a picture, and to the playground."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from tests.ui.reports.test_report_pictures import addition, domain
from tests.ui.studio.test_studio_addresses import visit
from tests.ui.studio.visits import named, output
from workbench.job_records import jobs
from workbench.kinds.analysis import CertifyAddition
from workbench.kinds.training.train_expert import TrainExpert
from workbench.registry.database import transaction
from workbench.registry.reports import register_report
from workbench.schema.job_tables import Job

pytestmark = pytest.mark.usefixtures("filled_home")
SPEC = TrainExpert(name="sailor", domain="code", mixture="first")
RESULT = {"expert": "sailor", "mixture": "first", "parent": "first/prose", "seed": "smol"}


def trained(state: str) -> tuple[str, str]:
    """A finished training and the job of its certificate in this state."""
    with transaction() as session:
        job_id = jobs.create_job(session, SPEC)
        after_id = jobs.create_job(session, CertifyAddition(expert="sailor", mixture="first"), after=[job_id])
        for id, now, result in ((job_id, "done", RESULT), (after_id, state, {**RESULT, "sentence": "It holds."})):
            session.execute(update(Job).where(Job.id == id).values(state=now, result=result))
    return job_id, after_id


def images(app: Any) -> list[str]:
    return [url for one in app.get("image") for url in one.value]


@pytest.mark.parametrize("state", ["queued", "running", "failed"])
def test_the_job_of_the_certificate_is_seen_until_it_ends(state: str) -> None:
    job_id, _ = trained(state)
    app = visit("jobs_page", {"job": job_id})
    assert not app.exception
    assert "Certify addition" in output(app)
    assert named(app.button, "See the job")
    assert images(app) == []


def test_the_certificate_is_a_picture_below_the_training_on_its_own_page_and_with_the_report() -> None:
    job_id, after_id = trained("done")
    findings = addition("sailor", domain("code", 100, 60, is_new=True)).findings
    with transaction() as session:
        report = register_report(session, "addition", "Addition of sailor", findings, job_id=after_id)
    pages = [visit("jobs_page", {"job": job_id}), visit("jobs_page", {"job": after_id})]
    pages.append(visit("reports", {"reports.chosen": report.id}))
    for app in pages:
        assert not app.exception
        [picture] = images(app)
        assert picture.startswith("data:image/svg+xml;base64,")
        assert any("−40.0 % on code" in one.value for one in app.code)
        assert any(f"/reports?reports.chosen={report.id}" in one.value for one in app.code)
    chats = [one.proto.query_string for one in pages[0].get("page_link") if one.proto.label == "Chat with it"]
    assert chats
    assert all("left=seed%3Asmol" in query and "right=first" in query for query in chats)
