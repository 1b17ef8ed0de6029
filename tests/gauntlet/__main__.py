"""Runs the gauntlet and prints its report as JSON; the exit code is 1 if there were violations."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys

from tests.gauntlet.campaign import run
from tests.workbench.postgres import find_initdb


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gauntlet", description="Random faults, one after another.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--on", default="", help="Only this pair, such as sqlite+folder.")
    parser.add_argument("--faults", type=int, default=10**6, help="At most so many on each pair.")
    options = parser.parse_args()
    pairs = [pair for pair in possible() if options.on in ("", "+".join(pair))]
    print(f"SEED={options.seed} on {', '.join('+'.join(pair) for pair in pairs)}", file=sys.stderr, flush=True)
    report = run(options.seed, options.minutes * 60, pairs, options.faults)
    print(json.dumps(report, indent=1))
    sys.exit(1 if report["num_violations"] else 0)


def possible() -> list[tuple[str, str]]:
    """The databases and brokers that this machine has."""
    databases = ["sqlite", *(["postgresql"] if find_initdb() else [])]
    brokers = ["folder", *(["redis"] if shutil.which("redis-server") else [])]
    return [(database, broker) for database in databases for broker in brokers]


if __name__ == "__main__":
    main()
