"""Hosts that are network namespaces of this machine, each with a name and an address behind one bridge.

Needs root, iproute2, and OpenSSH's client and server.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BRIDGE = f"wb{os.getpid()}"  # names of this process alone: several tests may run at once
NETWORK = f"10.213.{os.getpid() % 255}"
ADDRESS = f"{NETWORK}.1"  # of this machine
SSHD = "/usr/sbin/sshd"  # which must be called by its path


@dataclass(frozen=True)
class Host:
    """A namespace."""

    name: str
    link: str
    address: str

    def cut_off(self) -> None:
        """No packet reaches it, and none comes from it."""
        _run("link", "set", self.link, "down")

    def connect(self) -> None:
        """Ends what `cut_off` did."""
        _run("link", "set", self.link, "up")

    def kill(self) -> None:
        """Ends all of its processes at once."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        for pid in listed.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def missing() -> str:
    """Why this machine can have no such hosts; empty if it can."""
    if os.geteuid() or shutil.which("ip") is None or shutil.which("ssh") is None or not Path(SSHD).exists():
        return "needs root, iproute2 and OpenSSH's client and server"
    tried = subprocess.run(["ip", "netns", "add", f"{BRIDGE}-tried"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", f"{BRIDGE}-tried"], capture_output=True, check=False)
    return tried.stderr.strip()


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts, gone with all of their processes when the block ends."""
    made: list[Host] = []
    _run("link", "add", BRIDGE, "type", "bridge")
    try:
        _run("address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
        _run("link", "set", BRIDGE, "up")
        for number in range(count):
            made.append(_host(number))
        yield made
    finally:
        for host in made:
            host.kill()
            _run("link", "del", host.link)  # now: that of a namespace in use stays until it is not
            _run("netns", "del", host.name)
        _run("link", "del", BRIDGE)


def remote_shell(hosts: list[Host], folder: Path) -> tuple[str, ...]:
    """ssh to the hosts by their names: each gets a server with a key of this folder."""
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    server = {
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
        "PermitRootLogin": "prohibit-password",
    }
    (folder / "sshd_config").write_text("".join(f'{name} "{value}"\n' for name, value in server.items()))
    for host in hosts:
        subprocess.run(["ip", "netns", "exec", host.name, SSHD, "-f", str(folder / "sshd_config")], check=True)
    client = "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in hosts)
    known = f'  UserKnownHostsFile "{folder / "known_hosts"}"\n  StrictHostKeyChecking accept-new\n'
    options = f'  IdentityFile "{folder / "user"}"\n  BatchMode yes\n  ConnectTimeout 5\n  ServerAliveInterval 5\n'
    (folder / "ssh_config").write_text(f"{client}Host *\n{known}{options}")
    return ("ssh", "-F", str(folder / "ssh_config"))


def _host(number: int) -> Host:
    name, link, inside = f"{BRIDGE}-host{number}", f"{BRIDGE}l{number}", f"{BRIDGE}i{number}"
    host = Host(name, link, f"{NETWORK}.{number + 2}")
    _run("netns", "add", name)
    _run("link", "add", link, "type", "veth", "peer", "name", inside)
    _run("link", "set", link, "master", BRIDGE, "up")
    _run("link", "set", inside, "netns", name)
    for words in (("address", "add", f"{host.address}/24", "dev", inside), ("link", "set", inside, "up")):
        _run("-n", name, *words)
    _run("-n", name, "link", "set", "lo", "up")
    return host


def _run(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
