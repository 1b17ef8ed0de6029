"""torchrun on two hosts: what one process trains, stopped in order, and ended when a host is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.errors import LostNodeError, LostRankError, TrainingError
from engine.methods.joint_training import train_distributed
from engine.training.launchers import RemoteHost, RemoteShellLauncher, SlurmLauncher, read_hostfile
from tests import network, slurm
from tests.engine.training.launched import (
    CONFIG,
    FOR_EVER,
    assert_same_weights,
    eventually,
    losses,
    processes,
    train_separately,
    up_to,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(network.missing()), reason=network.missing())]


@pytest.fixture
def hosts() -> Iterator[list[network.RemoteHost]]:
    with network.hosts(2) as made:
        yield made


@pytest.fixture
def launcher(hosts, tmp_path: Path) -> RemoteShellLauncher:
    shell = network.remote_shell(hosts, tmp_path)
    return RemoteShellLauncher(tuple(RemoteHost(host.name, 2) for host in hosts), network.ADDRESS, shell)


def ranks_in(folder: Path) -> list[psutil.Process]:
    """The training's own processes, without torchrun's."""
    return [
        process
        for process in processes(folder)
        if "joint_worker" in " ".join(process.cmdline()) and "RANK" in process.environ()
    ]


def test_three_processes_on_two_hosts_train_what_one_does_and_stop_in_order(
    seed, domains, launcher, tmp_path: Path, reference
) -> None:
    folder = tmp_path / "two hosts"
    events = train_distributed(3, seed, domains, CONFIG, folder, launcher=launcher, device="cpu", log=tmp_path / "log")
    seen = up_to(events, 4)
    ranks = ranks_in(folder)
    assert sorted(rank.environ()["LOCAL_RANK"] for rank in ranks) == ["0", "0", "1"]
    events.close()  # type: ignore[attr-defined]
    assert [path.name for path in folder.iterdir()] == ["step-00000004"]
    eventually(lambda: not processes(folder))
    seen += train_separately(seed, domains, folder)
    assert losses(seen) == pytest.approx(losses(reference[1]), rel=1e-6)
    assert_same_weights(folder, reference[0])


@pytest.mark.long
def test_a_host_that_is_cut_off_ends_the_training_and_is_named(seed, domains, hosts, launcher, tmp_path: Path) -> None:
    folder = tmp_path / "lost"
    events = train_distributed(
        4, seed, domains, FOR_EVER, folder, launcher=launcher, device="cpu", log=tmp_path / "log"
    )
    up_to(events, 2)
    hosts[1].cut_off()
    with pytest.raises(LostNodeError, match=rf"Node 2 of 2 \({hosts[1].name}\)"):
        up_to(events, 1_000_000)
    eventually(lambda: not processes(folder))  # those of the lost host end by themselves


@pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing())
def test_slurm_starts_three_processes_on_two_nodes_and_a_stop_frees_them(
    seed, domains, hosts, tmp_path: Path, reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "slurm nodes"
    launcher = SlurmLauncher(network.ADDRESS, 2, needs_gpus=False, private_variables=("A_KEY",))
    with slurm.cluster(hosts) as conf:
        monkeypatch.setenv("A_KEY_OF_THE_STORE", "secret")
        monkeypatch.setenv("SLURM_CONF", str(conf))
        events = train_distributed(
            3, seed, domains, CONFIG, folder, launcher=launcher, device="cpu", log=tmp_path / "log"
        )
        seen = up_to(events, 4)
        ranks = [
            process
            for process in processes(folder)
            if "joint_worker" in " ".join(process.cmdline()) and "RANK" in process.environ()
        ]
        assert sorted(rank.environ()["LOCAL_RANK"] for rank in ranks) == ["0", "0", "1"]
        assert {rank.environ()["SLURMD_NODENAME"] for rank in ranks} == {host.name for host in hosts}
        assert not any("A_KEY_OF_THE_STORE" in rank.environ() for rank in ranks)
        events.close()  # type: ignore[attr-defined]
        eventually(lambda: not processes(folder))
        eventually(lambda: slurm.num_idle(conf) == 2)
        rest = train_distributed(
            2, seed, domains, CONFIG, folder, launcher=launcher, device="cpu", log=tmp_path / "log"
        )
        seen += list(rest)
    assert losses(seen) == pytest.approx(losses(reference[1]), rel=1e-6)
    assert_same_weights(folder, reference[0])


def test_a_killed_process_of_another_host_is_named(seed, domains, launcher, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    events = train_distributed(
        4, seed, domains, FOR_EVER, folder, launcher=launcher, device="cpu", log=tmp_path / "log"
    )
    up_to(events, 2)
    next(process for process in processes(folder) if process.environ().get("RANK") == "3").kill()
    with pytest.raises(LostRankError, match=r"Process 3 of 4 ended without an error message: Signal 9 \(SIGKILL\)"):
        up_to(events, 1_000_000)
    eventually(lambda: not processes(folder))


def test_a_hostfile_is_that_of_open_mpi_and_deepspeed(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# our machines\ngpu1 slots=4\n\nme@gpu2.example   slots=2  # the small one\ngpu3\ngpu4 slots = 1 max-slots=4\n"
    )
    hosts = read_hostfile(file)
    assert hosts == (
        RemoteHost("gpu1", 4),
        RemoteHost("me@gpu2.example", 2),
        RemoteHost("gpu3", 1),
        RemoteHost("gpu4", 1),
    )
    nodes = RemoteShellLauncher(hosts, "10.0.0.1").nodes(5)
    assert [(node.name, node.num_processes) for node in nodes] == [("gpu1", 4), ("me@gpu2.example", 1)]
    with pytest.raises(TrainingError, match="has 8 slots, but the training 9 processes"):
        RemoteShellLauncher(hosts, "10.0.0.1").nodes(9)


@pytest.mark.parametrize("line", ["-oProxyCommand=x slots=1", "gpu1 slots=none", "gpu1 4", "a b c", "gpu;ls slots=1"])
def test_a_line_that_is_no_host_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"gpu1 slots=4\n{line}\n")
    with pytest.raises(TrainingError, match="Line 2 of the hostfile"):
        read_hostfile(file)
