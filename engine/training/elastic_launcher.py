"""torchrun on one node of a training: `python -P -m engine.training.elastic_launcher FOLDER [NODE]`.

The folder is that of `engine.training.launch`; without its number a node takes Slurm's. It reports which process failed
first, and ends when the parent of the training does.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

from engine.device import process_environment, require_gpus
from engine.training.ipc import Launch, ParentConnection, report_error, report_failure

_END_SECONDS = 10.0
_SIOCGIFADDR = 0x8915  # asks Linux for the address of a network interface


def main(folder: Path, node: int) -> int:
    """Runs this node's processes; returns the exit status."""
    launch = Launch.read(folder)
    os.environ.update(_environment(launch, node))
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    parent, is_single = None, len(launch.num_processes) == 1
    try:
        parent = ParentConnection(launch, _terminate)
        parent.introduce("node", node, "" if is_single or node else _endpoint(parent))
        require_gpus(launch.num_processes[node], launch.device)
        options = _local(folder) if is_single else _joined(parent, launch, node)
    except Exception as error:
        report_error(folder, sum(launch.num_processes[:node]), error, parent)
        return 1
    count = f"--nproc-per-node={launch.num_processes[node]}"
    try:
        torchrun([count, "--rdzv-id=training", "--rdzv-backend=c10d", *options, "-m", launch.worker, str(folder)])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        report_failure(folder, rank, failure.exitcode, failure.message, parent)
        return 1
    return 0


def _environment(launch: Launch, node: int) -> dict[str, str]:
    """For torchrun and its processes: cores shared out, and the GPUs that they have."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = launch.threads or max(1, cores // launch.num_processes[node])
    gpus = {"CUDA_VISIBLE_DEVICES": launch.gpus[node]} if launch.gpus[node] else {}
    return {**process_environment(threads), **gpus, **launch.variables}


def _local(folder: Path) -> list[str]:
    """On this machine only: the rendezvous uses files, so that nothing listens on the network."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    os.environ.update(
        GLOO_SOCKET_IFNAME=loopback,
        NCCL_SOCKET_IFNAME=loopback,
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",  # torchrun would listen on all addresses
    )
    rendezvous = [f"--rdzv-endpoint={folder / 'rendezvous'}", "--rdzv-conf=store_type=file"]
    return ["--nnodes=1", "--local-addr=127.0.0.1", *rendezvous]


def _endpoint(parent: ParentConnection) -> str:
    """Where the first of several nodes listens: at the address by which it reaches the parent, which tells all."""
    address = parent.own_address
    return f"{address}:{_free_port(address)}"


def _joined(parent: ParentConnection, launch: Launch, node: int) -> list[str]:
    """On several nodes: they meet at the first one."""
    address = parent.own_address
    if interface := _interface_of(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    endpoint = parent.answer().decode()
    conf = f"--rdzv-conf=is_host={'true' if node == 0 else 'false'}"
    return [f"--nnodes={len(launch.num_processes)}", f"--local-addr={address}", f"--rdzv-endpoint={endpoint}", conf]


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as listener:
        return int(listener.getsockname()[1])


def _interface_of(address: str) -> str:
    """The network interface with this address; empty if there is none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return ""


def _terminate() -> None:
    """Has torchrun end its processes and then itself; ends it where it waits for another node that is lost."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2] if sys.argv[2:] else os.environ["SLURM_NODEID"])))
