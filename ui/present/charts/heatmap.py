"""Heatmaps: cells between named rows and columns; and the specialization heatmap (DEMix figure 2)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product, starmap
from typing import Any, NamedTuple

import plotly.graph_objects as go

from ui.present.charts.colours import Looks
from ui.present.text.measures import in_percent
from workbench.analysis.perplexity_tables import DomainMeasure, own_expert
from workbench.formatting.chart_template import FRAME, CaptionedChart, heat_scale, name_axis, new_figure, tick
from workbench.formatting.number_format import full_label, percent, perplexity, ratio, shorten
from workbench.formatting.palette import Cells, Look, as_text, colour_bar, logs

_NUMBERED = 150  # cells with their numbers in them at most
_ROW, _SIGN, _REST = 34, 7, 150  # pixels: of a row, of a sign of a name that stands upright, of all else
_ABOVE = 84  # pixels over the cells: the toolbar, and the colour bar beneath it
_COLUMN_SIGNS, _ROW_SIGNS = 20, 18  # of a name, of a line of a name


def new_heatmap(
    x: str,
    y: str,
    columns: Sequence[str],
    rows: Sequence[str],
    *,
    numbers: str,
    colorbar: Mapping[str, Any],
    looks: tuple[Sequence[Look], Sequence[Look]] = ((), ()),
    **cells: Any,
) -> go.Figure:
    """A heatmap whose first row is on top. `numbers` is Plotly's template of what stands in a cell, `cells` all else.

    `looks` are those of the columns and of the rows, if they are experts or domains.

    Names of rows have two short lines, and the colour bar lies above: on the screen of a phone most is left to cells.
    """
    upright = max((min(len(name), _COLUMN_SIGNS) for name in columns), default=0)
    figure = new_figure(x, y, height=_REST + _ROW * len(rows) + _SIGN * upright)
    figure.add_heatmap(
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        xgap=2,
        ygap=2,
        colorscale=heat_scale(),
        texttemplate=numbers if len(rows) * len(columns) <= _NUMBERED else None,
        colorbar={"orientation": "h", "y": 1, "yanchor": "bottom", "thickness": 10, **colorbar},
    )
    figure.update_traces(cells)
    name_axis(figure, "x", columns, _COLUMN_SIGNS, looks[0])
    figure.update_xaxes(showgrid=False, zeroline=False, ticklabeloverflow="allow")
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=list(map(_in_lines, rows, looks[1] or [Look()] * len(rows))),
        showgrid=False,
        zeroline=False,
        autorange="reversed",
    )
    figure.update_layout(margin_t=_ABOVE, meta={"columns": _names(columns, looks[0]), "rows": _names(rows, looks[1])})
    return figure


def _names(names: Sequence[str], looks: Sequence[Look]) -> list[dict[str, str]]:
    """Names with their marks and colours, if they have them, for a table instead of a chart (`small_grid`)."""
    shown = looks or [Look()] * len(names)
    return [
        {"name": name, "mark": look.mark, "colour": "" if look.number is None else look.colour}
        for name, look in zip(names, shown, strict=True)
    ]


def _in_lines(name: str, look: Look) -> str:
    short = shorten(name, 2 * _ROW_SIGNS - 2)
    first, *rest = textwrap.wrap(short, _ROW_SIGNS, max_lines=2, placeholder="…", break_on_hyphens=False) or [name]
    return "<br>".join([tick(first, look), *(tick(line, Look()) for line in rest)])


def add_targets(figure: go.Figure, hover: Sequence[Sequence[str]]) -> None:
    """Lets each cell be clicked, and show its text of `hover`, by an invisible point in its middle.

    Plotly cannot select the cells of a heatmap. A click anywhere in a cell takes the nearest point.
    """
    cells = [(x, y, words) for y, row in enumerate(hover) for x, words in enumerate(row)]
    figure.update_traces(hoverinfo="skip", selector={"type": "heatmap"})
    figure.add_scatter(
        x=[x for x, _, _ in cells],
        y=[y for _, y, _ in cells],
        mode="markers",
        marker={"symbol": "square", "size": 1, "opacity": 0},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        customdata=[words for _, _, words in cells],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(hoverdistance=-1)


def in_order_of_homes(domains: Sequence[str], homes: Iterable[str]) -> list[str]:
    """The domains in the order of the experts that are at home in them; then the others, as they come."""
    return [*dict.fromkeys([*(home for home in homes if home in domains), *domains])]


def frame(row: int, column: int, dash: str = "solid", colour: str = FRAME) -> dict[str, Any]:
    """A frame around a cell, in the colour of its expert if it is an expert's own."""
    box = {"x0": column - 0.47, "x1": column + 0.47, "y0": row - 0.47, "y1": row + 0.47}
    return {"type": "rect", "line": {"color": colour, "width": 3, "dash": dash}, **box}


