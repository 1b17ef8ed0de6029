"""A server of S3 for tests: moto's, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

SECRET = "never-print-this-secret"
BUCKET = "experts"


@dataclass
class S3:
    """A server of S3 in a process of its own."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def moto(**variables: str) -> Iterator[S3]:
    code = (
        "from moto.server import ThreadedMotoServer as S\n"
        "import sys\n"
        "s = S(ip_address='127.0.0.1', port=0, verbose=False); s.start()\n"
        "print(s.get_host_and_port()[1], flush=True); sys.stdin.read()"
    )
    pipe, environment = subprocess.PIPE, {**os.environ, **variables}
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        yield S3(int(process.stdout.readline()), process)
        process.kill()


def use(server: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the variables by which this process and those that it starts reach the server."""
    values = {"ACCESS_KEY_ID": "reader", "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "us-east-1"}
    for name, value in {**values, "ENDPOINT_URL": server.address, "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
