"""Claim: the page Experts takes little longer with 1,000 experts, each scored on 50 domains, than with a hundred.

Goal: cards, a filter, the table and the lineage in at most 500 ms (median) of processor time each.

The registry is that of `benchmarks/registry.py`, in a temporary home. The page is run by Streamlit's own test runner,
without a browser and without a network: it is the time until the page's elements are known.
Run: python benchmarks/registry_page.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from streamlit.testing.v1 import AppTest

from registry import fill
from workbench.registry.database import migrate
from workbench.settings import get_settings

STUDIO = str(Path(__file__).parents[1] / "ui" / "studio" / "app.py")
LIMIT_SECONDS = 0.5
STATES = {
    "cards": {},
    "cards of one domain": {"experts.domain": ["domain 7"]},
    "table": {"experts.view": "Table"},
    "lineage": {"experts.view": "Lineage"},
    "one expert": {"experts.chosen": ["mix1/domain 7"]},
    "four compared": {"experts.chosen": [f"mix1/domain {number}" for number in range(4)]},
}


def seconds_of(state: dict[str, object], times: int) -> list[float]:
    """Processor seconds of each run of the page in a state, after a first one that is not counted."""
    app = AppTest.from_file(STUDIO, default_timeout=300)
    for key, value in state.items():
        app.session_state[key] = value
    app.switch_page("app_pages/experts.py").run()
    assert not app.exception, app.exception
    seconds = []
    for _ in range(times):
        start = time.process_time()
        app.run()
        seconds.append(time.process_time() - start)
    return seconds


def measure(num_experts: int, times: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as home:
        os.environ["WORKBENCH_HOME"] = home
        get_settings.cache_clear()
        migrate(get_settings())
        fill(get_settings(), num_experts, 1_000, 0)
        return {name: seconds_of(state, times) for name, state in STATES.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7, help="runs of the page in each state")
    times = parser.parse_args().times
    tenth, total = measure(100, times), measure(1_000, times)
    answers = {
        name: {
            "p50_seconds": round(statistics.median(seconds), 3),
            "longest_seconds": round(max(seconds), 3),
            "p50_seconds_of_a_tenth": round(statistics.median(tenth[name]), 3),
        }
        for name, seconds in total.items()
    }
    for name, answer in answers.items():
        print(f"{name:22} {answer}")
    slow = [name for name, one in answers.items() if one["p50_seconds"] > LIMIT_SECONDS]
    print(json.dumps({"answers": answers, "above_the_goal": slow}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
