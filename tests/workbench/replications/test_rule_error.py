"""How often the rule says “reproduced” where nothing differs: simulated, and printed in docs/replication/README.md.

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

from engine.statistics.bootstrap import Draws
from workbench.replications.verdicts import CONTRADICTED, REPRODUCED, Claim, Mark, is_below

README = Path("docs/replication/README.md")
CLAIM = Claim("Table 0", "one is less than another", "1 < 2")
RATIOS = (0.0, 1.0, 3.0)  # standard deviation of seeds over the standard error of text
SEEDS = (1, 2, 3, 5)
TRIALS, DOCUMENTS = 2000, 30
CHANCE = 3 * math.sqrt(0.025 * 0.975 / TRIALS)  # three standard errors of a simulated rate


@functools.cache
def marks(num_seeds: int, ratio: float, shift: float = 0.0) -> list[Mark]:
    """The marks of claims about a mean of `shift`, in standard errors of text."""
    chance, draws = np.random.default_rng([num_seeds, int(10 * ratio)]), Draws(400)
    of_N = np.arange(DOCUMENTS)
    result: list[Mark] = []
    for _ in range(TRIALS):
        text_N = chance.normal(0, math.sqrt(DOCUMENTS), DOCUMENTS) + shift
        own_SN = chance.normal(0, 0.5, (num_seeds, DOCUMENTS)) + ratio * chance.normal(size=(num_seeds, 1))
        result.append(is_below(CLAIM, draws.mean("law", [(text_N + own_N, of_N) for own_N in own_SN])).mark)
    return result


def rate(num_seeds: int, ratio: float) -> float:
    """False “reproduced”, in %."""
    return 100 * marks(num_seeds, ratio).count(REPRODUCED) / TRIALS


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(("num_seeds", "most"), [(2, 0.07), (3, 0.05), (5, 0.05)])
def test_what_does_not_differ_is_seldom_reproduced_or_contradicted(num_seeds: int, most: float, ratio: float) -> None:
    each = marks(num_seeds, ratio)
    for mark in (REPRODUCED, CONTRADICTED):
        assert each.count(mark) / TRIALS <= most + CHANCE


def test_one_seed_says_reproduced_too_often_where_seeds_differ_so_it_is_flagged() -> None:
    assert rate(1, 0.0) <= 100 * (0.025 + CHANCE)
    assert rate(1, 3.0) > 20
    verdict = is_below(CLAIM, Draws(50).mean("law", [(np.arange(5.0) - 9, np.arange(5))]))
    assert (verdict.mark, verdict.is_one_seed) == (REPRODUCED, True)


def test_what_differs_is_detected_the_more_surely_the_more_seeds_there_are() -> None:
    shares = [marks(number, 1.0, -5.0).count(REPRODUCED) / TRIALS for number in (2, 3, 5)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9


def test_the_documentation_prints_these_rates() -> None:
    rows = re.findall(r"^\| (\d) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", README.read_text("utf-8"), re.M)
    assert [int(row[0]) for row in rows] == list(SEEDS)
    for number, *printed in rows:
        assert [float(one) for one in printed] == pytest.approx([rate(int(number), r) for r in RATIOS], abs=0.3)
