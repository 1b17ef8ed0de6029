"""Your text stays here: a corpus, a seed model, a training and a generation try to reach nobody.

They run in a network namespace that has no route, so that nothing depends on a network either. Every system call that
could reach another machine is written down by strace; without it, every one that Python makes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.device import python_environment
from tests.journeys.conftest import write_domain

ISOLATED = ("unshare", "--map-root-user", "--net")
CALLS = "connect,sendto,sendmsg,sendmmsg"
COMMANDS = (
    "corpus add kitchen {corpus} --here",
    "seed make tiny --domains kitchen --layers 1 --width 16 --heads 2 --ffn-width 32 --vocab-size 300"
    " --max-positions 64 --here",
    "train joint first --seed-model tiny --domains kitchen --steps 2 --block-size 16 --here",
    "generate first flour --max-tokens 3",
)
# Hosts and their libraries: what they would ask for must not be switched off by the tests' own environment.
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK")
RUN_ALL = """
import sys
from ui.cli.app import main
for command in sys.argv[1:]:
    if code := main(command.split()):
        sys.exit(f"{command}: exit code {code}")
"""
HOOK = """
import os, sys
def note(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"):
        with open(os.environ["CALLS_LOG"], "a") as log:
            family = "" if event == "socket.getaddrinfo" else "AF_INET "
            log.write(f"{event} {family}{arguments[1:] if family else arguments!r}\\n")
sys.addaudithook(note)
"""
_INTERNET = re.compile(r"AF_INET|socket\.getaddrinfo")
_OWN = re.compile(r'"127\.\d+\.\d+\.\d+"|inet_addr\("127\.|"::1"|\'127\.0\.0\.1\'|\'localhost\'')
_NAMES = re.compile(r"htons\(53\)|, 53\)")  # a resolver on this machine asks others


def attempts(log: str) -> list[str]:
    """The lines of a log that lead to another machine."""
    lines = [line for line in log.splitlines() if _INTERNET.search(line)]
    return [line for line in lines if not _OWN.search(line) or _NAMES.search(line)]


def run_isolated(tmp_path: Path, code: str, *arguments: str) -> list[str]:
    """Runs Python code without a network; gives what it tried to reach."""
    log = tmp_path / "calls"
    log.touch()
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if name not in OFFLINE} | python_environment()
    paths = [str(tmp_path / "hook"), variables.get("PYTHONPATH", "")]
    strace: Sequence[str] = ()
    if shutil.which("strace"):
        strace = ("strace", "--follow-forks", "--seccomp-bpf", "--quiet=all", f"--trace={CALLS}", f"--output={log}")
    done = subprocess.run(
        [*ISOLATED, *strace, sys.executable, "-c", code, *arguments],
        env={**variables, "CALLS_LOG": str(log), "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return attempts(log.read_text(encoding="utf-8", errors="replace"))


@pytest.fixture(autouse=True)
def _namespace() -> None:
    if not shutil.which("unshare"):
        pytest.skip("the program unshare is missing, so no network could be taken away")
    if subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a user make a network namespace (unshare --net)")


def test_import_training_and_generation_reach_nobody(home: Path, tmp_path: Path) -> None:
    corpus = write_domain(tmp_path, "kitchen")
    commands = [command.format(corpus=corpus) for command in COMMANDS]
    assert run_isolated(tmp_path, RUN_ALL, *commands) == []
    assert (home / "registry.db").stat().st_size


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket().connect_ex(('192.0.2.1', 443))",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect_ex(('192.0.2.1', 53))",
        "import urllib.request as u, contextlib\nwith contextlib.suppress(OSError): u.urlopen('http://192.0.2.1/')",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', "
        "\"import socket; socket.socket().connect_ex(('192.0.2.1', 80))\"])",
    ],
    ids=["connection", "datagram", "http", "child"],
)
def test_the_test_sees_an_attempt(tmp_path: Path, code: str) -> None:
    assert any("192.0.2.1" in line for line in run_isolated(tmp_path, code))
