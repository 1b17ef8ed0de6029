"""What scores are registered at a job's end, when the registry has moved on meanwhile."""

from __future__ import annotations

from world import RunningWorkbench

from jobs.attempt.attempt import take
from jobs.attempt.work import Work
from jobs.kinds.shared.scoring import NewScores, register_scores
from workbench.job_records import jobs as rows
from workbench.kinds.analysis import Evaluate
from workbench.registry import database
from workbench.schema.tables import Evaluation


def test_scores_of_what_was_deleted_meanwhile_are_left_out(servers: RunningWorkbench) -> None:
    with database.transaction() as session:
        job_id = rows.create_job(session, Evaluate(mixture="mix", domains=["law"]))
    claim = take(servers.settings, job_id, "somebody")
    assert claim is not None
    work = Work(claim, servers.settings)
    score = NewScores(
        "a" * 32, "e" * 32, "d" * 32, "test", 8, num_tokens=3, log_likelihood=-3.0, num_correct=1, num_counted=None
    )
    with work.transaction() as session:
        assert register_scores(session, work, [score]) == 0
        assert session.query(Evaluation).count() == 0
