"""Claim: the page Experts takes little longer with 1,000 experts, each scored on 50 domains, than with a hundred.

Goal: cards, a filter, the table and the lineage in at most 500 ms (median) of processor time each.

The registry is that of `benchmarks/registry.py`, in a temporary home. The page is run by Streamlit's own test runner,
without a browser and without a network: it is the time until the page's elements are known.
Run: python benchmarks/registry_page.py
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from streamlit.testing.v1 import AppTest

from harness.benchmark import Figure, Options, report
from registry import fill
from workbench.registry.database import migrate
from workbench.settings import get_settings

STUDIO = str(Path(__file__).parents[1] / "ui" / "studio" / "app.py")
SIZES = {"times": (7, 1, "runs of the page in each state"), "experts": (1_000, 100)}
LIMIT_SECONDS = 0.5
STATES: dict[str, dict[str, object]] = {
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
        fill(get_settings(), num_experts, 1_000, num_curves=0, num_points=0)
        return {name: seconds_of(state, times) for name, state in STATES.items()}


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    tenth, total = measure(100, options.times), measure(options.experts, options.times)
    medians = {name: median(seconds) for name, seconds in total.items()}
    name = "processor time of the page Experts in its slowest state, medians"
    figures = [
        Figure(name, [*medians.values()], "s", at_most=LIMIT_SECONDS, statistic=max),
        Figure(
            "the page with all experts over that with a hundred",
            [medians[name] / median(tenth[name]) for name in STATES],
        ),
    ]
    report(options, figures, median_seconds=medians, longest_seconds={name: max(total[name]) for name in STATES})


if __name__ == "__main__":
    main()
