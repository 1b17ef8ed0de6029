"""Claim: finding clusters holds a sample in memory and never all documents: twice the text takes at most 1.2x.

Short documents of two domains, imported, clustered and made domains of, each size in a process and a home of its own.
Run: python benchmarks/find_clusters.py [--documents 100000 --clusters 32 --sample 20000]
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.benchmark import Figure, Options, in_own_process, report, resident_bytes

SIZES = {
    "documents": (100_000, 600),
    "clusters": (32, 4),
    "sample": (20_000, 200),
    "one": (False, False, "only this number of documents, and not also twice as many"),
}
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


def measure(folder: Path, num_documents: int, num_clusters: int, sample_size: int) -> dict[str, Any]:
    """Seconds of each job, and the most memory that the process ever held."""
    from jobs.queue.submit import run_now
    from workbench.registry import database
    from workbench.settings import Settings

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
        seconds[job_spec["kind"]] = time.perf_counter() - began
    return {"documents": num_documents, "seconds": seconds, "peak_mb": resident_bytes() / 2**20}


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    runs = []
    for number in (options.documents,) if options.one else (options.documents, 2 * options.documents):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(in_own_process(measure, Path(folder), number, options.clusters, options.sample))
    figures = [Figure(f"peak of memory, {run['documents']} documents", [run["peak_mb"]], "MB") for run in runs]
    if not options.one:
        ratio = runs[1]["peak_mb"] / runs[0]["peak_mb"]
        figures.append(Figure("memory for twice the documents", [ratio], at_most=1.2))
    report(options, figures, runs=runs)


if __name__ == "__main__":
    main()
