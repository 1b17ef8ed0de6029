"""Charts of the gates inside an expert with parts, by token and by block.

`rows` are those of `rows_inside`: at each token the weights of the backbone and of every part.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from engine.events import BACKBONE
from ui.present.charts.colours import in_order
from ui.present.text.formatting import pluralize
from ui.present.text.mode_gates import means
from workbench.formatting.chart_template import CaptionedChart, heat_scale, name_axis, new_figure
from workbench.formatting.number_format import full_label, label
from workbench.formatting.number_format import weight as formatted

Rows = Sequence[Sequence[float]]
_LARGEST_WITH_NUMBERS = 120  # cells


def gate_strip(tokens: Sequence[str], rows: Rows, parts: Sequence[str]) -> CaptionedChart:
    """The weight of the backbone and of every part (rows) at every token (columns)."""
    names = [BACKBONE, *parts]
    columns = [list(column) for column in zip(*rows, strict=True)]
    shown = [f"{position}: {label(repr(token), 24)}" for position, token in enumerate(tokens)]
    figure = new_figure("token (position in the text)", "", height=110 + 40 * len(names))
    _paint(figure, columns, [shown] * len(names), "%{customdata}<br>weight %{z:.2f}<extra></extra>", gap=0)
    name_axis(figure, "y", names, 32, [*map(in_order(parts).expert, names)])
    table = [
        {"position": position, "token": token}
        | {f"{name} (weight)": weight for name, weight in zip(names, row, strict=True)}
        for position, (token, row) in enumerate(zip(tokens, rows, strict=True))
    ]
    words = (
        f"Heatmap of the backbone and {pluralize(len(parts), 'part')} (rows) by {pluralize(len(tokens), 'token')} "
        f"(columns). Mean weights: {_list_weights(names, means(rows))}."
    )
    return CaptionedChart(figure, "Gate weights by token: in each column the brightest cell weighs most", words, table)


def gates_by_block(by_block: Sequence[Rows], parts: Sequence[str]) -> CaptionedChart:
    """The mean weight over the tokens of the backbone and of every part (rows) in every block (columns)."""
    names, columns = [BACKBONE, *parts], [means(rows) for rows in by_block]
    blocks = [f"block {number}" for number, _ in enumerate(columns, 1)]
    cells = [[column[place] for column in columns] for place in range(len(names))]
    figure = new_figure("from the text (left) to the prediction (right)", "", height=110 + 40 * len(names))
    hover = [[f"{full_label(name)}, {block}" for block in blocks] for name in names]
    _paint(figure, cells, hover, "%{customdata}<br>mean weight %{z:.2f}<extra></extra>", gap=2)
    name_axis(figure, "x", blocks)
    name_axis(figure, "y", names, 32, [*map(in_order(parts).expert, names)])
    table = [{"part": name} | dict(zip(blocks, row, strict=True)) for name, row in zip(names, cells, strict=True)]
    listing = "; ".join(
        f"{block}: {_list_weights(names, column)}" for block, column in zip(blocks, columns, strict=True)
    )
    title = "Mean gate weights by block: read a row from the first block to the last"
    return CaptionedChart(figure, title, f"Heatmap of mean weights by block. {listing}.", table)


def _paint(figure: go.Figure, cells: Sequence[Sequence[float]], hover: object, template: str, gap: int) -> None:
    has_numbers = gap > 0 and sum(map(len, cells)) <= _LARGEST_WITH_NUMBERS
    figure.add_heatmap(
        z=cells,
        zmin=0,
        zmax=1,
        colorscale=heat_scale(),
        xgap=gap,
        ygap=2,
        customdata=hover,
        hovertemplate=template,
        texttemplate="%{z:.2f}" if has_numbers else None,
        colorbar={"title": "weight"},
    )
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(showgrid=False, zeroline=False, autorange="reversed")


def _list_weights(names: Sequence[str], weights: Sequence[float]) -> str:
    return ", ".join(f"{name} {formatted(weight)}" for name, weight in zip(names, weights, strict=True))
