"""What every benchmark shares: options with sizes for `--quick`, figures with their goals, and a process of its own.

With `--quick` the same code runs on little sizes within seconds, and claims nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

FIGURES_FILE = "BENCHMARK_FIGURES"  # the variable that names a file: each figure is added to it as a line of JSON
NOT_RUN = 77  # the exit status of a benchmark that this machine cannot run, as automake has it
QUICK = "quick: sizes too small for a claim"
Clock = Callable[[], float]
_RUN_ALL = """
import json, sys
from ui.cli.app import main
for command in json.loads(sys.argv[1]):
    if code := main(command.split()):
        sys.exit(f"{command}: exit code {code}")
"""
P = ParamSpec("P")
R = TypeVar("R")


class Options(argparse.ArgumentParser):
    """The options of a benchmark. `sizes` has each one's default, that of `--quick`, and its help if it has one."""

    def __init__(self, description: str | None, sizes: Mapping[str, tuple[Any, ...]] | None = None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("--quick", action="store_true", help="run on little sizes, within seconds; claims nothing")
        self._quick: dict[str, Any] = {}
        for name, (default, quick, *text) in (sizes or {}).items():
            self._quick[name] = quick
            kind: dict[str, Any] = {"type": type(default)}
            if isinstance(default, bool):
                kind = {"action": "store_true"}
            elif isinstance(default, list):
                kind = {"type": type(default[0]), "nargs": "+"}
            self.add_argument(f"--{name.replace('_', '-')}", default=default, help=text[0] if text else None, **kind)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        if "--quick" in (sys.argv[1:] if args is None else args):
            self.set_defaults(**self._quick)
        return super().parse_args(args, namespace)


def p95(values: Sequence[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


@dataclass(frozen=True)
class Figure:
    """Measurements; one statistic of them is compared with the goal. Without a bound it has no goal."""

    name: str
    values: Sequence[float]
    unit: str = "times"
    at_most: float | None = None
    at_least: float | None = None
    statistic: Callable[[Sequence[float]], float] = statistics.median

    @property
    def value(self) -> float:
        return self.statistic(self.values)

    @property
    def goal(self) -> str:
        bounds = (("at most", self.at_most), ("at least", self.at_least))
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)

    @property
    def is_reached(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def row(self) -> dict[str, Any]:
        """The figure as it stands in the table of `make bench`."""
        return {
            "name": self.name,
            "goal": self.goal,
            "figure": self.value,
            "least": min(self.values),
            "most": max(self.values),
            "unit": self.unit,
            "n": len(self.values),
            "is_reached": self.is_reached,
        }

    def __str__(self) -> str:
        spread = f" ({min(self.values):.5g} to {max(self.values):.5g}, n = {len(self.values)})"
        goal = f"; goal: {self.goal}" if self.goal else ""
        return f"{self.name}: {self.value:.5g} {self.unit}{spread if len(self.values) > 1 else ''}{goal}"


def report(options: argparse.Namespace, figures: Sequence[Figure], **details: Any) -> None:
    """Prints figures with their goals, then all as a line of JSON. Missing a goal ends the process with status 1."""
    rows = [figure.row() for figure in figures]
    if options.quick:
        print(QUICK)
    print(*figures, sep="\n")
    settings = {"threads": os.environ.get("OMP_NUM_THREADS"), "cores": os.cpu_count()}
    print(json.dumps(_rounded({"figures": rows, **details, **vars(options), **settings}), default=str), flush=True)
    if path := os.environ.get(FIGURES_FILE):
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps({"benchmark": Path(sys.argv[0]).stem, **_rounded(row)}) + "\n" for row in rows)
    if not options.quick and not all(figure.is_reached for figure in figures):
        sys.exit(1)


def _rounded(value: Any) -> Any:
    """The same with six digits of each number."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case Mapping():
            return {key: _rounded(one) for key, one in value.items()}
        case list() | tuple():
            return [_rounded(one) for one in value]
    return value


def not_run(reason: str) -> NoReturn:
    """Ends a benchmark that lacks something here."""
    print(f"not run: {reason}", file=sys.stderr)
    sys.exit(NOT_RUN)


def in_own_process(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """What a function returns in a new process of Python, which holds nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **options).result()


def resident_bytes(which: str = "VmHWM", pid: int | str = "self") -> int:
    """Resident memory of a process: VmRSS now, VmHWM at its peak (Linux)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(which)).split()[1])


def seconds_of(work: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """How long some work takes, by the given clock."""
    began = clock()
    work()
    return clock() - began


def run_all(commands: Sequence[str], environment: Mapping[str, str]) -> None:
    """Runs commands of the workbench one after another in one process."""
    code = [sys.executable, "-c", _RUN_ALL, json.dumps(commands)]
    subprocess.run(code, env=environment, check=True, stdout=subprocess.DEVNULL)
