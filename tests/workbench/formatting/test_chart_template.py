"""What every chart has from the template: axes that say which end is better, and names at the ends of lines."""

from __future__ import annotations

from itertools import pairwise

import pytest

from workbench.formatting.chart_template import heat_scale, name_line_ends, named, new_figure, tick
from workbench.formatting.number_format import full_label, label, shorten
from workbench.formatting.palette import Look, look_of

HOSTILE = "<b>e</b>"


def figure(*ends: float, log: bool = False) -> object:
    drawn = new_figure("step", "loss (nats/token)", better="lower")
    for place, end in enumerate(ends):
        drawn.add_scatter(x=[0, 10], y=[9.0, end], name=f"line {place}")
    if log:
        drawn.update_yaxes(type="log")
    name_line_ends(drawn, [look_of(number) for number in range(len(ends))])
    return drawn


def test_axes_name_the_better_end_and_cut_no_label() -> None:
    layout = new_figure("step", "loss (nats/token)", better="lower").layout
    assert layout.yaxis.title.text == "loss (nats/token)<br>lower is better"
    assert (layout.xaxis.automargin, layout.yaxis.automargin, layout.hovermode) == (True, True, "closest")


@pytest.mark.parametrize("log", [False, True])
def test_names_at_line_ends_stand_apart_and_in_the_order_of_their_lines(log: bool) -> None:
    layout = figure(5.0, 5.01, 5.02, 1.0, log=log).layout  # type: ignore[attr-defined]
    assert layout.showlegend is False
    first, last = layout.xaxis.range
    assert -0.3 < first < 0 < 10 < last < 10.3  # markers at both ends are not cut
    notes = layout.annotations
    assert [note.text[-6:] for note in notes] == ["line 0", "line 1", "line 2", "line 3"]
    near = [note.yshift for note in notes[:3]]  # their lines end within a pixel
    assert near[1] - near[0] == pytest.approx(15, abs=1)
    assert near[2] - near[1] == pytest.approx(15, abs=1)


def test_names_of_lines_with_markers_do_not_meet_and_a_distant_one_stays_at_its_line() -> None:
    ends = [4.97, 5.32, 5.34, 5.35, 5.38, 6.02]
    layout = figure(*ends).layout  # type: ignore[attr-defined]
    low, high = layout.yaxis.range  # fixed, or Plotly would draw the lines nearer to each other than was counted
    assert (low < 4.97, high > 9.0) == (True, True)
    lines = [(end - low) / (high - low) * (layout.height - 80) for end in ends]
    names = [line + note.yshift for line, note in zip(lines, layout.annotations, strict=True)]
    assert all(upper - lower > 14.9 for lower, upper in pairwise(names))
    distant, lower, upper = figure(1.0, 5.0, 5.01).layout.annotations  # type: ignore[attr-defined]
    assert distant.yshift == pytest.approx(0)
    assert (lower.yshift, upper.yshift) == (pytest.approx(-7.4, abs=0.3), pytest.approx(7.4, abs=0.3))


def test_of_one_line_and_of_more_than_six_there_are_no_names_at_the_ends() -> None:
    for count in (1, 7):
        layout = figure(*range(1, count + 1)).layout  # type: ignore[attr-defined]
        assert layout.annotations == ()
        assert layout.showlegend is None


def test_a_name_is_no_markup_and_wears_its_colour_and_mark() -> None:
    assert tick(HOSTILE, Look()) == "&lt;b&gt;e&lt;/b&gt;"
    assert tick("python", look_of(1, "Py")) == f'<span style="color:{look_of(1).colour}">■</span> Py python'
    assert "<b" not in tick("x", look_of(1, "<b"))


LONG = "experts/of-licences-and-terms-of-use/{}-with-appendix-{}"


def test_a_long_name_loses_its_middle_so_that_names_of_one_family_differ() -> None:
    names = [LONG.format("first", number) for number in (1, 2)]
    assert [len(shorten(name, 24)) for name in names] == [24, 24]
    assert shorten(names[0], 24) == "experts/of-l…-appendix-1"
    assert label(names[0], 24) != label(names[1], 24)
    assert [shorten("abcdef", limit) for limit in (6, 5, 2, 1)] == ["abcdef", "ab…ef", "a…", "…"]


def test_a_series_has_a_short_name_in_the_legend_and_the_full_one_where_the_mouse_is() -> None:
    name = LONG.format(HOSTILE, "%{x}")
    drawn = new_figure("step", "loss")
    for number in range(2):
        drawn.add_scatter(x=[0, 1], y=[number, number], **named(name))
    assert drawn.layout.hoverlabel.namelength == -1  # Plotly's own is 15 characters
    assert len(drawn.data[0].name) <= 24
    assert drawn.data[0].meta == full_label(name) == LONG.format("&lt;b&gt;e&lt;/b&gt;", "%{x}")
    assert drawn.data[0].hovertemplate.endswith("<extra>%{meta}</extra>")
    name_line_ends(drawn, [Look(), Look()])
    assert drawn.layout.annotations[0].hovertext == full_label(name)
    assert drawn.layout.annotations[0].text.count("…") == 1


def test_the_better_a_value_the_darker_it_is() -> None:
    assert heat_scale()[0] == (0.0, "#f3ead9")
    assert heat_scale(is_low_better=True)[0] == (0.0, "#12507a")
