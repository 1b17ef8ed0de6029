"""Three small domains of plainly different text, and a home in which a DEMix model was trained on them."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engine.errors import Problem
from engine.events import Step
from engine.loading.plan import GenerationPlan
from jobs.attempt.attempt import run_here
from jobs.plans.clusterings import submit_training
from jobs.queue.submit import run_now
from workbench.answers.cards import ExpertCard, JobCard
from workbench.job_records import jobs
from workbench.kinds.kind import parse_as
from workbench.registry import experts, mixtures
from workbench.registry.database import close_engines, reading, transaction
from workbench.requests.planning import plan
from workbench.settings import Settings
from workbench.specs.gates import load_gate
from workbench.specs.requests import MixtureRequest, TrainClusters
from workbench.store.storage import get_storage

Do = Callable[[dict[str, Any]], JobCard]
WORDS = {
    "court": "the court held that this statute applies and the appeal is dismissed with costs judge law",
    "kitchen": "mix flour sugar butter then bake in a hot oven until golden serve warm cream salt",
    "sea": "waves broke over the grey rocks as gulls cried above the harbour and ships sailed tide",
}
SHAPE = {"num_layers": 2, "width": 32, "num_heads": 2, "ffn_width": 64, "max_positions": 128}
TRAINING = {
    "num_steps": 30,
    "block_size": 32,
    "learning_rate": 5e-3,
    "clip": 1.0,
    "checkpoint_every": 10,
    "evaluate_every": 15,
}

BRANCHES: dict[str, Any] = {"num_steps": 30, "block_size": 32, "learning_rate": 5e-3, "clip": 1.0, "evaluate_every": 15}


def write_domain(folder: Path, name: str) -> Path:
    """60 documents of 60 words each as JSON lines, the same each time."""
    draw = random.Random(name)
    path = folder / f"{name}.jsonl"
    lines = [json.dumps({"text": " ".join(draw.choices(WORDS[name].split(), k=60)) + "."}) for _ in range(60)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def work(spec: dict[str, Any], settings: Settings | None = None) -> JobCard:
    """Runs a job in this process to its end; the card it leaves."""
    job_id, events = run_now(spec, settings=settings)
    with suppress(Problem):  # the card has the words
        for _ in events:
            pass
    with reading(settings) as session:
        return jobs.get_job(session, job_id)


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, Path]:
    return {name: write_domain(tmp_path, name) for name in WORDS}


@pytest.fixture
def do(home: Path) -> Do:
    """Runs a spec to its end in a fresh home."""
    assert home.is_dir()
    return work


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory: pytest.TempPathFactory, empty_registry: Path) -> Path:
    """A home with the mixture “small” of a court and a kitchen expert; the sea is imported and untrained. Made once."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(empty_registry, folder / "registry.db")
    settings = Settings(home=folder)
    two = ["court", "kitchen"]
    for name in WORDS:
        work({"kind": "import-corpus", "name": name, "path": str(write_domain(folder, name))}, settings)
    work({"kind": "make-seed", "name": "seed", "domains": two, "vocab_size": 320, "shape": SHAPE}, settings)
    job_spec = {"kind": "train-joint", "name": "small", "seed_model": "seed", "domains": two, "training": TRAINING}
    card = work(job_spec, settings)
    assert card.state == "done", card.error
    close_engines()
    return folder


@pytest.fixture
def trained(do: Do, home: Path, trained_home: Path) -> Do:
    """A copy of that home; gives the function that runs more jobs in it."""
    shutil.copytree(trained_home, home, dirs_exist_ok=True)
    return do


def flip(file: Path) -> None:
    """Changes one bit in the middle of a file."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def card_of(name: str, settings: Settings | None = None) -> ExpertCard:
    with reading(settings) as session:
        return experts.get_expert(session, name)


def planned(model: str, **request: Any) -> GenerationPlan:
    """The plan of a request to a model; a gate is given as its config."""
    with reading() as session:
        changes = request | ({"gate": asdict(request["gate"])} if "gate" in request else {})
        return plan(session, get_storage(), MixtureRequest(model, **changes))


def paused_at(job_spec: dict[str, Any], step: int) -> str:
    """The id of a job that was paused after this step, with a checkpoint."""
    job_id, events = run_now(job_spec)
    for event in events:
        if isinstance(event, Step) and event.step == step:
            break
    events.close()  # type: ignore[attr-defined]
    return job_id


def resumed(job_id: str) -> JobCard:
    """The card of a job that was resumed, or tried again, and has ended."""
    with transaction() as session:
        go_on = jobs.resume if jobs.get_job(session, job_id).state == "paused" else jobs.retry
        go_on(session, job_id)
    with suppress(Problem):
        list(run_here(job_id))
    with reading() as session:
        return jobs.get_job(session, job_id)


def done(card: JobCard) -> JobCard:
    """The card of a job that went well."""
    assert card.state == "done", (card.error, card.next_step)
    return card


@pytest.fixture(scope="session")
def clustered_home(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained home with three clusters, and what `train clusters` makes of them: the mixture “ensemble”."""
    home = tmp_path_factory.mktemp("clustered") / "home"
    shutil.copytree(trained_home, home)
    settings = Settings(home=home)
    find = {"name": "topics", "num_clusters": 3, "dimension": 5, "map_size": 0, "domains": ["court", "kitchen", "sea"]}
    done(work({"kind": "find-clusters", **find, "scaling": "unit_rows"}, settings))
    branch_train_merge("topics", "ensemble", settings, num_steps=3 * int(BRANCHES["num_steps"]))
    with transaction(settings) as session:
        gate = mixtures.get_mixture(session, "ensemble").gate
        mixtures.set_gate(session, "ensemble", load_gate({**gate, "temperature": 0.2}))
    close_engines()
    return home


@pytest.fixture
def clustered(do: Do, home: Path, clustered_home: Path) -> Do:
    shutil.copytree(clustered_home, home, dirs_exist_ok=True)
    return do


def branch_train_merge(
    clustering: str, name: str, settings: Settings | None = None, branch_from: str | None = None, **training: float
) -> list[JobCard]:
    """The cards of the jobs of `train clusters`, run here; from the seed unless set otherwise."""
    begin = {"branch_from": branch_from} if branch_from else {"seed_model": "seed"}
    job_spec = {"clustering": clustering, "name": name, **begin, "training": {**BRANCHES, **training}}
    ids = submit_training(parse_as(TrainClusters, job_spec), settings)
    for id in ids:
        with reading(settings) as session:
            is_waiting = jobs.get_job(session, id).state == "queued"
        if is_waiting:
            list(run_here(id, settings))
    with reading(settings) as session:
        return [done(jobs.get_job(session, id)) for id in ids]


@pytest.fixture
def novel_and_training(tmp_path: Path) -> Path:
    """Two training domains and a novel one."""
    for place, names in (("train", ("court", "kitchen")), ("novel", ("sea",))):
        (tmp_path / place).mkdir()
        for name in names:
            write_domain(tmp_path / place, name)
    return tmp_path


def carry_out(ids: list[str]) -> list[JobCard]:
    """Runs these jobs one after another, as one worker would; the cards they leave."""
    for job_id in ids:
        with suppress(Problem):  # the card has the words
            list(run_here(job_id))
    with reading() as session:
        return [jobs.get_job(session, job_id) for job_id in ids]
