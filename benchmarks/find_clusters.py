"""Claim: finding clusters holds a sample in memory and never all documents: twice the text takes at most 1.2x.

Short documents of two domains, imported, clustered and made domains of, each size in a process and a home of its own.
Run: python benchmarks/find_clusters.py [--documents 100000 --clusters 32 --sample 20000]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NUM_TOPICS, NUM_WORDS = 32, 30_000


def write_text(folder: Path, num_documents: int) -> list[Path]:
    """Two files of documents: half the words of each are of its topic, half of any."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(3, 9))) for _ in range(NUM_WORDS)]
    topics = [words[number :: 3 * NUM_TOPICS] for number in range(NUM_TOPICS)]
    paths = [folder / f"domain{number}.jsonl" for number in range(2)]
    for path in paths:
        with path.open("w", encoding="utf-8") as file:
            for _ in range(num_documents // 2):
                text = " ".join(draw.choices(draw.choice(topics), k=20) + draw.choices(words, k=20))
                file.write(json.dumps({"text": text}) + "\n")
    return paths


def measure(num_documents: int, num_clusters: int, sample_size: int) -> dict[str, Any]:
    """Seconds of each job, and the most memory that the process ever held."""
    from jobs.queue.submit import run_now
    from workbench.registry import database
    from workbench.settings import Settings

    folder = Path(tempfile.mkdtemp())
    settings = Settings(home=folder / "home")
    database.migrate(settings)
    find = {"name": "c", "num_clusters": num_clusters, "sample_size": sample_size, "map_size": 0}
    specs: list[dict[str, Any]] = [
        *(
            {"kind": "import-corpus", "name": path.stem, "path": str(path)}
            for path in write_text(folder, num_documents)
        ),
        {"kind": "find-clusters", **find},
        {"kind": "make-cluster-domains", "clustering": "c"},
    ]
    seconds = {}
    for job_spec in specs:
        began = time.perf_counter()
        for _ in run_now(job_spec, settings=settings)[1]:
            pass
        seconds[job_spec["kind"]] = round(time.perf_counter() - began, 1)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"documents": num_documents, "seconds": seconds, "peak_mb": round(peak_mb)}


def main() -> None:
    """Prints one line of JSON; `ratio` is the memory for twice the documents over that for once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--clusters", type=int, default=32)
    parser.add_argument("--sample", type=int, default=20_000)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    job_spec = parser.parse_args()
    if job_spec.one:
        print(json.dumps(measure(job_spec.documents, job_spec.clusters, job_spec.sample)))
        return
    result = []
    for number in (job_spec.documents, 2 * job_spec.documents):
        line = [sys.executable, __file__, "--one", "--documents", str(number)]
        line += ["--clusters", str(job_spec.clusters), "--sample", str(job_spec.sample)]
        out = subprocess.run(line, check=True, capture_output=True, text=True, env=os.environ).stdout
        result.append(json.loads(out.splitlines()[-1]))
    ratio = result[1]["peak_mb"] / result[0]["peak_mb"]
    print(json.dumps({"claim": "memory for twice the documents", "ratio": round(ratio, 3), "runs": result}))


if __name__ == "__main__":
    main()
