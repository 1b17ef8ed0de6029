"""Experts of MoDE trained by one job on several processes: what one process makes, in files of the experts' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from engine.errors import LostRankError
from engine.events import Note, Step
from engine.files import sha256_of
from jobs.attempt.attempt import run_here
from jobs.queue.submit import run_now
from tests.journeys.conftest import done
from tests.journeys.test_train_on_processes import processes_in
from workbench.job_records import jobs
from workbench.registry import experts
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings
from workbench.store.storage import get_storage

TWO = ["court", "kitchen"]
TRAINING = {
    "num_steps": 12,
    "block_size": 32,
    "learning_rate": 1e-2,
    "clip": 1.0,
    "evaluate_every": 6,
    "checkpoint_every": 10,
}
SINGLE: dict[str, Any] = {
    "kind": "train-mode",
    "seed_model": "seed",
    "domains": ["court"],
    "training": TRAINING,
    "retain": ["sea"],
    "shape": {"num_blocks": 2, "expert_layers": 1},
}
TOGETHER: dict[str, Any] = {
    "kind": "compose-mode",
    "experts": ["law/court", "food/kitchen"],
    "domains": TWO,
    "training": TRAINING,
    "retain": ["sea"],
}


@pytest.fixture
def on_processes(monkeypatch: pytest.MonkeyPatch):
    """Sets how many processes a job asks for."""

    def choose(number: int) -> None:
        monkeypatch.setenv("WORKBENCH_PROCESSES", str(number))
        get_settings.cache_clear()

    return choose


def stopped_after(step: int, job_spec: dict[str, Any]) -> tuple[str, list[str]]:
    """A job that was paused after this step, and what it decided by itself."""
    decided: list[str] = []
    job_id, events = run_now(job_spec)
    for event in events:
        decided += [event.sentence] if isinstance(event, Note) else []
        if isinstance(event, Step) and event.step == step:
            break
    events.close()  # type: ignore[attr-defined]
    return job_id, decided


def resume(job_id: str) -> None:
    with transaction() as session:
        assert jobs.get_job(session, job_id).state == "paused"
        jobs.resume(session, job_id)
    list(run_here(job_id))


def curves_of(job_id: str) -> dict[tuple[str, int], float]:
    """All that was measured, but for speeds."""
    with reading() as session:
        done(jobs.get_job(session, job_id))
        points = jobs.metrics(session, job_id)
    return {(point.name, point.step): point.value for point in points if "loss" in point.name or "gate" in point.name}


def assert_same_experts(name: str, other: str) -> None:
    with reading() as session:
        ours, theirs = (experts.get_expert(session, one) for one in (name, other))
    assert ours.num_parameters == theirs.num_parameters
    assert ours.config["parts"] == theirs.config["parts"]
    assert ours.metrics["dev_perplexity"] == pytest.approx(theirs.metrics["dev_perplexity"], rel=1e-2)
    folders = [get_storage().path(expert.id) for expert in (ours, theirs)]
    files = [sorted(path.name for path in folder.glob("part-*")) for folder in folders]
    assert files[0] == files[1] == [f"part-{n}.safetensors" for n in range(len(ours.config["parts"]))]
    assert (folders[0] / "expert.json").read_text() == (folders[1] / "expert.json").read_text()
    for file in files[0]:
        mine, wanted = (load_file(folder / file) for folder in folders)
        assert mine.keys() == wanted.keys()
        assert all(float((mine[n] - one).norm()) <= 1e-4 * float(one.norm()) + 1e-9 for n, one in wanted.items())


def part_hashes(name: str) -> list[str]:
    with reading() as session:
        folder = get_storage().path(experts.get_expert(session, name).id)
    return [sha256_of(path) for path in sorted(folder.glob("part-*"))]


@pytest.mark.slow
def test_a_job_with_its_expert_elsewhere_makes_what_one_process_makes_paused_or_not(
    trained, home: Path, on_processes
) -> None:
    one = done(trained({**SINGLE, "name": "one"}))
    on_processes(4)
    full = done(trained({**SINGLE, "name": "whole"}))
    job_id, decided = stopped_after(5, {**SINGLE, "name": "cut"})
    assert decided == ["The training uses 2 of 4 processes: one for the backbone and one for each part."]
    work = home / "jobs" / job_id / "work"
    assert not processes_in(work)
    assert not load_file(work / "step-00000005/parameters.safetensors")  # the backbone's process has none
    assert load_file(work / "experts/part-0/step-00000005/parameters.safetensors")
    resume(job_id)
    assert curves_of(job_id) == curves_of(full.id)
    assert curves_of(job_id) == pytest.approx(curves_of(one.id), rel=1e-4)
    assert_same_experts("cut/court", "one/court")
    assert part_hashes("cut/court") == part_hashes("whole/court")  # L17


@pytest.mark.slow
def test_parts_are_composed_in_processes_of_their_own_and_patience_keeps_the_best(trained, on_processes) -> None:
    for name, domain in (("law", "court"), ("food", "kitchen")):
        done(trained({**SINGLE, "name": name, "domains": [domain], "retain": []}))
    hasty = {**TOGETHER, "training": {**TRAINING, "evaluate_every": 2, "learning_rate": 0.1, "patience": 1}}
    one = done(trained({**hasty, "name": "one"}))
    on_processes(3)
    many = done(trained({**hasty, "name": "many"}))
    assert curves_of(many.id) == pytest.approx(curves_of(one.id), rel=1e-3)
    assert_same_experts("many/composed", "one/composed")
    with reading() as session:
        shown = [event.message for event in jobs.events(session, many.id)]
    assert any("the weights are those of step" in one for one in shown)
    assert not any("processes of" in one for one in shown)  # all three have something to do


def test_a_job_whose_experts_process_dies_fails_and_leaves_no_process(trained, home: Path, on_processes) -> None:
    on_processes(2)
    job_id, events = run_now({**SINGLE, "name": "dies", "training": {**TRAINING, "num_steps": 1_000_000}})
    work = home / "jobs" / job_id / "work"
    with pytest.raises(LostRankError, match=r"Process 1 of 2 ended without an error message: Signal 9 \(SIGKILL\)"):
        for event in events:
            if isinstance(event, Step) and event.step == 2:
                rank_in(work, 1).kill()
    assert not processes_in(work)
    with reading() as session:
        assert jobs.get_job(session, job_id).state != "done"


def rank_in(folder: Path, rank: int) -> psutil.Process:
    """The living process of this rank in a training in this folder."""
    result = [one for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or [])]
    return next(one for one in result if one.environ().get("RANK") == str(rank))
