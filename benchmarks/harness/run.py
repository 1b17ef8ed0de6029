"""Runs the benchmarks one after another, also after one has failed, and prints a table of their figures and goals.

Run: make bench, or python -m benchmarks.harness.run [--quick] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.harness.benchmark import FIGURES_FILE, NOT_RUN, QUICK

SCRIPTS = {path.stem: path for path in sorted(Path(__file__).parents[1].glob("*.py"))}
COLUMNS = ("benchmark", "goal", "figure", "unit", "n")


def run(name: str, is_quick: bool) -> tuple[list[dict[str, Any]], int]:
    """The figures of a benchmark, and its exit status."""
    print(f"\n{name}", flush=True)
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl", encoding="utf-8") as file:
        command = [sys.executable, str(SCRIPTS[name]), *(["--quick"] if is_quick else [])]
        status = subprocess.run(command, env=os.environ | {FIGURES_FILE: file.name}, check=False).returncode
        return [json.loads(line) for line in file], status


def rows_of(name: str, figures: Sequence[dict[str, Any]], status: int, is_quick: bool) -> list[tuple[str, ...]]:
    """The lines of the table: one for each figure, and why the rest is missing."""
    rows = []
    for row in figures:
        goal = f"{row['name']}: {row['goal']}" if row["goal"] else row["name"]
        missed = "" if row["is_reached"] or is_quick else " (missed)"
        rows.append((name, goal, f"{row['figure']:.5g}{missed}", row["unit"], str(row["n"])))
    if status and (is_quick or all(row["is_reached"] for row in figures)):
        rows.append((name, "", "not run" if status == NOT_RUN else f"failed: exit status {status}", "", ""))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(SCRIPTS)}")
    parser.add_argument("--quick", action="store_true", help="little sizes, within seconds each; claims nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SCRIPTS):
        parser.error(f"Unknown benchmark: {', '.join(sorted(unknown))}.")
    table = Table(*COLUMNS, title=QUICK if options.quick else None)
    failed = []
    for name in options.names or SCRIPTS:
        figures, status = run(name, options.quick)
        for row in rows_of(name, figures, status, options.quick):
            table.add_row(*row)
        failed += [name] if status not in (0, NOT_RUN) else []
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if failed:
        sys.exit(f"These missed a goal or ended with an error: {' '.join(failed)}")


if __name__ == "__main__":
    main()
