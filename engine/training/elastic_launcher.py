"""torchrun for `train_on`: `python -P -m engine.training.elastic_launcher FOLDER NUM_PROCESSES WORKER`.

It reports which process failed first.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun

from engine.training.ipc import write_failure


def main(folder: Path, num_processes: int, worker: str) -> int:
    """Runs `num_processes` processes of the module `worker`; returns the exit status.

    Their rendezvous uses files, so that nothing listens on the network.
    """
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={folder / 'rendezvous'}", "--rdzv-conf=store_type=file"]
    options = ["--nnodes=1", f"--nproc-per-node={num_processes}", "--rdzv-id=training", "--local-addr=127.0.0.1"]
    try:
        torchrun([*options, *rendezvous, "-m", worker, str(folder)])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        write_failure(folder, rank, failure.exitcode, failure.message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
