"""The curves of a job from the command line: as they are, and while they grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ui.cli.app import main
from ui.cli.commands import job as printing
from workbench.job_records import leases
from workbench.job_records.jobs import create_job
from workbench.kinds.analysis import SelfCheck
from workbench.kinds.training.mode import TrainMode
from workbench.registry.database import transaction
from workbench.specs.base import Spec

LOSSES = [("loss", 1, 5.0), ("loss", 2, 1 / 3), ("dev_loss/law, old", 2, 4.0)]


def started(spec: Spec | None = None) -> tuple[str, int]:
    """A job that runs, with its fence."""
    with transaction() as session:
        job = create_job(session, spec or SelfCheck())
        fence = leases.claim(session, job, "tests", 60.0, 3)
        assert fence is not None
    return job, fence


def add(job: str, fence: int, points: list[tuple[str, int, float]]) -> None:
    with transaction() as session:
        leases.record(session, job, fence, metrics=points)


def end(job: str, fence: int, state: Any, **values: Any) -> None:
    with transaction() as session:
        leases.finish(session, job, fence, state, **values)


def meanwhile(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], None]) -> None:
    """Each pause between two reads does the next of these acts."""
    pending = list(acts)
    monkeypatch.setattr(printing.time, "sleep", lambda _: pending.pop(0)())


@pytest.mark.usefixtures("home")
def test_pandas_reads_the_csv_back(capsys: pytest.CaptureFixture[str]) -> None:
    job, fence = started()
    add(job, fence, LOSSES)

    assert main(["job", "metrics", job[:8], "--csv"]) == 0

    table = pd.read_csv(StringIO(capsys.readouterr().out))
    assert list(table.columns) == ["metric", "step", "value", "unit"]
    assert table[["metric", "step", "value"]].values.tolist() == [[*point] for point in sorted(LOSSES)]
    assert set(table["unit"]) == {"nats per token"}


@pytest.mark.usefixtures("home")
def test_one_metric_is_chosen_with_its_domains(capsys: pytest.CaptureFixture[str]) -> None:
    job, fence = started()
    add(job, fence, [*LOSSES, ("losses", 1, 1.0), ("loss/law", 1, 6.0), ("learning_rate", 1, 0.1)])

    assert main(["job", "metrics", job, "--metric", "loss", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert (answer["job"], answer["state"]) == (job, "running")
    assert [(one["metric"], one["step"]) for one in answer["points"]] == [("loss", 1), ("loss", 2), ("loss/law", 1)]


@pytest.mark.usefixtures("home")
def test_gates_have_the_names_of_their_parts(capsys: pytest.CaptureFixture[str]) -> None:
    job, fence = started(TrainMode(name="m", seed_model="s", domains=["law"]))
    add(job, fence, [("gate/0/law", 1, 0.25), ("gate/1/law", 1, 0.75)])

    assert main(["job", "metrics", job, "--json"]) == 0

    points = json.loads(capsys.readouterr().out)["points"]
    assert [(one["metric"], one["value"], one["unit"]) for one in points] == [
        ("gate/backbone/law", 0.25, "weight"),
        ("gate/law/law", 0.75, "weight"),
    ]


@pytest.mark.usefixtures("home")
def test_new_points_are_followed_to_the_end(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    job, fence = started()
    add(job, fence, LOSSES)
    more = [("loss", 2, 1 / 3), ("loss", 3, 0.25)]  # a resumed job repeats a step
    meanwhile(monkeypatch, lambda: None, lambda: add(job, fence, more), lambda: end(job, fence, "done"))

    assert main(["job", "metrics", job, "--follow", "--csv"]) == 0

    table = pd.read_csv(StringIO(capsys.readouterr().out))
    assert table["step"].tolist() == [1, 2, 2, 3]
    assert table["value"].tolist() == [5.0, 4.0, 1 / 3, 0.25]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("state", "values", "code"),
    [
        ("done", {"result": {"ok": True}}, 0),
        ("done", {"result": {"ok": False}}, 1),
        ("failed", {"error": "It broke."}, 2),
        ("cancelled", {}, 2),
        ("paused", {}, 0),
    ],
)
def test_following_ends_with_the_code_of_waiting(
    state: str, values: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    job, fence = started()
    meanwhile(monkeypatch, lambda: end(job, fence, state, **values))

    assert main(["job", "metrics", job, "--follow"]) == code
    assert capsys.readouterr().out == ""
    assert main(["job", "wait", job]) == code


@pytest.mark.usefixtures("home")
def test_a_line_of_text_and_of_json_is_one_point(capsys: pytest.CaptureFixture[str]) -> None:
    job, fence = started()
    add(job, fence, [("loss", 1200, 5.0), ("learning_rate", 1200, 0.1)])
    end(job, fence, "done")

    assert main(["job", "metrics", job, "--follow"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["step 1,200 · learning_rate 0.10", "step 1,200 · loss 5.00 nats per token"]
    assert main(["job", "metrics", job, "--follow", "--json"]) == 0
    assert [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()] == [0.1, 5.0]
    assert main(["job", "metrics", job]) == 0
    assert "nats per token" in capsys.readouterr().out


def test_a_job_without_curves_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert home
    job, _ = started()

    assert main(["job", "metrics", job]) == 0
    assert "There are no points." in capsys.readouterr().out
    assert main(["job", "metrics", job, "--csv"]) == 0
    assert capsys.readouterr().out == "metric,step,value,unit\n"
    assert main(["job", "metrics", job, "--csv", "--json"]) == 2
    assert "exclude each other" in capsys.readouterr().out
