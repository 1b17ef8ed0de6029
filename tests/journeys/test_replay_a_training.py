"""The last steps of a stored expert's training are made again: the same bits, or what differs and why."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from sqlalchemy import select

from engine.files import sha256_of, write_manifest
from jobs.attempt.leftovers import REPLAY
from jobs.kinds.training import train_joint
from jobs.replay import replay as replays
from ui.cli.app import main
from workbench.registry.database import reading, transaction
from workbench.registry.experts import get_expert
from workbench.schema.job_tables import Job, Metric
from workbench.schema.tables import Domain, Expert
from workbench.settings import get_settings
from workbench.store.storage import get_storage

from .conftest import TRAINING, Do, done
from .test_same_results import forced_ids

SAILOR = {"kind": "train-expert", "name": "sailor", "domain": "sea", "mixture": "small", "training": TRAINING}
SHORT = {"num_steps": 8, "block_size": 32, "learning_rate": 5e-3, "checkpoint_every": 3, "evaluate_every": 4}


def verify(capsys: pytest.CaptureFixture[str], expert: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["verify", "--replay", expert, "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def job_of(expert: str) -> Path:
    with reading() as session:
        return get_settings().jobs_folder / str(
            session.scalars(select(Expert.job_id).where(Expert.name == expert)).one()
        )


def exchange_weights(expert: str, by: float) -> str:
    """Stores other weights in an expert's place, with a manifest and a row that fit them; the changed tensor."""
    with transaction() as session:
        row = session.scalars(select(Expert).where(Expert.name == expert)).one()
        folder = get_storage().path(row.artifact_id)
        (file,) = folder.glob("*.safetensors")
        tensors = load_file(file)
        name = sorted(tensors)[0]
        tensors[name].view(-1)[0] += by
        save_file(tensors, file)
        row.artifact.sha256 = write_manifest(folder)
    return name


def stored_files() -> dict[Path, str]:
    """The files of all artifacts by their hashes, without the records of when these were verified."""
    paths = [path for path in get_storage().folder.rglob("*") if path.is_file() and path.parent.name != "verified"]
    return {path: sha256_of(path) for path in paths}


def test_an_expert_of_a_joint_training_is_what_its_last_steps_make(trained: Do, capsys) -> None:
    files = stored_files()
    result = verify(capsys, "small/court")
    assert (result["verdict"], result["plan"]["from_step"], result["plan"]["to_step"]) == ("equal", 20, 30)
    assert (result["tensors"], result["losses"], result["reasons"]) == ([], [], [])
    assert result["num_tensors"] > 4
    assert result["num_points"] > 30  # three losses of each of ten steps, and those on held-out text
    assert result["plan"]["environment_changes"] == []
    assert files == stored_files()
    assert main(["verify"]) == 0
    assert main(["verify", "--replay", "small/court"]) == 0
    shown = capsys.readouterr()
    assert "“small/court” is what its training makes" in shown.out
    assert "Training steps 21 to 30 of “small/court” again" in shown.err


def test_exchanged_weights_with_a_manifest_that_fits_are_caught(trained: Do, capsys) -> None:
    name = exchange_weights("small/court", by=0.25)
    assert main(["verify"]) == 0  # every hash is right
    result = verify(capsys, "small/court", 1)
    (tensor,) = result["tensors"]
    assert (result["verdict"], result["reasons"], result["losses"]) == ("differs", [], [])
    assert (tensor["thing"], tensor["tensor"], tensor["problem"]) == ("small/court", name, "")
    assert tensor["largest"] == pytest.approx(0.25, rel=1e-3)
    assert main(["verify", "--replay", "small/court"]) == 1
    assert f"small/court, {name}: differs by up to 0.25" in capsys.readouterr().out


def test_a_changed_loss_is_caught(trained: Do, capsys) -> None:
    with transaction() as session:
        point = session.scalars(select(Metric).where(Metric.name == "loss", Metric.step == 25)).one()
        stored = point.value
        point.value = stored * (1 + 2**-50)
    result = verify(capsys, "small/court", 1)
    assert result["verdict"] == "differs"
    assert [(one["metric"], one["step"], one["replayed"]) for one in result["losses"]] == [("loss", 25, stored)]


