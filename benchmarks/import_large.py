"""Claim: an import needs hardly more memory for a text ten times as long: less than 200 bytes for each document more.

Text is written to a file of JSON lines in a temporary folder (twice the size is needed there), and imported into a home
of its own by `workbench corpus add`. The peak is that of the command's resident memory. Both sizes in one run; time
is also printed, by the processor's clock. The last line is JSON.
Run: python benchmarks/import_large.py [--gigabytes 10]
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.benchmark import Figure, Options, report

SIZES = {"gigabytes": (1.0, 0.002, "the longer text; the other is a tenth of it")}
WORDS = 2_000
DOCUMENT_WORDS = 600


def write(path: Path, num_bytes: int) -> int:
    """Writes different documents up to a size; gives their number."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(WORDS)]
    page = chance.choices(words, k=100 * DOCUMENT_WORDS)
    number = 0
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < num_bytes:
            start = chance.randrange(len(page) - DOCUMENT_WORDS)
            text = f"Document {number}. {' '.join(page[start : start + DOCUMENT_WORDS])}"
            file.write(json.dumps({"text": text}) + "\n")
            number += 1
    return number


def measure(gigabytes: float) -> dict[str, Any]:
    """Documents, and peak bytes and processor seconds of the command that imports them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.jsonl"
        num_documents = write(path, int(gigabytes * 1e9))
        os.environ["WORKBENCH_HOME"] = f"{folder}/home"
        command = [str(Path(sys.executable).with_name("workbench"))]
        subprocess.run([*command, "migrate"], check=True, stdout=subprocess.DEVNULL)
        process = os.posix_spawn(command[0], [*command, "corpus", "add", "text", str(path), "--here"], dict(os.environ))
        _, status, used = os.wait4(process, 0)
        assert status == 0, "the import failed"
        (domain,) = json.loads(subprocess.run([*command, "corpus", "domains", "--json"], capture_output=True).stdout)
        assert domain["num_documents"] == num_documents, domain
        return {
            "gigabytes": gigabytes,
            "documents": num_documents,
            "peak_mb": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 10**6,
            "processor_seconds": used.ru_utime + used.ru_stime,
        }


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    small, large = measure(options.gigabytes / 10), measure(options.gigabytes)
    more = (large["peak_mb"] - small["peak_mb"]) * 10**6 / (large["documents"] - small["documents"])
    figures = [Figure("memory for each document more", [more], "bytes", at_most=200)]
    report(options, figures, small=small, large=large)


if __name__ == "__main__":
    main()
