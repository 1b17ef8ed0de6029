"""How often the rule errs where nothing differs: simulated, and printed in docs/replication/README.md.

A world without a difference: each seed has an effect of its own, each document one that all seeds share, each seed on
each document another. What varies is how large seeds' effects are beside what text leaves open in a mean.
"""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from engine.statistics.estimates import Draws, Estimate
from workbench_studies.core.averages import estimate_mean
from workbench_studies.core.verdicts import CONTRADICTED, REPRODUCED, Claim, Mark, is_below

README = Path("docs/replication/README.md")
CLAIM = Claim("Table 0", "one is less than another", "1 < 2")
RATIOS = (0.0, 1.0, 3.0)  # standard deviation of seeds over the standard error of text
SEEDS = (1, 2, 3, 5)
TRIALS, DOCUMENTS = 2000, 30
CHANCE = 3 * math.sqrt(0.025 * 0.975 / TRIALS)  # three standard errors of a simulated rate
CHANCE_OF_BOTH = 3 * math.sqrt(0.05 * 0.95 / TRIALS)  # the same of an error on either side


@functools.cache
def estimates(num_seeds: int, ratio: float, shift: float = 0.0) -> list[Estimate]:
    """What is measured of a mean of `shift`, in standard errors of text."""
    chance, draws = np.random.default_rng([num_seeds, int(10 * ratio)]), Draws(400)
    of_N = np.arange(DOCUMENTS)
    result: list[Estimate] = []
    for _ in range(TRIALS):
        text_N = chance.normal(0, math.sqrt(DOCUMENTS), DOCUMENTS) + shift
        own_SN = chance.normal(0, 0.5, (num_seeds, DOCUMENTS)) + ratio * chance.normal(size=(num_seeds, 1))
        result.append(estimate_mean(draws, "law", [(text_N + own_N, of_N) for own_N in own_SN]))
    return result


def marks(num_seeds: int, ratio: float, shift: float = 0.0) -> list[Mark]:
    """The marks of claims that the mean is below 0."""
    return [is_below(CLAIM, estimate).mark for estimate in estimates(num_seeds, ratio, shift)]


def rate(num_seeds: int, ratio: float) -> float:
    """False “reproduced”, in %."""
    return 100 * marks(num_seeds, ratio).count(REPRODUCED) / TRIALS


def missed(num_seeds: int, ratio: float) -> float:
    """The intervals that do not hold the true mean, in %."""
    return 100 * sum(not estimate.low <= 0 <= estimate.high for estimate in estimates(num_seeds, ratio)) / TRIALS


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_of_several_seeds_an_interval_of_95_percent_misses_the_truth_in_5_percent_at_most(
    num_seeds: int, ratio: float
) -> None:
    assert missed(num_seeds, ratio) <= 100 * (0.05 + CHANCE_OF_BOTH)
    each = marks(num_seeds, ratio)
    for mark in (REPRODUCED, CONTRADICTED):
        assert each.count(mark) / TRIALS <= 0.025 + CHANCE


def test_one_seed_says_reproduced_too_often_where_seeds_differ_so_it_is_flagged() -> None:
    assert rate(1, 0.0) <= 100 * (0.025 + CHANCE)
    assert rate(1, 3.0) > 20
    verdict = is_below(CLAIM, estimate_mean(Draws(50), "law", [(np.arange(5.0) - 9, np.arange(5))]))
    assert (verdict.mark, verdict.as_dict()["is_one_seed"]) == (REPRODUCED, True)


def test_what_differs_is_detected_the_more_surely_the_more_seeds_there_are() -> None:
    shares = [marks(number, 1.0, -5.0).count(REPRODUCED) / TRIALS for number in (2, 3, 5)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9


def test_the_documentation_prints_these_rates() -> None:
    rate_cells = r"\| ([\d.]+) % " * 2 * len(RATIOS)
    rows = re.findall(rf"^\| (\d) {rate_cells}\|$", README.read_text("utf-8"), re.M)
    assert [int(row[0]) for row in rows] == list(SEEDS)
    for number, *printed in rows:
        rates = [of(int(number), ratio) for of in (rate, missed) for ratio in RATIOS]
        assert [float(one) for one in printed] == pytest.approx(rates, abs=0.3)
