"""The first journey: a spec, a job, a process of its own, an expert in the registry."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from engine.events import Note, Step
from engine.files import verify_folder
from engine.inference.scores import token_hits
from jobs.attempt.attempt import run_here
from jobs.kinds.shared import resume_guard
from jobs.queue.submit import run_now, submit, wait
from tests.journeys.conftest import Do
from workbench.analysis import perplexity_tables
from workbench.answers.cards import JobCard
from workbench.errors import BadSpecError
from workbench.job_records import jobs
from workbench.questions.perplexities import mix_scores
from workbench.registry import experts, mixtures
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Evaluation
from workbench.specs.requests import MixtureRequest, MixtureSpec
from workbench.store.storage import get_storage

NEW = {
    "kind": "train-expert",
    "name": "sailor",
    "domain": "sea",
    "mixture": "small",
    "training": {"num_steps": 40, "block_size": 32, "learning_rate": 5e-3, "clip": 1.0, "checkpoint_every": 5},
}


@contextmanager
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A real Celery worker on this home's folder queue."""
    process = subprocess.Popen([sys.executable, "-m", "jobs.queue.worker"], start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def hashes(home: Path) -> dict[str, str]:
    folder = home / "artifacts"
    return {
        str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.rglob("*") if f.is_file()
    }


def test_a_job_goes_from_the_queue_through_a_process_of_its_own_to_an_expert(trained: Do, home: Path) -> None:
    before = hashes(home)
    with worker():
        job_id = submit(NEW)
        seen = list(wait(job_id))
    card = seen[-1]
    assert card.state == "done", (card.error, card.next_step)
    assert card.result["expert"] == "sailor"
    with reading() as session:
        expert = experts.get_expert(session, "sailor")
        points = jobs.metrics(session, job_id)
        members = [member.expert for member in mixtures.get_mixture(session, "small").members]
    assert expert.parent == card.result["parent"]
    assert expert.sha256 == verify_folder(get_storage().path(expert.id))
    assert members == ["small/court", "small/kitchen", "sailor"]
    assert {point.name for point in points} >= {"loss", "dev_loss/sea"}
    assert sum(card.result["parent_posterior"].values()) == pytest.approx(1)
    after = hashes(home)
    assert {name: after[name] for name in before} == before  # L8: nothing else changed by a bit


@pytest.mark.slow
def test_killed_at_any_moment_the_training_ends_as_if_it_had_not_been(trained: Do) -> None:
    longer = {**NEW, "join": False, "training": {**NEW["training"], "num_steps": 200}}
    calm = trained({**longer, "name": "calm"})
    with worker():
        job_id = submit(longer)
        _kill_while_it_runs(job_id)
        card = list(wait(job_id))[-1]
    assert card.state == "done", (card.error, card.next_step)
    with reading() as session:
        losses = [_curve(session, id) for id in (calm.id, job_id)]
        same = [experts.get_expert(session, name) for name in ("calm", "sailor")]
        shown = [event.message for event in jobs.events(session, job_id)]
    assert sum(one.startswith("Started") for one in shown) == 2
    assert losses[0] == losses[1]
    files = [(get_storage().path(expert.id) / "expert.safetensors").read_bytes() for expert in same]
    assert files[0] == files[1]  # L17 through a kill -9


def _curve(session: Any, job_id: str) -> dict[int, float]:
    return {point.step: point.value for point in jobs.metrics(session, job_id) if point.name == "loss"}


def _kill_while_it_runs(job_id: str) -> None:
    """kill -9 of the job's process, once its first losses are written."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with reading() as session:
            card, curve = jobs.get_job(session, job_id), _curve(session, job_id)
        if curve and card.state == "running":
            os.kill(_pid_of(card), signal.SIGKILL)
            return
        time.sleep(0.02)
    pytest.fail("the job never got under way")


def _pid_of(card: JobCard) -> int:
    outcome = subprocess.run(
        ["pgrep", "-f", f"jobs.attempt.runner {card.id}"], capture_output=True, text=True, check=True
    )
    return int(outcome.stdout.split()[0])


def test_an_evaluation_is_kept_and_only_what_is_new_is_scored(trained: Do) -> None:
    job_spec = {"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 500}
    first = trained(job_spec).result
    assert (first["scored"], first["sentence"]) == (2 * 3, "6 pairs of expert and domain scored.")
    trained({**NEW, "parent": "small/court"})
    assert trained(job_spec).result["scored"] == 3
    with reading() as session:
        table = perplexity_tables.perplexity_table(session, "small")
        mixed = mix_scores(session, get_storage(), "small")
        by_itself = mix_scores(session, get_storage(), MixtureRequest("small", active=["sailor"]))
        uniform = mix_scores(session, get_storage(), MixtureRequest("small", gate={"kind": "fixed"}))
    assert {row.domain for row in mixed.domains} == {"court", "kitchen", "sea"}
    sea = table.perplexity[table.experts.index("sailor")][table.domains.index("sea")]
    assert next(row for row in by_itself.domains if row.domain == "sea").perplexity == pytest.approx(sea)  # L1
    by_domain = {row.domain: row for row in mixed.domains}
    assert by_domain["sea"].best_expert == "sailor"
    assert all(0 < accuracy < 1 for row in table.accuracy for accuracy in row)
    assert by_domain["court"].best_expert == "small/court"
    assert by_domain["sea"].perplexity < next(r for r in uniform.domains if r.domain == "sea").perplexity


def test_scores_of_before_right_tokens_were_counted_stay_and_are_made_again_on_request(trained: Do) -> None:
    job_spec = {"kind": "evaluate", "mixture": "small", "domains": ["sea"], "block_size": 32, "max_tokens": 500}
    trained(job_spec)
    with transaction() as session:
        before = perplexity_tables.perplexity_table(session, "small")
        session.execute(update(Evaluation).values(num_correct=None))
    nothing = trained(job_spec).result
    assert nothing["scored"] == 0
    assert nothing["sentence"].startswith(
        "Nothing to score: every expert of “small” has scores of this test text already"
    )
    assert "workbench evaluate show small" in nothing["sentence"]
    with reading() as session:
        assert perplexity_tables.perplexity_table(session, "small") == before.model_copy(
            update={"accuracy": [[None], [None]]}
        )
    assert trained({**job_spec, "again": True}).result["scored"] == 2
    with reading() as session:
        assert perplexity_tables.perplexity_table(session, "small") == before
        rows = session.scalars(select(Evaluation)).all()
        counted = [token_hits(get_storage().path(row.artifact_id)) for row in rows]
        stored = [row.num_correct for row in rows]
    assert [int(hits.sum()) for hits in counted if hits is not None] == stored


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"domain": "moon"}, "no domain called “moon”"),
        ({"mixture": "none"}, "no mixture called “none”"),
        ({"parent": "nobody"}, "no expert called “nobody”"),
        ({"name": "small/court"}, "exists already"),
        ({"training": {"block_size": 4096}}, "must be at most 128, the context of"),
    ],
)
def test_an_impossible_spec_is_refused_at_the_click_and_leaves_nothing(trained: Do, change, words) -> None:
    with reading() as session:
        before = len(jobs.list_jobs(session))
    with pytest.raises(BadSpecError, match=words):
        submit({**NEW, **change})
    with reading() as session:
        assert len(jobs.list_jobs(session)) == before


def test_what_only_the_work_can_know_ends_it_with_words_and_leaves_nothing(trained: Do) -> None:
    trained({**NEW, "name": "outsider", "join": False, "parent": "small/court"})
    with reading() as session:
        before = [expert.name for expert in experts.list_experts(session)]
    card = trained({**NEW, "parent": "outsider"})
    assert card.state == "failed"
    assert "no expert in “small” called “outsider”" in card.error
    assert card.next_step
    with reading() as session:
        assert [expert.name for expert in experts.list_experts(session)] == before


def test_a_resumed_job_keeps_the_parent_it_began_from_whatever_was_renamed_or_joined(
    trained: Do, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, events = run_now({**NEW, "training": {**NEW["training"], "num_steps": 60}})
    for event in events:
        if isinstance(event, Step) and event.step == 6:
            break
    events.close()  # leaves the job paused, with a checkpoint
    with reading() as session:
        assert jobs.get_job(session, job_id).state == "paused"
    before = json.loads((home / "jobs" / job_id / "work" / "parent.json").read_text())
    trained({**NEW, "name": "closer"})  # a sea expert: now the nearest by far
    with transaction() as session:
        experts.rename(session, "small/court", "small/assizes")
        jobs.resume(session, job_id)
    monkeypatch.setattr(resume_guard, "library_versions", lambda: {"torch": "9.9"})  # as a worker that was set up again
    notes = [event.sentence for event in run_here(job_id) if isinstance(event, Note)]
    assert any(re.search(r"other versions than it began with.*: torch \S+, now 9\.9", note) for note in notes)
    with reading() as session:
        card = jobs.get_job(session, job_id)
        sailor = experts.get_expert(session, "sailor")
        parent = experts.get_expert(session, str(sailor.parent))
    assert card.state == "done", card.error
    assert parent.id == before["key"]
    assert parent.name != "closer"


def test_a_toggle_does_not_change_the_text_that_is_compared(trained: Do) -> None:
    job_spec = {"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 200}
    trained(job_spec)
    with transaction() as session:
        mixtures.create_mixture(session, MixtureSpec(name="alone", experts=["small/court"]))
    trained({**job_spec, "mixture": "alone", "max_tokens": 300})
    with reading() as session:
        both = mix_scores(session, get_storage(), "small")
        one = mix_scores(session, get_storage(), MixtureRequest("small", active=["small/court"]))
    assert [row.num_tokens for row in both.domains] == [row.num_tokens for row in one.domains]
