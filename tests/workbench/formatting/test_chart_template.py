"""What every chart has from the template: axes that say which end is better, and names at the ends of lines."""

from __future__ import annotations

import pytest

from workbench.formatting.chart_template import heat_scale, name_line_ends, new_figure, tick
from workbench.formatting.palette import Look, look_of

HOSTILE = "<b>e</b>"


def figure(*ends: float, log: bool = False) -> object:
    drawn = new_figure("step", "loss (nats/token)", better="lower")
    for place, end in enumerate(ends):
        drawn.add_scatter(x=[0, 10], y=[9.0, end], name=f"line {place}")
    if log:
        drawn.update_yaxes(type="log")
    name_line_ends(drawn, [look_of(place) for place in range(len(ends))])
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


def test_of_one_line_and_of_more_than_six_there_are_no_names_at_the_ends() -> None:
    for count in (1, 7):
        layout = figure(*range(1, count + 1)).layout  # type: ignore[attr-defined]
        assert layout.annotations == ()
        assert layout.showlegend is None


def test_a_name_is_no_markup_and_wears_its_colour_and_mark() -> None:
    assert tick(HOSTILE, Look()) == "&lt;b&gt;e&lt;/b&gt;"
    assert tick("python", look_of(1, "Py")) == f'<span style="color:{look_of(1).colour}">■</span> Py python'
    assert "<b" not in tick("x", look_of(1, "<b"))


def test_the_better_a_value_the_darker_it_is() -> None:
    assert heat_scale()[0] == (0.0, "#f3ead9")
    assert heat_scale(is_low_better=True)[0] == (0.0, "#12507a")