def add_frames(figure: go.Figure, *frames: dict[str, Any]) -> None:
    """Draws frames all at once: for each change Plotly checks those that are there again."""
    figure.update_layout(shapes=[*figure.layout.shapes, *frames])


_TOOLBAR = 34  # pixels above the cells


class HeatmapCell(NamedTuple):
    """One expert on one domain; None is not known."""

    expert: str
    domain: str
    is_home: bool
    perplexity: float | None
    ratio: float | None  # to the perplexity of the domain's own expert
    accuracy: float | None  # in percent


@dataclass(frozen=True)
class HeatmapScores:
    """Numbers of each expert (row) on each domain (column), None where not evaluated."""

    experts: Sequence[str]
    domains: Sequence[str]
    perplexity: Cells
    ratios: Cells  # to the perplexity of the domain's own expert
    home_of: Mapping[str, str]  # expert -> the domain that trained it; without those that several trained
    disabled: Collection[str] = ()
    texts: Sequence[DomainMeasure] = ()  # the tokens that the numbers are of
    accuracy: Cells | None = None  # shares of tokens that were the most probable ones
    elsewhere: Collection[str] = ()  # experts that are scored, but on other tokens than are compared here

    def at_home_somewhere(self) -> HeatmapScores:
        """Only the domains that have an expert of their own, in the order of their experts."""
        homes = [self.home_of[expert] for expert in self.experts if expert in self.home_of]
        return self._part(self.experts, [name for name in in_order_of_homes(self.domains, homes) if name in homes])

    def without_own_expert(self) -> list[str]:
        """The domains without an expert of their own among these, which therefore have no ratios."""
        homes = {self.home_of.get(expert) for expert in self.experts}
        return [domain for domain in self.domains if domain not in homes]

    def own_expert(self, domain: str) -> str | None:
        """The expert that ratios on this domain refer to: the best of the in-domain experts; None without scores."""
        column = self.domains.index(domain)
        homes = [self.home_of.get(expert) for expert in self.experts]
        best = own_expert([row[column] for row in self.perplexity], homes, domain)
        return None if best is None else self.experts[best]

    def unscored_experts(self) -> list[str]:
        """The experts without any score."""
        return [e for e, row in zip(self.experts, self.perplexity, strict=True) if all(cell is None for cell in row)]

    def missing_cells(self) -> list[tuple[str, str]]:
        """The cells without a number, and those of experts on a domain of their own that none is scored on."""
        empty = [(cell.expert, cell.domain) for cell in self.cells() if cell.perplexity is None]
        known = {text.domain for text in self.texts} | {*self.domains}
        homes = [(expert, self.home_of[expert]) for expert in self.experts if expert in self.home_of]
        return empty + [cell for cell in homes if cell[1] not in known]

    def accuracy_is_known(self) -> bool:
        """Whether right tokens were counted in any of the scores."""
        return any(cell is not None for row in self.accuracy or () for cell in row)

    def expert_label(self, expert: str) -> str:
        """An expert's name, marked if it is not scored or disabled."""
        missing = "scored on other tokens" if expert in self.elsewhere else "not scored"
        marks = [
            *([missing] if expert in self.unscored_experts() else []),
            *(["disabled"] if expert in self.disabled else []),
        ]
        return f"{expert} ({', '.join(marks)})" if marks else expert

    def compared_cells(self) -> list[tuple[str, str]]:
        """The cells of an expert and a domain of another with a ratio, row by row."""
        return [
            (cell.expert, cell.domain)
            for cell in self.cells()
            if cell.ratio is not None and self.own_expert(cell.domain) != cell.expert
        ]

    def at_most(self, limit: int, search: str = "") -> HeatmapScores:
        """So many rows and columns: what the search names first, then the greatest ratios; own experts stay."""
        if max(len(self.experts), len(self.domains)) <= limit:
            return self
        wanted = search.strip().lower()

        def rank(name: str, cells: Iterable[float | None]) -> tuple[bool, float]:
            return bool(wanted) and wanted in name.lower(), max((cell for cell in cells if cell is not None), default=0)

        columns = dict(zip(self.domains, zip(*self.ratios, strict=True), strict=True))
        rows = dict(zip(self.experts, self.ratios, strict=True))
        at_home = {self.home_of.get(expert) for expert in rows if wanted and wanted in expert.lower()}
        domains = sorted(self.domains, key=lambda name: (name in at_home, *rank(name, columns[name])), reverse=True)
        kept = set(domains[:limit])
        own = {self.own_expert(domain) for domain in kept}
        ranks = {name: rank(name, cells) for name, cells in rows.items()}
        experts = sorted(ranks, key=lambda name: (ranks[name][0], name in own, ranks[name]), reverse=True)
        shown = set(experts[:limit])
        return self._part([e for e in self.experts if e in shown], [d for d in self.domains if d in kept])

    def _part(self, experts: Iterable[str], domains: Iterable[str]) -> HeatmapScores:
        """Only these rows and columns, in this order."""
        experts, domains = list(experts), list(domains)
        rows, columns = map(self.experts.index, experts), [*map(self.domains.index, domains)]
        places = [[(row, column) for column in columns] for row in rows]

        def part(cells: Cells) -> Cells:
            return [[cells[row][column] for row, column in line] for line in places]

        accuracy = None if self.accuracy is None else part(self.accuracy)
        kept = replace(self, perplexity=part(self.perplexity), ratios=part(self.ratios), accuracy=accuracy)
        return replace(kept, experts=experts, domains=domains)

    def cell(self, expert: str, domain: str) -> HeatmapCell:
        """One cell."""
        return self._cell_at(self.experts.index(expert), self.domains.index(domain))

    def _cell_at(self, row: int, column: int) -> HeatmapCell:
        expert, domain = self.experts[row], self.domains[column]
        accuracy = in_percent(self.accuracy[row][column]) if self.accuracy else None
        is_home = self.home_of.get(expert) == domain
        return HeatmapCell(expert, domain, is_home, self.perplexity[row][column], self.ratios[row][column], accuracy)

    def cells(self) -> Iterator[HeatmapCell]:
        """All cells, row by row."""
        return starmap(self._cell_at, product(range(len(self.experts)), range(len(self.domains))))

    def rows(self, *, has_homes: bool = True) -> list[dict[str, Any]]:
        """A row for each cell, as the data table shows it; without `has_homes` no domain has an expert of its own."""
        return [
            {
                "expert": cell.expert,
                "domain": cell.domain,
                **({"in-domain": cell.is_home} if has_homes else {}),
                "perplexity (per token)": cell.perplexity,
                **({"ratio to own expert": cell.ratio} if has_homes else {}),
                "accuracy (%)": cell.accuracy,
            }
            for cell in self.cells()
        ]


