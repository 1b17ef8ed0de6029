"""Submitting: a row first, a hint second; a broker that is away costs seconds and no job."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_kind import job_spec
from world import RunningWorkbench

from jobs.queue import submit
from jobs.queue.app import make_app
from jobs.queue.scheduler import Scheduler, num_calls
from jobs.uploads import uploads_folder
from ui.present.jobs.job_status import sentence_of
from workbench.errors import BadSpecError, JobError, NotFoundError, RegistryUnavailableError
from workbench.job_records import jobs as rows
from workbench.kinds.data import ImportCorpus
from workbench.registry import database
from workbench.settings import get_settings


@contextmanager
def port(is_silent: bool) -> Iterator[int]:
    """A port where somebody listens and never answers, or one where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
        if is_silent:
            yield number
    if not is_silent:
        yield number


def test_a_deleted_job_takes_its_log_and_checkpoints_along(servers: RunningWorkbench) -> None:
    job_id, events = submit.run_now(job_spec())
    next(iter(events))
    folder = servers.settings.jobs_folder / job_id
    with pytest.raises(JobError, match="Cancel it first"):
        submit.delete(job_id)
    submit.request_stop(job_id, "cancel")
    list(events)
    assert (folder / "work" / "step").exists()
    assert submit.delete(job_id)
    assert not folder.exists()


def test_with_a_shared_store_a_job_that_reads_an_upload_says_which_machine_it_waits_for(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    upload = uploads_folder(servers.settings.root) / ("a" * 32)
    upload.mkdir(parents=True)
    monkeypatch.setenv("WORKBENCH_STORE", f"file://{tmp_path}")
    get_settings.cache_clear()
    monkeypatch.setattr(submit, "host_name", lambda: "ada")
    job_id = submit.submit(ImportCorpus(name="c", path=str(upload)))
    after = submit.submit(ImportCorpus(name="d", path=str(upload)), after=[job_id])
    elsewhere = submit.submit(ImportCorpus(name="e", path=str(tmp_path)))
    reason = "Waits for a worker on “ada”, which received its file."
    cards = [servers.card(one) for one in (job_id, after, elsewhere)]
    behind = f"Waits for “{cards[0].title}”."
    assert [card.waits_for for card in cards] == [reason, behind, ""]
    assert [sentence_of(card) for card in cards] == [reason, behind, "Waiting for a free worker."]
    monkeypatch.delenv("WORKBENCH_STORE")
    get_settings.cache_clear()
    assert servers.card(job_id).waits_for == ""


def test_an_invalid_spec_leaves_no_row(servers: RunningWorkbench) -> None:
    with pytest.raises(BadSpecError, match="max_tokens"):
        submit.submit({"kind": "evaluate", "mixture": "m", "max_tokens": 1})
    with pytest.raises(NotFoundError):
        submit.submit(job_spec(), after=["0" * 32])
    with database.reading() as session:
        assert rows.list_jobs(session) == []
    assert num_calls(servers.settings) == 0


def test_a_submitted_job_is_a_row_and_a_hint(servers: RunningWorkbench) -> None:
    job_id = submit.submit(job_spec(), title="Count", priority=3)
    row = servers.row(job_id)
    assert (row.state, row.title, row.priority, row.attempt) == ("queued", "Count", 3, 0)
    assert row.sent_at is not None
    assert num_calls(servers.settings) == 1


@pytest.mark.parametrize(
    ("url", "is_silent"),
    [("redis://127.0.0.1:{}/0", False), ("amqp://127.0.0.1:{}//", False), ("redis://127.0.0.1:{}/0", True)],
)
def test_a_broker_that_is_down_or_does_not_answer_costs_seconds_and_no_job(
    servers: RunningWorkbench, url: str, is_silent: bool
) -> None:
    with port(is_silent) as number:
        settings = servers.settings.model_copy(update={"broker_url": url.format(number)})
        start = time.monotonic()
        job_id = submit.submit(job_spec(), settings=settings)
        assert time.monotonic() - start < 30  # a silent one is given up after five
    assert (servers.card(job_id).state, servers.row(job_id).sent_at) == ("queued", None)


def test_a_queue_that_cannot_be_written_costs_no_job(servers: RunningWorkbench) -> None:
    (servers.settings.root / "queue").write_text("in the way")
    job_id = submit.submit(job_spec())
    assert (servers.card(job_id).state, servers.row(job_id).sent_at) == ("queued", None)
    (servers.settings.root / "queue").unlink()
    Scheduler(servers.settings).round()
    assert num_calls(servers.settings) == 1


def test_a_job_is_submitted_once_even_when_the_registry_fails_after_it(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def falter(*_: object) -> None:
        raise RegistryUnavailableError("The registry does not answer.")

    monkeypatch.setattr(rows, "mark_sent", falter)
    assert servers.card(submit.submit(job_spec())).state == "queued"


def test_waiting_shows_each_change_and_ends_with_the_job(servers: RunningWorkbench) -> None:
    job_id = submit.submit(job_spec())
    cards = submit.wait(job_id, 0.05)
    assert next(cards).state == "queued"
    submit.request_stop(job_id, "cancel")
    assert [card.state for card in cards] == ["cancelled"]


def test_a_stopped_job_is_queued_again_on_request(servers: RunningWorkbench) -> None:
    job_id = submit.submit(job_spec())
    with pytest.raises(JobError):
        submit.retry(job_id)
    submit.request_stop(job_id, "pause")
    submit.resume(job_id)
    submit.request_stop(job_id, "cancel")
    submit.retry(job_id)
    assert servers.card(job_id).state == "queued"
    assert num_calls(servers.settings) == 3


def test_messages_hold_nothing_but_the_id(servers: RunningWorkbench) -> None:
    job_id = submit.submit(job_spec("a secret name"))
    (message,) = (servers.settings.root / "queue").glob("*.msg")
    assert job_id in message.read_text()
    assert "secret" not in message.read_text()
    conf = make_app(servers.settings).conf
    assert (conf.accept_content, conf.result_backend, conf.worker_enable_remote_control) == (["json"], None, False)
