"""A home made by an earlier version opens after `workbench migrate`: same numbers, same text, and its jobs run."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import SamplingConfig
from engine.events import Token
from engine.loading.host import Host
from jobs.attempt.attempt import run_here
from ui.cli.app import main
from workbench.job_records import jobs
from workbench.questions.perplexities import mix_scores
from workbench.registry import experts, mixtures, priors, reports
from workbench.registry.database import close_engines, reading
from workbench.requests import planning
from workbench.settings import get_settings
from workbench.store.storage import get_storage

FOLDER = Path(__file__).parent
HOMES = sorted(path.stem for path in FOLDER.glob("registry_*.json"))
RENAMED_KINDS = {"train-demix": "train-joint", "replicate": "replicate-demix", "overlap": "measure-overlap"}  # of jobs


@pytest.fixture(scope="module", params=HOMES)
def unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    home = tmp_path_factory.mktemp("golden")
    with tarfile.open(FOLDER / f"{request.param}.tar.xz") as archive:
        archive.extractall(home, filter="data")
    return request.param, home


@pytest.fixture
def golden(unpacked: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What the earlier version said of its home, which is migrated and set as the home of this process."""
    name, home = unpacked
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    get_settings.cache_clear()
    assert main(["migrate"]) == 0
    yield json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    close_engines()


def test_every_mixture_has_the_same_members_and_perplexities(golden: Any) -> None:
    with reading() as session:
        for name, expected in golden["mixtures"].items():
            members = mixtures.get_mixture(session, name).members
            assert [[member.expert, member.weight, member.active] for member in members] == expected["experts"], name
            if "perplexity" in expected:
                rows = mix_scores(session, get_storage(), name).domains
                measured = {row.domain: row.perplexity for row in rows}
                assert measured == pytest.approx(expected["perplexity"], rel=1e-6), name


def test_every_mixture_generates_the_same_text_with_the_same_weights(golden: Any) -> None:
    host = Host(device="cpu")
    for name, expected in golden["mixtures"].items():
        with reading() as session:
            plan = planning.plan(session, get_storage(), name)
        greedy = SamplingConfig(max_tokens=8, temperature=0)
        tokens = [event for event in host.stream(plan, "the court", greedy) if isinstance(event, Token)]
        assert [token.id for token in tokens] == expected["token_ids"], name
        assert tokens[-1].weights == pytest.approx(expected["weights"], abs=2e-5), name


def test_experts_jobs_reports_and_priors_are_there(golden: Any) -> None:
    with reading() as session:
        known = {expert.name: [expert.method, expert.seed, expert.parent] for expert in experts.list_experts(session)}
        listed = {job.id: [job.kind, job.state] for job in jobs.list_jobs(session)}
        kinds = sorted(report.kind for report in reports.list_reports(session))
        names = [prior.name for prior in priors.list_priors(session)]
    assert known == golden["experts"]
    assert listed == {id: [RENAMED_KINDS.get(kind, kind), state] for id, (kind, state, _) in golden["jobs"].items()}
    assert kinds == golden["reports"]
    assert names == golden["priors"]


def test_jobs_that_waited_run(golden: Any) -> None:
    waiting = [id for id, (_, state, _) in golden["jobs"].items() if state == "queued"]
    assert len(waiting) == 3
    for job_id in waiting:
        for _ in run_here(job_id):
            pass
    with reading() as session:
        assert {jobs.get_job(session, job_id).state for job_id in waiting} == {"done"}