def test_an_added_expert_is_replayed_after_it_joined_and_was_renamed(trained: Do, capsys) -> None:
    done(trained(SAILOR))
    assert main(["expert", "rename", "sailor", "mate"]) == 0
    result = verify(capsys, "mate")
    assert (result["verdict"], result["plan"]["from_step"]) == ("equal", 20)


def test_without_a_kept_checkpoint_all_steps_are_made_again(trained: Do, capsys, monkeypatch) -> None:
    monkeypatch.setenv("WORKBENCH_REPLAY_BYTES", "0")
    get_settings.cache_clear()
    done(trained({**SAILOR, "training": SHORT}))
    assert not (job_of("sailor") / REPLAY / "checkpoint").exists()
    result = verify(capsys, "sailor")
    assert (result["verdict"], result["plan"]["from_step"], result["plan"]["to_step"]) == ("equal", 0, 8)
    shutil.rmtree(job_of("sailor") / REPLAY)  # as of an earlier version
    assert verify(capsys, "sailor")["verdict"] == "equal"


def test_kept_checkpoints_share_their_bytes_and_the_oldest_goes_first(trained: Do, monkeypatch) -> None:
    first = job_of("small/court") / REPLAY / "checkpoint"
    size = sum(file.stat().st_size for file in first.rglob("*") if file.is_file())
    monkeypatch.setenv("WORKBENCH_REPLAY_BYTES", str(size + 1000))
    get_settings.cache_clear()
    done(trained({**SAILOR, "training": SHORT}))
    assert not first.exists()
    assert [path.name for path in (job_of("sailor") / REPLAY / "checkpoint").iterdir()] == ["step-00000006"]


def test_in_another_environment_a_difference_is_no_verdict(trained: Do, capsys) -> None:
    exchange_weights("small/court", by=0.25)
    with transaction() as session:
        job = session.scalars(select(Job).where(Job.kind == "train-joint")).one()
        environment = job.result["environment"]
        job.result = {**job.result, "environment": {**environment, "processor": "another one"}}
    result = verify(capsys, "small/court", 1)
    assert result["verdict"] == "unknown"
    assert result["reasons"] == [f"The environment is another: processor another one, now {environment['processor']}."]
    assert len(result["tensors"]) == 1
    assert main(["verify", "--replay", "small/court"]) == 1
    assert "Not as in the training: processor another one, now" in capsys.readouterr().err
    with transaction() as session:
        job = session.scalars(select(Job).where(Job.kind == "train-joint")).one()
        job.result = {name: value for name, value in job.result.items() if name != "environment"}
    (reason,) = verify(capsys, "small/court", 1)["reasons"]
    assert "did not record its environment" in reason


