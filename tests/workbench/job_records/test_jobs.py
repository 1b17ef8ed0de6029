"""Jobs as everybody but their worker sees them: in order, stopped, resumed, tried again, shown as they are."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from workbench.errors import JobError, NotFoundError
from workbench.job_records import jobs, leases
from workbench.kinds.analysis import Evaluate, MeasureOverlap, SelfCheck
from workbench.kinds.data import ImportCorpus
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.train_joint import TrainJoint
from workbench.schema.job_states import REQUIREMENTS
from workbench.schema.job_tables import Job, Metric
from workbench.schema.tables import Artifact

SPEC = MakeSeed(name="seed", domains=["law"])


def new_job(session: Session, **job_spec: Any) -> str:
    return jobs.create_job(session, SPEC, **job_spec)


def start(session: Session, job_id: str) -> int:
    fence = leases.claim(session, job_id, "worker", 30, 3)
    assert fence is not None
    return fence


def end(session: Session, job_id: str, state: Any = "done") -> None:
    leases.finish(session, job_id, start(session, job_id), state, error="it broke" if state == "failed" else "")


def state(session: Session, job_id: str) -> str:
    return jobs.get_job(session, job_id).state


def shown(session: Session, job_id: str) -> list[str]:
    return [event.message for event in jobs.events(session, job_id)]


def silence(session: Session, job_id: str) -> None:
    session.execute(update(Job).where(Job.id == job_id).values(lease_until=time.time() - 1))


# events ----------------------------------------------------------------------------------------------


def test_the_newest_event_of_a_kind_is_that_of_this_job(session: Session) -> None:
    one, other = new_job(session), new_job(session)
    assert jobs.newest_event(session, one, REQUIREMENTS) is None
    for job, message in ((one, "4 GB"), (one, "8 GB"), (other, "16 GB")):
        leases.add_event(session, job, message, kind=REQUIREMENTS)
    leases.add_event(session, one, "Checkpoint at step 1.")
    newest = jobs.newest_event(session, one, REQUIREMENTS)
    assert newest is not None
    assert newest.message == "8 GB"


# deleting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
def test_an_ended_job_is_deleted_with_its_story_and_curves(session: Session, how: str) -> None:
    first = new_job(session)
    end(session, first)
    job = new_job(session, after=[first])
    fence = start(session, job)
    leases.record(session, job, fence, metrics=[("loss", 1, 2.0)])
    leases.finish(session, job, fence, how)  # type: ignore[arg-type]
    assert jobs.delete_job(session, job)
    assert [card.id for card in jobs.list_jobs(session)] == [first]
    assert session.scalar(select(func.count()).where(Metric.job_id == job)) == 0


def test_a_job_that_a_later_one_or_something_made_names_stays(session: Session) -> None:
    first, maker = new_job(session), new_job(session)
    end(session, first)
    end(session, maker, "failed")
    new_job(session, after=[first])
    session.add(Artifact(kind="tokens", sha256="0" * 64, job_id=maker))
    session.flush()
    for job in (first, maker):
        assert not jobs.delete_job(session, job)
        assert shown(session, job)[-1] == "Its log and checkpoints were deleted."


def test_a_job_that_has_not_ended_is_not_deleted(session: Session) -> None:
    queued, running, paused = (new_job(session) for _ in range(3))
    start(session, running)
    jobs.request_stop(session, paused, "pause")
    for job in (queued, running, paused):
        with pytest.raises(JobError, match="only an ended job can be deleted"):
            jobs.delete_job(session, job)


# order -----------------------------------------------------------------------------------------------


def test_a_job_waits_for_those_before_it(session: Session) -> None:
    first = new_job(session)
    second = new_job(session, after=[first])
    assert jobs.due(session, time.time()) == [first]
    assert leases.claim(session, second, "eager", 30, 3) is None
    end(session, first)
    assert jobs.due(session, time.time()) == [second]
    assert start(session, second) == 1


def test_a_job_waits_for_all_of_them(session: Session) -> None:
    before = [new_job(session) for _ in range(3)]
    last = new_job(session, after=[*before, before[0]])
    for one in before:
        assert leases.claim(session, last, "eager", 30, 3) is None
        end(session, one)
    assert start(session, last)
    assert sorted(jobs.get_job(session, last).after) == sorted(before)


def test_a_job_names_those_that_it_still_waits_for(session: Session) -> None:
    before = [new_job(session, title=f"Import {name}") for name in ("law", "sea", "sky", "soil")]
    last = new_job(session, after=before)
    assert jobs.get_job(session, last).waits_for == "Waits for “Import law”, “Import sea”, “Import sky” and 1 more."
    for one in before[:3]:
        end(session, one)
    assert jobs.get_job(session, last).waits_for == "Waits for “Import soil”."
    end(session, before[3])
    assert jobs.get_job(session, last).waits_for == ""


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_those_that_wait_end_alike_with_the_cause(session: Session, ending: str) -> None:
    first = new_job(session, title="Import law")
    second = new_job(session, title="Train law", after=[first])
    third = new_job(session, after=[second])
    end(session, first, ending)
    card = jobs.get_job(session, second)
    assert (card.state, card.attempt) == (ending, 0)
    assert shown(session, second)[-1] == f"{ending.capitalize()}: {card.error}"
    assert card.error == f"The job depends on “Import law”, which is {ending}."
    assert card.next_step == "Retry “Import law”."
    assert jobs.get_job(session, third).error == f"The job depends on “Train law”, which is {ending}."
    assert state(session, third) == ending


def test_a_paused_job_keeps_the_others_waiting(session: Session) -> None:
    first = new_job(session)
    second = new_job(session, after=[first])
    end(session, first, "paused")
    assert leases.claim(session, second, "eager", 30, 3) is None
    assert state(session, second) == "queued"


def test_waiting_for_one_that_failed_and_one_that_was_cancelled_is_failing(session: Session) -> None:
    first, other = new_job(session, title="Cancelled"), new_job(session, title="Broken")
    jobs.request_stop(session, first, "cancel")
    end(session, other, "failed")
    last = new_job(session, after=[first, other])
    assert (state(session, last), "“Broken”" in jobs.get_job(session, last).error) == ("failed", True)


def test_waiting_for_two_that_were_cancelled_is_reported_once(session: Session) -> None:
    before = [new_job(session), new_job(session)]
    for one in before:
        jobs.request_stop(session, one, "cancel")
    last = new_job(session, after=before)
    assert state(session, last) == "cancelled"
    assert len([message for message in shown(session, last) if message.startswith("Cancelled")]) == 1


def test_nobody_can_wait_for_a_job_that_is_not_there(session: Session) -> None:
    known = new_job(session)
    with pytest.raises(NotFoundError, match=f"There is no job called “nothing”. Known: {known}"):
        new_job(session, after=["nothing"])


def test_the_urgent_come_first_then_the_oldest(session: Session) -> None:
    plain, other, urgent = new_job(session), new_job(session), new_job(session, priority=5)
    assert jobs.due(session, time.time()) == [urgent, plain, other]
    jobs.set_priority(session, other, 9)
    assert jobs.due(session, time.time()) == [other, urgent, plain]
    assert shown(session, other)[-1] == "Its priority is 9 now."
    end(session, other)
    with pytest.raises(JobError, match="must be unfinished to change its priority"):
        jobs.set_priority(session, other, 1)


def test_a_hint_is_repeated_only_after_a_while(session: Session) -> None:
    job, now = new_job(session), time.time()
    jobs.mark_sent(session, [job], now)
    assert jobs.due(session, now + 5, resend_seconds=15) == []
    assert jobs.due(session, now + 15, resend_seconds=15) == [job]


# stopping --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "final"), [("cancel", "cancelled"), ("pause", "paused")])
def test_a_waiting_job_stops_immediately(session: Session, how: Any, final: str) -> None:
    job = new_job(session)
    for _ in range(2):  # asking twice is fine
        jobs.request_stop(session, job, how)
    assert state(session, job) == final
    assert jobs.due(session, time.time()) == []


def test_a_running_job_gets_the_request_and_reports_it_itself(session: Session) -> None:
    job = new_job(session)
    fence = start(session, job)
    jobs.request_stop(session, job, "cancel")
    card = jobs.get_job(session, job)
    assert (card.state, card.stop_requested) == ("running", "cancel")
    assert leases.renew(session, job, fence, 30) == "cancel"
    leases.finish(session, job, fence, "cancelled")
    assert (state(session, job), jobs.get_job(session, job).stop_requested) == ("cancelled", "")


def test_a_pause_does_not_take_a_cancel_back_but_a_cancel_is_stronger(session: Session) -> None:
    job = new_job(session)
    start(session, job)
    for how, requested in (("pause", "pause"), ("cancel", "cancel"), ("pause", "cancel")):
        jobs.request_stop(session, job, how)  # type: ignore[arg-type]
        assert jobs.get_job(session, job).stop_requested == requested


def test_an_interrupted_job_stops_without_its_worker(session: Session) -> None:
    job = new_job(session)
    start(session, job)
    silence(session, job)
    jobs.request_stop(session, job, "cancel")
    assert state(session, job) == "cancelled"


def test_a_paused_job_can_be_cancelled(session: Session) -> None:
    job = new_job(session)
    end(session, job, "paused")
    jobs.request_stop(session, job, "cancel")
    assert state(session, job) == "cancelled"


@pytest.mark.parametrize("ending", ["done", "failed"])
def test_what_has_ended_cannot_be_stopped(session: Session, ending: str) -> None:
    job = new_job(session)
    end(session, job, ending)
    with pytest.raises(JobError, match=f"is {ending}; it must be unfinished to cancel it"):
        jobs.request_stop(session, job, "cancel")


# going on --------------------------------------------------------------------------------------------


def test_a_paused_job_goes_on_with_all_its_attempts(session: Session) -> None:
    job = new_job(session)
    end(session, job, "paused")
    jobs.resume(session, job)
    assert jobs.due(session, time.time()) == [job]
    assert start(session, job) == 2  # the fence never falls
    assert jobs.get_job(session, job).attempt == 1


def test_a_failed_job_is_tried_again_without_its_old_error(session: Session) -> None:
    job = new_job(session)
    end(session, job, "failed")
    assert jobs.get_job(session, job).error == "it broke"
    jobs.retry(session, job)
    card = jobs.get_job(session, job)
    assert (card.state, card.error, card.finished_at) == ("queued", "", None)


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_trying_again_brings_back_those_that_waited(session: Session, ending: str) -> None:
    first = new_job(session)
    second = new_job(session, after=[first])
    third = new_job(session, after=[second])
    end(session, first, ending)
    jobs.retry(session, first)
    assert [state(session, one) for one in (first, second, third)] == ["queued"] * 3
    for one in (first, second, third):
        end(session, one)


def test_trying_again_leaves_cancelled_what_was_cancelled_by_itself(session: Session) -> None:
    first = new_job(session)
    second = new_job(session, after=[first])
    jobs.request_stop(session, second, "cancel")
    jobs.request_stop(session, first, "cancel")
    jobs.retry(session, first)
    assert (state(session, first), state(session, second)) == ("queued", "cancelled")


def test_a_retry_brings_back_once_what_waited_for_two_jobs(session: Session) -> None:
    first = new_job(session)
    left, right = new_job(session, after=[first]), new_job(session, after=[first])
    last = new_job(session, after=[first, left, right])
    end(session, first, "failed")
    jobs.retry(session, first)
    assert [state(session, one) for one in (first, left, right, last)] == ["queued"] * 4


def test_a_retry_leaves_what_failed_by_itself_or_waits_for_more(session: Session) -> None:
    first, other = new_job(session), new_job(session, title="Other")
    both = new_job(session, after=[first, other])
    end(session, first, "failed")
    end(session, other, "failed")
    jobs.retry(session, first)
    assert state(session, both) == "failed"
    with pytest.raises(JobError, match="Retry “Other” first"):
        jobs.retry(session, both)
    jobs.retry(session, other)
    assert state(session, both) == "queued"


@pytest.mark.parametrize(
    ("action", "ending", "advice"),
    [("resume", "failed", "Retry it"), ("retry", "paused", "Resume it"), ("retry", "done", "Submit a new job")],
)
def test_a_job_in_the_wrong_state_says_what_to_do_instead(
    session: Session, action: str, ending: str, advice: str
) -> None:
    job = new_job(session)
    end(session, job, ending)
    with pytest.raises(JobError, match=advice):
        getattr(jobs, action)(session, job)


# showing ---------------------------------------------------------------------------------------------


def test_a_dead_job_is_not_shown_as_running(session: Session) -> None:
    alive, dead = new_job(session), new_job(session)
    start(session, alive)
    start(session, dead)
    silence(session, dead)
    assert [card.id for card in jobs.list_jobs(session, state="running")] == [alive]
    assert [card.id for card in jobs.list_jobs(session, state="interrupted")] == [dead]
    assert jobs.count_by_state(session) == {"running": 1, "interrupted": 1}


def test_jobs_are_listed_newest_first_and_in_pages(session: Session) -> None:
    made = [new_job(session) for _ in range(5)]
    assert [card.id for card in jobs.list_jobs(session, limit=2, offset=1)] == [made[3], made[2]]


def test_a_card_holds_the_spec(session: Session) -> None:
    card = jobs.get_job(session, new_job(session))
    assert MakeSeed.model_validate(card.spec) == SPEC
    assert (card.kind, card.title) == ("make-seed", "Make seed seed")


@pytest.mark.parametrize(
    ("spec", "title"),
    [
        (ImportCorpus(name="law", path="x"), "Import corpus law"),
        (TrainJoint(name="mix", seed_model="seed", domains=["law"]), "Train joint model mix"),
        (Evaluate(mixture="mix"), "Evaluate mix"),
        (MeasureOverlap(), "Measure overlap"),
        (SelfCheck(), "Self-check"),
    ],
)
def test_jobs_are_called_after_what_they_do(spec: Any, title: str) -> None:
    assert jobs.title_of(spec) == title


@pytest.mark.parametrize("ask", [jobs.get_job, jobs.events, jobs.metrics, jobs.resume, jobs.retry, jobs.delete_job])
def test_an_unknown_job_gives_404(session: Session, ask: Any) -> None:
    with pytest.raises(NotFoundError, match=r"There is no job called “nothing”\. There is no job yet\."):
        ask(session, "nothing")
