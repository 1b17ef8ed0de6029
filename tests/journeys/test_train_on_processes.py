"""A DEMix model trained by one job on two processes: paused on the way, and the same as trained in one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from engine.events import Step
from jobs.attempt.attempt import run_here
from jobs.queue.submit import run_now
from workbench.job_records import jobs
from workbench.registry import experts
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings
from workbench.store.storage import get_storage

DEMIX: dict[str, Any] = {
    "kind": "train-joint",
    "seed_model": "seed",
    "domains": ["court", "kitchen"],
    "training": {"num_steps": 12, "block_size": 32, "learning_rate": 5e-3, "checkpoint_every": 10, "evaluate_every": 6},
}


def processes_in(folder: Path) -> list[str]:
    """Command lines of living processes that name a folder."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if str(folder) in line]


@pytest.mark.slow
def test_a_job_on_two_processes_makes_the_experts_that_one_process_makes(
    trained, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained({**DEMIX, "name": "one"}).state == "done"
    monkeypatch.setenv("WORKBENCH_PROCESSES", "2")
    get_settings.cache_clear()
    job_id, events = run_now({**DEMIX, "name": "two"})
    for event in events:
        if isinstance(event, Step) and event.step == 5:
            break
    events.close()  # type: ignore[attr-defined]
    work = home / "jobs" / job_id / "work"
    assert {path.name for path in work.iterdir()} == {
        "masks.json",
        "row_order.json",
        "sources.json",
        "step-00000005",
        "throughput.json",
        "versions.json",
    }
    assert not processes_in(work)
    with transaction() as session:
        assert jobs.get_job(session, job_id).state == "paused"
        jobs.resume(session, job_id)
    list(run_here(job_id))
    with reading() as session:
        card = jobs.get_job(session, job_id)
        curve = [point.step for point in jobs.metrics(session, job_id) if point.name == "loss"]
        pairs = [
            [experts.get_expert(session, f"{mixture}/{name}") for mixture in ("one", "two")]
            for name in DEMIX["domains"]
        ]
    assert (card.state, card.error) == ("done", "")
    assert curve == list(range(1, 13))
    for one, two in pairs:
        assert two.metrics["dev_perplexity"] == pytest.approx(one.metrics["dev_perplexity"], rel=1e-5)
        ours, theirs = (load_file(get_storage().path(expert.id) / "expert.safetensors") for expert in (two, one))
        assert all(float((ours[name] - t).norm()) <= 5e-5 * float(t.norm()) for name, t in theirs.items())


def test_a_job_on_two_processes_stops_early_and_its_experts_are_the_best_ones(
    trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_PROCESSES", "2")
    get_settings.cache_clear()
    wild = {**DEMIX["training"], "num_steps": 60, "learning_rate": 0.5, "evaluate_every": 2, "patience": 2}
    card = trained({**DEMIX, "name": "wild", "training": wild})
    assert card.state == "done", card.error
    with reading() as session:
        curves = [
            {point.step: point.value for point in jobs.metrics(session, card.id, f"dev_loss/{name}")}
            for name in DEMIX["domains"]
        ]
        result = [experts.get_expert(session, f"wild/{name}").metrics["dev_perplexity"] for name in DEMIX["domains"]]
        shown = [event.message for event in jobs.events(session, card.id)]
    best = min(curves[0], key=lambda step: curves[0][step] + curves[1][step])
    assert max(curves[0]) < 60
    assert result == [pytest.approx(math.exp(curve[best])) for curve in curves]
    assert any(f"the weights are those of step {best}" in one for one in shown)


def test_more_processes_than_the_batch_has_sequences_fail_with_the_numbers_to_choose(
    trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_PROCESSES", "5")
    get_settings.cache_clear()
    card = trained({**DEMIX, "name": "many"})
    assert card.state == "failed"
    assert "must be at most its 2 sequences in a batch" in card.error
    assert "Choose at most 4 processes" in card.next_step
