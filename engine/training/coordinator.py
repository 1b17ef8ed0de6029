"""The parent's end of its connections to the processes of a training, on this machine or on several.

torchrun on each node, and each process, holds a connection. It carries the events of the first process, the answers to
them, and why a process failed. When it closes, its process ends: so none outlives the parent. Who connects names the
token of this training, and must have the same torch.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
import selectors
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.errors import NextStep, TrainingError

_MOST_BYTES = 4096  # of the line by which a process introduces itself
_LOST = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH}


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    buffer: bytes = b""
    role: str = ""  # none until it has introduced itself
    number: int = 0


MOST_FOLDER_BYTES = 80  # a socket's path has at most 107


class Coordinator:
    """Listens on a TCP port of `address`; without one, on a Unix socket, which only this user reaches."""

    def __init__(self, num_nodes: int, address: str = "") -> None:
        self.token = secrets.token_hex(32)
        self.lost: int | None = None  # the node that does not answer any more
        self._num_nodes, self._endpoint = num_nodes, ""
        self._connections: list[_Connection] = []
        self._folder: Path | None = None
        if address:
            self._listener = _listen(address)
            self.address = "{}:{}".format(*self._listener.getsockname())
        else:  # a new folder that only this user reads, with a path short enough for a socket
            is_short = len(os.fsencode(tempfile.gettempdir())) <= MOST_FOLDER_BYTES
            self._folder = Path(tempfile.mkdtemp(prefix="workbench-", dir=None if is_short else "/tmp"))
            self.address = str(self._folder / "socket")
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(self.address)
            self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def lines(self, seconds: float) -> list[bytes]:
        """What the processes sent; waits so long for anything."""
        received: list[bytes] = []
        for key, _ in self._selector.select(seconds):
            received += self._read(key.data) if key.data else self._accept()
        return received

    def answer(self, word: bytes) -> None:
        """Sends a word to the first process."""
        for connection in self._connections:
            if (connection.role, connection.number) == ("rank", 0):
                with suppress(OSError):  # it has ended: its node says why
                    connection.socket.sendall(word + b"\n")

    def close(self) -> None:
        """Closes all connections, which ends the processes."""
        for connection in [*self._connections]:
            self._drop(connection)
        self._selector.close()
        self._listener.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> Iterator[bytes]:
        try:
            connected, _ = self._listener.accept()
        except OSError:  # it has gone again, or there are too many
            return iter(())
        keep_alive(connected)
        connection = _Connection(connected)
        self._connections.append(connection)
        self._selector.register(connected, selectors.EVENT_READ, connection)
        return iter(())

    def _read(self, connection: _Connection) -> Iterator[bytes]:
        try:
            data = connection.socket.recv(1 << 16)
        except OSError as error:
            if error.errno in _LOST and connection.role == "node":
                self.lost = connection.number
            data = b""
        *lines, connection.buffer = (connection.buffer + data).split(b"\n")
        for line in lines:
            if connection.role:
                yield line
            elif not self._welcome(connection, line):
                data = b""
                break
        if not data or (not connection.role and len(connection.buffer) > _MOST_BYTES):
            self._drop(connection)

    def _welcome(self, connection: _Connection, line: bytes) -> bool:
        """Reads how a process introduces itself; False for a process of another training."""
        try:
            hello: dict[str, Any] = json.loads(line) if len(line) <= _MOST_BYTES else {}
            is_ours = hmac.compare_digest(str(hello["token"]), self.token)
            role, number = str(hello["role"]), int(hello["number"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        is_ours = is_ours and not any((other.role, other.number) == (role, number) for other in self._connections)
        if is_ours:
            _require_same_torch(hello)
            connection.role, connection.number = role, number
            self._endpoint = hello.get("endpoint") or self._endpoint
            self._send_endpoint()
        return is_ours

    def _send_endpoint(self) -> None:
        """Tells all nodes where the first one listens, once all are there."""
        nodes = [one for one in self._connections if one.role == "node"]
        if len(nodes) == self._num_nodes and self._endpoint:
            for node in nodes:
                with suppress(OSError):
                    node.socket.sendall(self._endpoint.encode() + b"\n")
            self._endpoint = ""

    def _drop(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()


def _listen(address: str) -> socket.socket:
    try:
        return socket.create_server((address, 0))
    except OSError as error:
        raise TrainingError(
            f"This machine cannot listen at {address}, where the nodes would reach it: {error.strerror}.",
            NextStep.LISTEN_ELSEWHERE,
        ) from None


def _require_same_torch(hello: dict[str, Any]) -> None:
    """Raises TrainingError for a process with another release of torch than this one: it would compute other bits.

    The build, such as +cpu, may be another: a machine without a GPU may drive those that have some.
    """
    own, theirs = version("torch"), str(hello.get("torch", "of an unknown version"))
    if theirs.partition("+")[0] != own.partition("+")[0]:
        raise TrainingError(
            f"{hello.get('host', 'A machine')} has torch {theirs}, but the worker of this training has torch {own}.",
            "Install the same version on all machines.",
        )


def keep_alive(connected: socket.socket) -> None:
    """Has the connection break within half a minute when the other machine does not answer."""
    if connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {
        "TCP_KEEPIDLE": 10,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": 25_000,
        "TCP_NODELAY": 1,
    }.items():
        if hasattr(socket, name):  # as far as this system has it
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