def test_a_training_of_an_earlier_version_is_replayed_in_the_order_of_its_ids(trained: Do, capsys, monkeypatch) -> None:
    forced_ids(monkeypatch, -1)
    spec = {"kind": "train-joint", "name": "old", "seed_model": "seed", "domains": ["sea", "court", "kitchen"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_joint, "order_of_rows", lambda _: "ids")
        done(trained({**spec, "training": {**SHORT, "clip": 0.1}}))
    shutil.rmtree(job_of("old/sea") / REPLAY)  # the notes, too
    for row_order, verdict, code in (("ids", "equal", 0), ("spec", "differs", 1)):
        with transaction() as session:
            job = session.scalars(select(Job).where(Job.id == job_of("old/sea").name)).one()
            of_others = {name: value for name, value in job.result.items() if name != "row_order"}
            job.result = of_others if row_order == "ids" else {**of_others, "row_order": row_order}
        assert verify(capsys, "old/sea", code)["verdict"] == verdict


def test_a_card_says_what_its_weights_are_reproducible_from(trained: Do, capsys) -> None:
    assert main(["expert", "show", "small/court"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "the spec of its job (seed 0), text with SHA-256" in shown
    assert "“seed” with SHA-256" in shown
    assert re.search(r"cpu of .* threads?, 1 process, torch 2\.", shown)
    assert "verify --replay" not in shown
    for left_out, words in (("row_order", "workbench verify --replay small/court"), ("environment", "")):
        with transaction() as session:
            job = session.scalars(select(Job).where(Job.kind == "train-joint")).one()
            job.result = {name: value for name, value in job.result.items() if name != left_out}
        with reading() as session:
            shown = get_expert(session, "small/court").reproducible_from
        assert words in shown
    assert shown == ""


def test_changed_text_cannot_be_replayed(trained: Do, capsys) -> None:
    with transaction() as session:
        session.scalars(select(Domain).where(Domain.name == "court")).one().data_sha256 = "0" * 64
    result = verify(capsys, "small/court", 1)
    assert (result["verdict"], result["tensors"]) == ("unknown", [])
    assert result["reasons"] == ["The domain “court” has changed since this training started."]


def test_an_expert_that_no_steps_made_is_refused(trained: Do, capsys) -> None:
    done(trained({"kind": "average-experts", "name": "mean", "experts": ["small/court", "small/kitchen"]}))
    assert main(["verify", "--replay", "mean/average"]) == 2
    assert "has no steps to replay: its job “Average into mean” trains nothing" in capsys.readouterr().err
    assert main(["verify", "--replay", "nobody"]) == 2
    assert main(["verify", "answer.json", "--replay", "small/court"]) == 2


def test_the_threads_of_the_training_are_those_of_its_replay(trained: Do, monkeypatch) -> None:
    training = replays.find_training(get_settings(), "small/court")
    assert training.environment is not None
    requested: list[int] = []
    monkeypatch.setattr(replays.torch, "set_num_threads", requested.append)
    assert replays.replay(get_settings(), training).verdict == "equal"
    assert training.environment.threads in requested


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dense", "lora"])
def test_experts_of_other_methods_are_replayed(trained: Do, capsys, method: str) -> None:
    spec = {"kind": "train-joint", "name": method, "seed_model": "seed", "domains": ["court"], "method": method}
    done(trained({**spec, "training": SHORT}))
    expert = "dense/dense" if method == "dense" else "lora/court"
    assert verify(capsys, expert)["verdict"] == "equal"


@pytest.mark.slow
def test_a_full_model_a_mode_expert_and_a_composition_are_replayed(trained: Do, capsys) -> None:
    done(trained({**SAILOR, "full_model": True, "watch": ["court"], "training": {**SHORT, "patience": 2}}))
    mode = {"kind": "train-mode", "seed_model": "seed", "shape": {"num_blocks": 1}, "training": SHORT}
    for domain in ("court", "sea"):
        done(trained({**mode, "name": f"mode-{domain}", "domains": [domain], "retain": ["kitchen"]}))
    composed = {"experts": ["mode-court/court", "mode-sea/sea"], "domains": ["court", "sea"], "training": SHORT}
    done(trained({"kind": "compose-mode", "name": "both", **composed}))
    for expert in ("sailor/sea", "mode-sea/sea", "both/composed"):
        result = verify(capsys, expert)
        assert (result["verdict"], result["plan"]["from_step"] > 0) == ("equal", True), expert


@pytest.mark.slow
def test_an_expert_of_a_cluster_is_replayed(clustered: Do, capsys) -> None:
    assert verify(capsys, "ensemble/0/dense")["verdict"] == "equal"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train-joint", "train-mode"])
def test_a_training_on_several_processes_is_replayed(trained: Do, capsys, monkeypatch, kind: str) -> None:
    monkeypatch.setenv("WORKBENCH_PROCESSES", "2")
    get_settings.cache_clear()
    more = {"shape": {"num_blocks": 1}} if kind == "train-mode" else {}
    domains = ["court"] if kind == "train-mode" else ["court", "sea"]
    done(trained({"kind": kind, "name": "two", "seed_model": "seed", "domains": domains, "training": SHORT, **more}))
    monkeypatch.delenv("WORKBENCH_PROCESSES")
    get_settings.cache_clear()
    result = verify(capsys, "two/court")
    assert (result["verdict"], result["plan"]["from_step"]) == ("equal", 6)
