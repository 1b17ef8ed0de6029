"""A worker that starts trainings on other machines: it takes those alone, and leases the slots of hosts that answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from world import RunningWorkbench, create, eventually

from engine.device import Gpu
from engine.errors import LostNodeError
from engine.training.launchers import LocalLauncher, RemoteHost, RemoteShellLauncher, SlurmLauncher
from jobs.attempt.attempt import take
from jobs.attempt.finish import outcome_of
from jobs.attempt.leased_devices import launcher_of, node_address, withdrawing_lost_hosts
from jobs.attempt.work import JobClaim, Work
from jobs.queue.choosing import choose_job, leasing
from jobs.queue.device_registration import register_gpus
from workbench.errors import BadSettingsError, BadSpecError
from workbench.job_records.devices import list_devices
from workbench.registry import database
from workbench.settings import Settings, read_settings


def by_ssh(settings: Settings, folder: Path, **changes: object) -> Settings:
    """With two hosts, of which those answer that have a file of their name."""
    (folder / "hosts").write_text("one slots=2\ntwo slots=2\n")
    shell = folder / "shell"
    shell.write_text(f'#!/bin/sh\ntest -e "{folder}/up-$1"\n')
    shell.chmod(0o700)
    values = {"launcher": "ssh", "hostfile": str(folder / "hosts"), "remote_shell": str(shell), **changes}
    return settings.model_copy(update=values)


def there(servers: RunningWorkbench) -> list[str]:
    with database.reading(servers.settings) as session:
        return [one.number for one in list_devices(session) if one.is_there]


def test_slots_of_hosts_that_answer_are_leased_and_others_are_not(servers: RunningWorkbench, tmp_path: Path) -> None:
    settings = by_ssh(
        servers.settings, tmp_path, lease_seconds=6.0, heartbeat_seconds=0.2
    )  # a shell has 2 seconds to answer
    (tmp_path / "up-one").touch()
    with register_gpus(settings) as pool, leasing(pool):
        assert there(servers) == ["one/0", "one/1"]
        four, two = create(num_gpus=4), create(num_gpus=2)
        with choose_job(settings) as job_id:
            assert job_id == two  # the first waits for the other host, and keeps nothing from others
        assert "no worker has registered more than 2" in servers.card(four).waits_for
        (tmp_path / "up-two").touch()
        eventually(lambda: len(there(servers)) == 4)
        claim = take(settings, four, "somebody", pool)
        assert claim is not None
        assert [gpu.number for gpu in claim.gpus] == ["one/0", "one/1", "two/0", "two/1"]
        with choose_job(settings) as job_id:
            assert job_id is None  # all are leased
        (tmp_path / "up-one").unlink()
        eventually(lambda: there(servers) == ["two/0", "two/1"])


@pytest.mark.parametrize("launcher", ["ssh", "slurm"])
def test_it_takes_joint_trainings_that_ask_for_gpus_and_nothing_else(
    servers: RunningWorkbench, tmp_path: Path, launcher: str
) -> None:
    settings = by_ssh(servers.settings, tmp_path, launcher=launcher)
    (tmp_path / "up-one").touch()
    with register_gpus(settings) as pool, leasing(pool):
        plain = create()
        with choose_job(settings) as job_id:
            assert job_id is None
        joint = create(num_gpus=2)
        with choose_job(settings) as job_id:
            assert job_id == joint != plain
        claim = take(settings, joint, "somebody", pool)
    assert claim is not None
    assert [gpu.number for gpu in claim.gpus] == (
        ["one/0", "one/1"] if launcher == "ssh" else []
    )  # Slurm leases its own


def test_the_launcher_is_that_of_the_settings(home: Path, tmp_path: Path) -> None:
    assert home

    def launcher(settings: Settings, *gpus: str) -> object:
        slots = tuple(Gpu(uuid=name, number=name) for name in gpus)
        return launcher_of(Work(JobClaim("0" * 32, 0, 1, "me", slots), settings))

    away = by_ssh(Settings(), tmp_path, node_address="10.1.2.3")
    assert launcher(Settings()) == LocalLauncher()
    shell = (away.remote_shell,)
    private = ("WORKBENCH_", "AWS_")
    hosts = (RemoteHost("two", 2, ("1", "3")),)
    assert launcher(away, "two/1", "two/3") == RemoteShellLauncher(hosts, "10.1.2.3", shell, private)
    with pytest.raises(BadSpecError, match="runs by a worker, which leases their slots"):
        launcher(away)
    slurm = away.model_copy(
        update={"launcher": "slurm", "processes_per_node": 4, "slurm_options": "--partition='my gpus'", "device": "cpu"}
    )
    assert launcher(slurm) == SlurmLauncher("10.1.2.3", 4, False, ("--partition=my gpus",), private)
    command, *_ = SlurmLauncher("10.1.2.3", 4).commands(SlurmLauncher("10.1.2.3", 4).nodes(6), tmp_path)
    assert command[:5] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    assert "--gpus-per-node=4" in command


def test_an_address_that_no_other_machine_reaches_is_refused(home: Path) -> None:
    assert home
    with pytest.raises(BadSpecError, match=r"cannot reach this one as localhost, which is 127\.0\.0\.1 here"):
        node_address(Settings(node_address="localhost"))
    with pytest.raises(BadSpecError, match="has no address"):
        node_address(Settings(node_address="no-such-host.invalid"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"LAUNCHER": "ssh"}, "WORKBENCH_LAUNCHER=ssh needs a hostfile. Set WORKBENCH_HOSTFILE."),
        ({"LAUNCHER": "ssh", "HOSTFILE": "/nowhere/hosts"}, "The hostfile /nowhere/hosts cannot be read"),
        ({"LAUNCHER": "ssh", "HOSTFILE": "x", "REMOTE_SHELL": "no-such-shell -q"}, "“no-such-shell -q” is not here"),
    ],
)
def test_a_worker_with_bad_settings_ends_with_one_sentence(
    servers: RunningWorkbench, settings: dict[str, str], words: str
) -> None:
    assert servers.settings
    code, lines = ended_with({f"WORKBENCH_{name}": value for name, value in settings.items()}, "jobs.queue.worker")
    assert (code, len(lines)) == (1, 1)
    assert words in lines[0]


def ended_with(variables: dict[str, str], module: str) -> tuple[int, list[str]]:
    """The exit status of a program with these variables, and what it prints."""
    command = [sys.executable, "-P", "-m", module]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr.strip().splitlines()


@pytest.mark.parametrize(("variable", "value"), [("LAUNCHER", "torchrun"), ("SERVE_PRECISION", "fp4")])
@pytest.mark.parametrize(
    ("module", "status"),
    [("jobs.queue.worker", 1), ("jobs.queue.scheduler", 1), ("ui.serving.studio_server", 2), ("ui.api", 2)],
)
def test_a_server_with_a_value_that_no_setting_has_ends_with_one_sentence(
    servers: RunningWorkbench, variable: str, value: str, module: str, status: int
) -> None:
    assert servers.settings
    code, lines = ended_with({f"WORKBENCH_{variable}": value}, module)
    assert (code, len(lines)) == (status, 1), lines
    assert lines[0].startswith(f"WORKBENCH_{variable} must be ")
    assert lines[0].endswith("Change it or leave it unset.")


def test_a_training_whose_machine_is_lost_returns_to_the_queue(tmp_path: Path) -> None:
    outcome = outcome_of(LostNodeError("Node 2 of 2 (gpu2) does not answer."), tmp_path, tmp_path / "log")
    assert (outcome.state, outcome.problem) == ("queued", "Node 2 of 2 (gpu2) does not answer.")
    assert outcome.attempt_counts


def test_the_slots_of_a_lost_host_are_not_offered_before_it_can_be_reached(
    servers: RunningWorkbench, tmp_path: Path
) -> None:
    settings = by_ssh(servers.settings, tmp_path, lease_seconds=600.0, heartbeat_seconds=600.0)
    for name in ("one", "two"):
        (tmp_path / f"up-{name}").touch()
    with register_gpus(settings) as pool, leasing(pool):
        job_id = create(num_gpus=2)
        claim = take(settings, job_id, "somebody", pool)
        assert claim is not None
        with pytest.raises(LostNodeError), withdrawing_lost_hosts(Work(claim, settings)):
            raise LostNodeError("It is gone.", node="one")
        assert there(servers) == ["two/0", "two/1"]


def test_quotes_that_stay_open_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_SLURM_OPTIONS", "--partition='my gpus")
    with pytest.raises(BadSettingsError, match="WORKBENCH_SLURM_OPTIONS must be words as in a shell: no closing"):
        read_settings()