def specialization(scores: HeatmapScores, looks: Looks, chosen: tuple[str, str] | None = None) -> CaptionedChart:
    """Each expert's perplexity on each domain, as a ratio to the domain's own expert. The table holds every domain.

    The cell of the chosen expert and domain has a frame of its own.
    """
    shown = scores.at_home_somewhere()
    looks = looks.among(shown.experts)
    figure = _paint_cells(shown, looks)
    frames = _home_frames(shown, looks)
    if chosen:
        frames.append(frame(shown.experts.index(chosen[0]), shown.domains.index(chosen[1]), "4px 2px"))
    add_frames(figure, *frames)
    add_targets(figure, _hover(shown))
    return CaptionedChart(figure, _title(shown), _describe_all(shown), scores.rows())


def _paint_cells(scores: HeatmapScores, looks: Looks) -> go.Figure:
    ceiling = _ceiling(scores.ratios)
    own = [(domain, scores.own_expert(domain)) for domain in scores.domains]
    own_looks = [looks.expert(expert) if expert else looks.domain(domain) for domain, expert in own]
    figure = new_heatmap(
        "domain of the text",
        "expert",
        scores.domains,
        [*map(scores.expert_label, scores.experts)],
        looks=(own_looks, [*map(looks.expert, scores.experts)]),
        colorscale=heat_scale(is_low_better=True),
        z=logs(scores.ratios),
        text=as_text(scores.ratios),
        zmin=0.0,
        zmax=math.log(ceiling),
        numbers="%{text}",
        colorbar=asdict(colour_bar(1.0, ceiling)),
    )
    if figure.data[0].texttemplate:  # the numbers stand in the cells: no bar has to say them
        figure.update_traces(showscale=False)
        figure.update_layout(margin_t=_TOOLBAR, height=figure.layout.height - figure.layout.margin.t + _TOOLBAR)
    return figure


