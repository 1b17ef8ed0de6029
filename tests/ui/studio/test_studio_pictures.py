"""Pictures say what to read, in a title, in words and in numbers, and take no name for markup."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ui.parts.charts import curves, expert_bars, mixture_bars
from ui.parts.heatmap import Scores, specialization
from ui.parts.lineage import lineage_dot, lineage_words
from ui.parts.trajectories import average_weights, leaders, legend, posterior_lines, tinted_words
from workbench.cards import MetricPoint

EVIL = "<img src=x onerror=alert(1)>"


def scores(at_home: float = 1.0) -> Scores:
    return Scores(
        experts=["m/a", "m/b"],
        domains=["a", "b", "novel"],
        perplexity=[[10.0, 30.0, 50.0], [20.0, 15.0 * at_home, None]],
        ratios=[[1.0, 2.0 / at_home, None], [2.0, 1.0, None]],
        home_of={"m/a": "a", "m/b": "b"},
    )


def test_the_heatmap_frames_each_expert_at_home() -> None:
    figure = specialization(scores()).figure
    assert [(shape.x0 + 0.47, shape.y0 + 0.47) for shape in figure.layout.shapes] == [(0, 0), (1, 1)]


def test_the_title_praises_the_experts_only_when_it_is_true() -> None:
    assert specialization(scores()).title.startswith("Each expert is best at home")
    assert specialization(scores(at_home=4.0)).title.startswith("1 of 2 domains")


def test_the_hover_tells_the_absolute_perplexity() -> None:
    hover = specialization(scores()).figure.data[0].customdata
    assert "perplexity 30.00 per token" in hover[0][1]


def test_a_domain_without_an_own_expert_stands_in_the_table_only() -> None:
    picture = specialization(scores())
    assert scores().strangers() == ["novel"]
    assert list(picture.figure.layout.xaxis.ticktext) == ["a", "b"]
    assert {"expert": "m/a", "domain": "novel", "at home": False} in [
        {key: row[key] for key in ("expert", "domain", "at home")} for row in picture.table
    ]


def test_an_expert_without_any_number_is_named() -> None:
    gaps = Scores(["m/a", "new"], ["a"], [[3.0], [None]], [[1.0], [None]], {"m/a": "a", "new": "b"})
    assert gaps.unscored() == ["new"]
    assert gaps.told("new") == "new (not scored)"
    assert replace(gaps, disabled=["m/a"]).told("m/a") == "m/a (disabled)"
    assert specialization(gaps).title.startswith("Each scored expert is best at home")


def test_names_are_no_markup_in_a_figure() -> None:
    hostile = Scores([EVIL], [EVIL], [[3.0]], [[1.0]], {EVIL: EVIL})
    assert "<img" not in specialization(hostile).figure.to_json()


def test_a_curve_without_points_is_no_picture() -> None:
    assert curves([], "Training loss", "x") is None


def test_a_name_has_one_colour_in_all_charts_of_a_page() -> None:
    points = [MetricPoint(name=name, step=1, value=2.0) for name in "abc"]
    both = curves(points, "Training loss", "x", "abc"), curves(points[1:], "Held-out loss", "x", "abc")
    first, second = ({line.name: line.line.color for line in one.figure.data} for one in both if one)
    assert second.items() <= first.items()


def test_a_curve_tells_where_it_began_and_ended() -> None:
    picture = curves([MetricPoint(name="a", step=s, value=5 - s) for s in (1, 2, 3)], "Training loss", "x")
    assert picture is not None
    assert "from 4.000 at step 1 to 2.000 at step 3" in picture.words


def test_the_bars_of_a_mixture_tell_the_largest_change() -> None:
    saved = [{"domain": "a", "num_tokens": 9, "perplexity": 10.0}, {"domain": "b", "num_tokens": 9, "perplexity": 8.0}]
    now = [{**saved[0], "perplexity": 15.0}, {**saved[1], "perplexity": 8.1}]
    picture = mixture_bars(saved, now)
    assert "on a, from 10.00 to 15.00 per token (+50.0 %)" in picture.words
    assert picture.table[0]["change (%)"] == pytest.approx(50.0)


def test_experts_that_were_never_scored_have_no_bars() -> None:
    assert expert_bars([], []) is None


WEIGHTS = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]


def test_each_word_wears_its_leading_expert() -> None:
    assert leaders(WEIGHTS) == [0, 0, 1]
    html = tinted_words(["a", " b", " c"], WEIGHTS, ["x", "y"])
    assert html.count("#0072B2") == 2
    assert html.count("#E69F00") == 1
    assert "x 0.90, y 0.10" in html


def test_text_and_names_are_no_markup_in_tinted_words() -> None:
    html = tinted_words([EVIL], [[1.0]], [f'"{EVIL}']) + legend([EVIL], [0])
    assert "<img" not in html
    assert 'title="&quot;' in html


def test_the_trajectory_tells_who_led_and_how_often_it_changed() -> None:
    picture = posterior_lines(["a", "b", "c"], WEIGHTS, ["x", "y"])
    assert "x 67%, y 33%" in picture.words
    assert "changes 1 time." in picture.words
    assert [row["y"] for row in picture.table] == [0.1, 0.4, 0.8]


def test_the_mean_weights_stand_in_order() -> None:
    assert [row["expert"] for row in average_weights(WEIGHTS[2:], ["x", "y"]).table] == ["y", "x"]


def test_a_lineage_quotes_names_and_tells_the_way_in_words() -> None:
    nodes = [{"id": "1", "kind": "seed", "name": 's"];x['}, {"id": "2", "kind": "expert", "name": "e\\"}]
    lineage = {"nodes": nodes, "edges": [{"source": "1", "target": "2"}]}
    dot = lineage_dot(lineage, "e\\")
    assert 'label="seed: s\\"];x["' in dot
    assert 'label="expert: e\\\\"' in dot
    assert lineage_words(lineage) == 'seed s"];x[ → expert e\\.'
