"""What listens for the processes of a training takes none but its own, each once, and survives any line."""

from __future__ import annotations

import json
import re
import socket
import tempfile
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from engine.errors import TrainingError
from engine.training.coordinator import Coordinator
from engine.training.ipc import Launch, ParentConnection


def connect(coordinator: Coordinator) -> socket.socket:
    host, port = coordinator.address.rsplit(":", 1)
    connected = socket.create_connection((host, int(port)))
    connected.settimeout(5)
    return connected


def served(coordinator: Coordinator) -> list[bytes]:
    """What comes in until nothing more does."""
    received: list[bytes] = []
    for _ in range(5):
        received += coordinator.lines(0.05)
    return received


def introduce(coordinator: Coordinator, role: str, number: int, endpoint: str = "") -> socket.socket:
    connected = connect(coordinator)
    hello = {"token": coordinator.token, "role": role, "number": number, "endpoint": endpoint}
    hello["torch"] = version("torch")
    connected.sendall(json.dumps(hello).encode() + b"\n")
    served(coordinator)
    return connected


@pytest.mark.parametrize(
    "line", [b"[" * 30_000, b"{}", b"7", b"GET / HTTP/1.1", b'{"token": "x", "role": "rank", "number": 0}', b"\xff"]
)
def test_a_line_that_is_none_of_its_own_closes_the_connection_and_harms_nothing(line: bytes) -> None:
    coordinator = Coordinator(1, "127.0.0.1")
    other = connect(coordinator)
    other.sendall(line + b"\n" + b'{"event": "Step"}\n')
    assert served(coordinator) == []
    with suppress(ConnectionResetError):  # it had not read all
        assert other.recv(1) == b""
    own = introduce(coordinator, "rank", 0)
    own.sendall(b"an event\n")
    assert served(coordinator) == [b"an event"]
    coordinator.answer(b"g")
    assert own.recv(2) == b"g\n"
    coordinator.close()
    assert own.recv(1) == b""


def test_all_nodes_get_the_address_of_the_first_when_each_is_there() -> None:
    coordinator = Coordinator(2, "127.0.0.1")
    first = introduce(coordinator, "node", 0, "127.0.0.1:99")
    again = introduce(coordinator, "node", 0, "127.0.0.1:11")  # it is there already
    assert again.recv(1) == b""
    second = introduce(coordinator, "node", 1)
    assert first.recv(20) == second.recv(20) == b"127.0.0.1:99\n"
    coordinator.close()


def test_a_machine_with_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(2, "127.0.0.1")
    launch = Launch("worker", [1, 1], coordinator.address, coordinator.token, 0, "cpu", {}, ["", ""])
    ParentConnection(launch, lambda: None).introduce("node", 0)
    assert served(coordinator) == []
    own = version("torch")
    monkeypatch.setattr("engine.training.ipc.version", lambda _: f"{own.partition('+')[0]}+another_build")
    ParentConnection(launch, lambda: None).introduce("rank", 0)
    assert served(coordinator) == []
    monkeypatch.setattr("engine.training.ipc.version", lambda _: "2.0.1")
    ParentConnection(launch, lambda: None).introduce("node", 1)
    with pytest.raises(TrainingError, match=rf" has torch 2\.0\.1, but .* has torch {re.escape(own)}\. "):
        served(coordinator)
    coordinator.close()


def test_an_address_that_cannot_be_had_or_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"cannot listen at 192\.0\.2\.1, where the nodes would reach it"):
        Coordinator(2, "192.0.2.1")
    coordinator = Coordinator(1, "127.0.0.1")
    address = coordinator.address
    coordinator.close()
    launch = Launch("worker", [1], address, "token", 0, "cpu", {}, [""])
    launch.write(tmp_path)
    assert (tmp_path / "launch.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(TrainingError, match=rf"does not reach the worker at {address}: .*refused"):
        ParentConnection(Launch.read(tmp_path))


def test_a_long_path_of_temporary_files_leaves_a_socket_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below a home folder with a long path: the path of a socket has at most 107 bytes."""
    long = tmp_path / ("a" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with closing(Coordinator(1)) as coordinator:
        assert len(coordinator.address) < 107
        assert Path(coordinator.address).parent.stat().st_mode & 0o777 == 0o700
