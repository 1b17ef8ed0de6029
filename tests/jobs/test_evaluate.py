"""What an evaluation registers at its end, when the registry has moved on meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from house import House

from jobs.attempt import take
from jobs.kinds import evaluate
from jobs.work import Work
from workbench import database
from workbench.services import jobs as rows
from workbench.specs import Evaluate
from workbench.tables import Evaluation


def test_scores_of_what_was_deleted_meanwhile_are_left_out(house: House) -> None:
    spec = Evaluate(mixture="mix", domains=["law"])
    with database.transaction() as session:
        job_id = rows.create_job(session, spec)
    claim = take(house.settings, job_id, "somebody")
    assert claim is not None
    work = Work(claim, house.settings)
    with work.storage.new("a" * 32) as folder:
        np.save(folder / "logprobs.npy", np.full(3, -1.0))
    gone: Any = SimpleNamespace(id="d" * 32, name="law")
    score = evaluate._Score("e" * 32, gone, np.arange(4), "a" * 32)
    register = evaluate._register(work, spec, [score])
    with work.transaction() as session:
        assert register(session) == {"mixture": "mix", "scored": 0}
        assert session.query(Evaluation).count() == 0
