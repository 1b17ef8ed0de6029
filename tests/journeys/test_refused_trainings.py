"""A training says before its first update what it takes at least, and is refused where that is more than there is."""

from __future__ import annotations

from typing import Any

import pytest

from engine.training import memory as needs
from jobs.attempt import attempt
from jobs.attempt.runner import Log
from jobs.probe.forecast import forecast
from jobs.queue.submit import run_now
from tests.journeys.conftest import TRAINING, Do, done, work
from workbench.job_records import jobs
from workbench.kinds.kind import known_kinds, parse_spec
from workbench.registry.database import reading
from workbench.schema.job_states import REQUIREMENTS
from workbench.settings import get_settings

PARTS = {"shape": {"num_blocks": 2, "expert_layers": 1}, "training": TRAINING}
SPECS: dict[str, dict[str, Any]] = {
    "train-joint": {"seed_model": "seed", "domains": ["court"], "method": "dense", "training": TRAINING},
    "train-expert": {"domain": "sea", "mixture": "small", "training": TRAINING},
    "train-mode": {"seed_model": "seed", "domains": ["sea"], **PARTS},
    "compose-mode": {"experts": ["a/court", "b/kitchen"], "domains": ["sea"], "training": TRAINING},
}


@pytest.fixture
def with_parts(trained: Do) -> Do:
    for name, domain in (("a", "court"), ("b", "kitchen")):
        done(trained({"kind": "train-mode", "name": name, "seed_model": "seed", "domains": [domain], **PARTS}))
    return trained


def messages(job_id: str, kind: str | None = REQUIREMENTS) -> list[str]:
    with reading() as session:
        return [event.message for event in jobs.events(session, job_id) if event.kind == kind]


def test_every_kind_that_trains_is_refused_below() -> None:
    trainings = {name for name, kind in known_kinds().items() if "training" in kind.spec.model_fields}
    assert trainings == set(SPECS)


@pytest.mark.parametrize("how", ["built", "loaded"])
def test_a_machine_that_is_too_small_refuses_every_kind_before_its_first_update(
    with_parts: Do, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(needs, "most_memory", lambda _: 50_000)
    if how == "loaded":  # a large model is refused before its weights are read
        monkeypatch.setattr(needs, "_SOON_BUILT", 0)
    for kind, spec in SPECS.items():
        card = with_parts({"kind": kind, "name": f"new-{kind}", **spec})
        assert (card.state, card.failure and card.failure.code) == ("failed", "does_not_fit")
        assert card.error.startswith("It takes at least ")
        assert card.error.endswith(", and this process can have 0.1 MB.")
        assert "smaller seed model" in card.next_step
        assert not list((get_settings().jobs_folder / card.id / "work").glob("step-*"))
        assert messages(card.id) == []


def test_its_log_and_its_card_say_what_it_takes(trained: Do, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained
    log, (job_id, events) = Log(), run_now({"kind": "train-joint", "name": "new", **SPECS["train-joint"]})
    for event in events:
        log.see(event)
    (sentence,) = messages(job_id)
    assert sentence.startswith("It takes at least ")
    assert "of memory (weights " in sentence
    assert sentence in capsys.readouterr().out


def test_a_disk_that_is_too_small_refuses_it_with_advice_for_that_disk(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trained
    home = get_settings().root
    for full, words, advice in (
        (home / "jobs", "of disk for checkpoints, and 0.0 MB are free.", f"or move the home folder {home} to a larger"),
        (home / "artifacts", "of disk for its result, and 0.0 MB are free.", "or set WORKBENCH_ARTIFACTS to a folder"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(attempt, "free_bytes", lambda at, full=full: 1000 if at.is_relative_to(full) else 1 << 50)
            card = work({"kind": "train-joint", "name": "new", **SPECS["train-joint"]})
        assert (card.state, card.failure and card.failure.code) == ("failed", "does_not_fit")
        assert words in card.error
        assert advice in card.next_step


def test_a_forecast_says_the_same_without_a_search_that_cannot_help(
    trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.probe import forecast as runs

    assert trained
    refusal = runs.End(problem="It takes at least 9 MB.", next_step="It may fit with adamw_8bit.", lacks="least")
    probed = []

    def probe(spec: Any, *_: Any) -> Any:
        yield "starting"
        probed.append(spec)
        return refusal

    monkeypatch.setattr(runs, "run_probe", probe)
    stages = forecast(parse_spec({"kind": "train-joint", "name": "new", **SPECS["train-joint"]}))
    with pytest.raises(StopIteration) as end:
        while True:
            next(stages)
    outcome = end.value.value
    assert (outcome.fits, outcome.problem, outcome.next_step) == (False, refusal.problem, refusal.next_step)
    assert len(probed) == 1