def _ceiling(ratios: Cells) -> float:
    # One broken cell must not wash out all the others: colours end at the 95th percentile.
    known = sorted(r for row in ratios for r in row if r is not None)
    return max(1.05, known[int(0.95 * (len(known) - 1))]) if known else 2.0


def _hover(scores: HeatmapScores) -> list[list[str]]:
    cells = map(_describe, scores.cells())
    return [[next(cells) for _ in scores.domains] for _ in scores.experts]


def _describe(cell: HeatmapCell) -> str:
    text = "not evaluated" if cell.perplexity is None else f"perplexity {perplexity(cell.perplexity)} per token"
    if cell.accuracy is not None:
        text += f", accuracy {percent(cell.accuracy)}"
    if cell.ratio is not None:
        text += f"<br>ratio {ratio(cell.ratio)}"
    return f"{full_label(cell.expert)} on {full_label(cell.domain)}<br>{text}"


def _home_frames(scores: HeatmapScores, looks: Looks) -> list[dict[str, Any]]:
    return [
        frame(row, scores.domains.index(home), colour=looks.expert(expert).colour)
        for row, expert in enumerate(scores.experts)
        if (home := scores.home_of.get(expert)) in scores.domains
    ]


def _title(scores: HeatmapScores) -> str:
    columns = [[r for r in column if r is not None] for column in zip(*scores.ratios, strict=True)]
    judged = [column for column in columns if len(column) > 1]  # the own expert's 1.0, and another expert's
    best = sum(min(column) >= 1.0 for column in judged)
    if not judged:
        return "Specialization heatmap: no second expert is scored on any domain yet, so there is nothing to compare"
    if best == len(judged):
        who = "Each expert is best on its own domain"
        if len(judged) < len(columns):
            who = f"On the {len(judged)} of {len(columns)} domains that can be compared, the own expert is best"
        return f"{who}: read a column; 1.0 is the domain's own expert"
    return (
        f"{best} of {len(judged)} domains are predicted best by their own expert: read a column; "
        "1.0 is the domain's own expert, below 1.0 an out-of-domain expert is better"
    )


def _describe_all(scores: HeatmapScores) -> str:
    away = {f"{cell.expert} on {cell.domain}": cell.ratio for cell in scores.cells() if cell.ratio and not cell.is_home}
    if not away:
        return "Heatmap of experts (rows) by domains (columns). No out-of-domain cell has been evaluated yet."
    lowest, highest = (
        f"{name} ({ratio(away[name])} the own expert's perplexity)"
        for name in (min(away, key=away.__getitem__), max(away, key=away.__getitem__))
    )
    return (
        "Heatmap of experts (rows) by domains (columns); framed cells are in-domain. "
        f"Out of domain, the lowest ratio is {lowest}, the highest {highest}."
    )
