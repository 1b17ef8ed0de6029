"""Curves reach the trackers that a worker's settings name; a tracker never decides how a job ends."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_kind import job_spec, tiny_evaluate

from engine.errors import Problem
from jobs.attempt import tracking
from jobs.attempt.work import log_path
from jobs.queue.submit import run_now
from jobs.trackers.tracker import Run, TrackerType, known_trackers
from workbench.job_records.jobs import get_job, metrics
from workbench.kinds.kind import known_kinds
from workbench.registry.database import reading
from workbench.settings import Settings, get_settings

pytestmark = pytest.mark.filterwarnings("default")  # those of the trackers' libraries are theirs


@pytest.fixture(autouse=True)
def _quick_job(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home
    monkeypatch.setitem(known_kinds(), "evaluate", tiny_evaluate())
    monkeypatch.setattr(tracking, "DONE_SECONDS", 100.0)  # on a busy machine
    monkeypatch.setattr("tiny_kind.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr("jobs.queue.submit.validate_against_registry", lambda *_: None)


def run(trackers: str, how: str = "count", stop_after: int | None = None) -> tuple[str, str]:
    """The id and the state of a job that ran here with these trackers."""
    settings = Settings(trackers=trackers)
    job_id, events = run_now(job_spec(how), settings=settings)
    try:
        for number, _ in enumerate(events):
            if number == stop_after:
                events.close()  # type: ignore[attr-defined]
                break
    except Problem:
        pass
    with reading() as session:
        return job_id, get_job(session, job_id).state


def log_of(job_id: str) -> list[str]:
    path = log_path(get_settings(), job_id)
    return [line for line in path.read_text().splitlines() if "tracker" in line] if path.exists() else []


def stored(job_id: str) -> dict[str, list[tuple[int, float]]]:
    """The points of the registry, by metric."""
    curves: dict[str, list[tuple[int, float]]] = {}
    with reading() as session:
        for point in metrics(session, job_id):
            curves.setdefault(point.name, []).append((point.step, pytest.approx(point.value)))
    assert set(curves) >= {"loss", "loss/law", "dev_loss/law", "learning_rate"}
    return curves


class Recorder:
    """A tracker that remembers, and misbehaves where it is made to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails_in = ""
        self.let_go = threading.Event()

    def begin(self, run: Run) -> None:
        self._do("begin", run.name, run.config["kind"])

    def log(self, step: int, values: dict[str, float]) -> None:
        self._do("log", step, values)

    def end(self, state: str) -> None:
        self._do("end", state)

    def _do(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fails_in == call[0]:
            raise ConnectionError("The server is away.\nA long story.")
        if self.fails_in == f"{call[0]} hangs":
            self.let_go.wait()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    one = Recorder()
    monkeypatch.setitem(known_trackers(), "recorder", TrackerType("recorder", lambda: one))
    yield one
    one.let_go.set()


def test_none_is_used_unless_it_is_named(recorder: Recorder) -> None:
    assert run("")[1] == "done"
    assert recorder.calls == []
    assert Settings().tracker_names == []


def test_every_point_of_the_curves_arrives_in_order(recorder: Recorder) -> None:
    job, state = run("recorder, recorder")

    assert state == "done"
    assert recorder.calls[0] == ("begin", "Evaluate count", "evaluate")
    assert recorder.calls[-1] == ("end", "done")
    logged: dict[str, list[tuple[int, float]]] = {}
    for _, step, values in recorder.calls[1:-1]:
        for name, value in values.items():
            logged.setdefault(name, []).append((step, value))
    assert logged == stored(job)
    assert log_of(job) == []


@pytest.mark.parametrize(("how", "stop_after", "state"), [("problem", None, "failed"), ("count", 3, "paused")])
def test_it_hears_how_the_job_ended(recorder: Recorder, how: str, stop_after: int | None, state: str) -> None:
    assert run("recorder", how, stop_after)[1] == state
    assert recorder.calls[-1] == ("end", state)


@pytest.mark.parametrize("step", ["begin", "log", "end"])
def test_one_that_fails_is_one_sentence_in_the_log(recorder: Recorder, step: str) -> None:
    recorder.fails_in = step
    job, state = run("recorder")

    assert state == "done"
    assert log_of(job) == [
        "The tracker “recorder” failed and gets no more points. ConnectionError: The server is away."
    ]
    assert stored(job)


def test_one_that_hangs_is_left_behind(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "DONE_SECONDS", 0.01)
    recorder.fails_in = "log hangs"
    job, state = run("recorder")

    assert state == "done"
    assert log_of(job) == ["The tracker “recorder” did not end in time; its last points may be missing."]


def test_one_that_is_unknown_or_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    job, state = run("wandb,nosuch")

    assert state == "done"
    assert sorted(log_of(job)) == [
        "The tracker “nosuch” is unknown. Choose of mlflow, tensorboard, trackio, wandb in WORKBENCH_TRACKERS.",
        "The tracker “wandb” needs wandb, which is not installed. "
        "Install it with: pip install 'expert-workbench[trackers]'",
    ]


def test_tensorboard_reads_the_curves_back(home: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    job, _ = run("tensorboard")

    assert log_of(job) == []
    events = EventAccumulator(str(home / "trackers" / "tensorboard" / job)).Reload()
    curves = {
        name: [(scalar.step, scalar.value) for scalar in events.Scalars(name)] for name in events.Tags()["scalars"]
    }
    assert curves == stored(job)


def test_mlflow_reads_the_curves_back(home: Path) -> None:
    from mlflow import MlflowClient

    job, _ = run("mlflow")

    assert log_of(job) == []
    client = MlflowClient(f"sqlite:///{home}/trackers/mlflow.db")
    experiment = client.get_experiment_by_name("expert-workbench")
    [one] = client.search_runs([experiment.experiment_id], f"tags.`workbench.job` = '{job}'")
    assert (one.info.status, one.info.run_name) == ("FINISHED", "Evaluate count")
    assert one.data.params["max_tokens"] == "100"
    for name, points in stored(job).items():
        history = client.get_metric_history(one.info.run_id, name.replace("/", "."))
        assert [(point.step, point.value) for point in history] == points


def test_mlflow_continues_the_run_of_a_resumed_job(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    for state in ("paused", "done"):
        tracker = known_trackers()["mlflow"].make()
        tracker.begin(Run("0" * 32, "Train it", {"kind": "x", "training": {"num_steps": 3}}, tmp_path))
        tracker.end(state)
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("expert-workbench")
    [one] = client.search_runs([experiment.experiment_id])
    assert one.data.params == {"kind": "x", "training.num_steps": "3"}


def test_trackio_reads_the_curves_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    for module in [module for name, module in sys.modules.items() if name.startswith("trackio")]:
        if hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    job, _ = run("trackio")

    assert log_of(job) == []
    assert capsys.readouterr().out == ""
    [name] = SQLiteStorage.get_runs("expert-workbench")
    assert name == f"Evaluate count {job[:8]}"
    rows = SQLiteStorage.get_logs("expert-workbench", name)
    for metric, points in stored(job).items():
        assert [(row["step"], row[metric]) for row in rows if metric in row] == points


def test_wandb_writes_the_curves_offline(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    job, state = run("wandb")

    assert state == "done"
    assert log_of(job) == []
    assert capsys.readouterr().out == ""
    wandb.teardown()  # its process writes the last block when it ends
    [file] = (home / "trackers" / "wandb").rglob("*.wandb")
    assert job in file.name
    rows = list(history_of(file))
    for metric, points in stored(job).items():
        assert [(row["_step"], row[metric]) for row in rows if metric in row] == points


def history_of(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a run that was written offline."""
    from wandb.proto.wandb_internal_pb2 import Record

    for data in records_of(file.read_bytes()):
        record = Record.FromString(data)
        if record.HasField("history"):
            yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}


def records_of(content: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format: chunks of a checksum (4), a length (2), a type (1) and data."""
    place, record, block, header = 7, b"", 32768, 7
    while place + header <= len(content):
        if (left := block - place % block) < header:
            place += left
            continue
        length, is_last = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6] in (1, 4)
        place += header
        record += content[place : place + length]
        place += length
        if is_last:
            yield record
            record = b""
