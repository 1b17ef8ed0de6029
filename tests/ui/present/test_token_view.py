"""The data of tokens and weights: seven experts by name, all others as one."""

from __future__ import annotations

import pytest

from ui.present.charts.token_view import SHOWN, difference_data, weight_data
from workbench.formatting.palette import GREY, look_of


def looks(number: int) -> list:
    return [look_of(place, f"M{place}") for place in range(number)]


def test_every_expert_of_a_few_is_drawn_with_its_own_colour_and_mark() -> None:
    data = weight_data(["a", "b"], [[0.9, 0.1], [0.2, 0.8]], ["one", "two"], looks(2))

    assert [(one["name"], one["mark"], one["colour"]) for one in data["experts"]] == [
        ("one", "M0", look_of(0).colour),
        ("two", "M1", look_of(1).colour),
    ]
    assert data["leads"] == [0, 1]
    assert data["shares"] == [0.9, 0.8]
    assert data["weights"] == [[0.9, 0.1], [0.2, 0.8]]


def test_of_a_thousand_experts_seven_are_drawn_and_the_rest_is_one() -> None:
    names = [f"e{place}" for place in range(1000)]
    row = [0.0001] * 1000
    for number in range(100, 107):
        row[number] = (1 - 0.0993) / 7
    other = [0.0] * 1000
    other[3] = 1.0  # leads here, and is none of the seven

    data = weight_data(["a"] * 20 + ["b"], [row] * 20 + [other], names, looks(1000))

    assert [one["name"] for one in data["experts"]] == [f"e{place}" for place in range(100, 107)] + ["993 others"]
    assert data["experts"][-1]["colour"] == GREY
    assert data["leads"][-1] == SHOWN
    assert data["shares"][-1] == 1.0
    assert [sum(one) for one in data["weights"]] == pytest.approx([1.0] * 21, abs=1e-3)


def test_no_expert_is_the_only_other() -> None:
    row = [1 / 8] * 8

    data = weight_data(["a"], [row], [f"e{number}" for number in range(8)], looks(8))

    assert [one["name"] for one in data["experts"]] == [f"e{number}" for number in range(8)]


def test_a_text_without_tokens_has_no_rows() -> None:
    data = weight_data([], [], ["one"], looks(1))

    assert data["tokens"] == data["weights"] == data["leads"] == []


def test_differences_name_both_sides() -> None:
    data = difference_data(["a"], [-1.23456], "mine", "theirs")

    assert data["differences"] == [-1.2346]
    assert data["sides"] == ["mine", "theirs"]
