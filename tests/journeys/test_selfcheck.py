"""The self-check as a job: asked for, carried out, and kept where the page finds it."""

from __future__ import annotations

import pytest

from engine.selfcheck import laws
from jobs.queue.submit import run_now
from tests.journeys.conftest import Do
from workbench.job_records import jobs
from workbench.registry.database import reading


def test_the_laws_are_checked_and_kept_as_the_jobs_result(do: Do) -> None:
    card = do({"kind": "selfcheck"})
    assert card.state == "done", (card.error, card.next_step)
    with reading() as session:
        (kept,) = jobs.list_jobs(session, kind="selfcheck")
        assert jobs.list_jobs(session, kind="evaluate") == []
    assert kept.result["ok"]
    assert [law["law"] for law in kept.result["laws"]] == [law.number for law in laws.LAWS]
    assert kept.result["device"].startswith("cpu")


def test_a_law_that_fails_is_the_result_of_a_job_that_is_done(do: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(_test_bed: object) -> None:
        raise RuntimeError("stuck")

    broken = laws.Law("L1", "a law", "bit-equal", 0, stuck)  # type: ignore[arg-type]
    monkeypatch.setattr(laws.run_laws, "__defaults__", ("auto", (broken,)))
    card = do({"kind": "selfcheck"})
    assert card.state == "done"
    assert card.result["failed"] == ["L1"]
    assert card.result["laws"][0]["measured"] is None


@pytest.mark.usefixtures("do")
def test_each_law_is_a_step_with_its_verdict() -> None:
    _, events = run_now({"kind": "selfcheck"})
    first = next(events)
    events.close()  # type: ignore[attr-defined]
    assert (first.done, first.total, first.note) == (1, len(laws.LAWS), "L1 ok")
