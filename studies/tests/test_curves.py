"""Curves over tokens tell whether one overtakes another for good."""

from __future__ import annotations

import math

import pytest

from workbench_studies.demix.measurements import Curve, crossing, mean_curve


def curve(*values: float, seed: int = 0, domains: tuple[str, ...] = ("law",)) -> Curve:
    """A training with these perplexities at steps 10, 20, …; a step takes 100 tokens."""
    points = [(10 * place, math.log(value)) for place, value in enumerate(values, 1)]
    return Curve("demix", seed, dict.fromkeys(domains, points), 100)


@pytest.mark.parametrize(
    ("lower", "tokens"),
    [((9.0, 8.0, 7.0), 1000), ((11.0, 8.0, 7.0), 2000), ((9.0, 11.0, 7.0), 3000), ((9.0, 9.0, 11.0), None)],
)
def test_a_crossing_is_where_a_curve_gets_below_and_stays(lower: tuple[float, ...], tokens: int | None) -> None:
    result = crossing(curve(*lower).mean(["law"]), curve(10.0, 10.0, 10.0).mean(["law"]))
    assert result == {
        "tokens": tokens,
        "last_tokens": 3000,
        "lower": pytest.approx(lower[-1]),
        "higher": pytest.approx(10),
    }


def test_curves_without_a_common_point_do_not_cross() -> None:
    assert crossing(curve(1.0).mean(["law"]), {}) is None
    assert curve(1.0).mean(["sea"]) == {}


def test_perplexities_are_averaged_over_domains_and_then_over_seeds() -> None:
    both = Curve("demix", 0, {"law": [(1, math.log(2.0))], "sea": [(1, math.log(6.0))]}, 10)
    assert both.mean(["law", "sea"])[10] == pytest.approx(4.0)
    other = Curve("demix", 1, {"law": [(1, math.log(8.0))], "sea": [(1, math.log(8.0)), (2, 0.0)]}, 10)
    assert mean_curve([both, other], ["law", "sea"]) == {10: pytest.approx(6.0)}
