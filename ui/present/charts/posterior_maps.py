"""Posteriors of whole domains: heatmaps (DEMix figure 4) and trajectories over blocks (figures 7 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.present.charts.cells import add_frames, add_targets, frame, new_heatmap
from ui.present.charts.chart import Chart, baseline, line_of, named, new_subplots
from ui.present.charts.colours import Looks, marked
from ui.present.text.posteriors import stable_words
from workbench.formatting.number_format import full_label, shorten, weight
from workbench.questions.posteriors import DomainPosterior, PosteriorMap

_COLUMNS = 2
_ROW_PIXELS = 190


def posterior_heatmap(answer: PosteriorMap, rows: Sequence[DomainPosterior], kind: str, looks: Looks) -> Chart:
    """The posterior of each expert (columns) on each domain (rows); `kind` says which domains these are."""
    experts, domains = answer.experts, [row.domain for row in rows]
    looks = looks.among(experts)
    figure = new_heatmap(
        "expert",
        "domain of the text",
        experts,
        domains,
        looks=([*map(looks.expert, experts)], [*map(looks.domain, domains)]),
        z=[row.posterior for row in rows],
        zmin=0,
        zmax=1,
        numbers="%{z:.2f}",
        colorbar={"title": "posterior"},
    )
    _frame_homes(figure, answer, domains, looks)
    add_targets(figure, [_hover(experts, row) for row in rows])
    return Chart(
        figure,
        f"{kind}: read a row for the experts that a domain's text is attributed to",
        _map_words(answer, rows),
        [
            {
                "domain": row.domain,
                "blocks": row.num_blocks,
                **dict(zip(experts, row.posterior, strict=True)),
                "stable": stable_words(row),
            }
            for row in rows
        ],
    )


def _hover(experts: Sequence[str], row: DomainPosterior) -> list[str]:
    shares = zip(experts, row.posterior, strict=True)
    return [f"{full_label(expert)} on {full_label(row.domain)}<br>{weight(share)}" for expert, share in shares]


def _frame_homes(figure: Any, answer: PosteriorMap, domains: Sequence[str], looks: Looks) -> None:
    homes = enumerate(zip(answer.experts, answer.homes, strict=True))
    colours = {expert: looks.expert(expert).colour for expert in answer.experts}
    frames = [
        frame(domains.index(home), column, colour=colours[expert])
        for column, (expert, home) in homes
        if home in domains
    ]
    add_frames(figure, *frames)


def _map_words(answer: PosteriorMap, rows: Sequence[DomainPosterior]) -> str:
    leaders = [f"{row.domain}: {_leader(answer, row)}" for row in rows[:8]]
    more = f"; {len(rows) - 8} more are in the table" if len(rows) > 8 else ""
    frames = " A frame marks a domain's own expert." if any(row.domain in answer.homes for row in rows) else ""
    return f"Heatmap of domains (rows) by experts (columns). Largest share of each: {'; '.join(leaders)}{more}.{frames}"


def _leader(answer: PosteriorMap, row: DomainPosterior) -> str:
    share = max(row.posterior)
    return f"{answer.experts[row.posterior.index(share)]} {weight(share)}"


def posterior_paths(answer: PosteriorMap, rows: Sequence[DomainPosterior], kind: str, looks: Looks) -> Chart:
    """The posterior of each expert before each block, a panel for each domain; a dashed line where it is stable."""
    num_rows = -(-len(rows) // _COLUMNS)
    titles = [f"{shorten(row.domain, 30)}: stable {stable_words(row)}" for row in rows]
    figure = new_subplots(
        num_rows,
        _COLUMNS,
        titles,
        90 + _ROW_PIXELS * num_rows,
        shared_yaxes=True,
        vertical_spacing=0.32 / max(1, num_rows),
        horizontal_spacing=0.04,
    )
    for place, row in enumerate(rows):
        where = {"row": place // _COLUMNS + 1, "col": place % _COLUMNS + 1}
        _draw_paths(figure, answer.experts, row, where, looks, is_first=place == 0)
    figure.update_layout(
        legend={"orientation": "h", "y": 1 + 45 / (_ROW_PIXELS * num_rows), "yanchor": "bottom"},
    )
    figure.update_yaxes(range=[0, 1.02])
    figure.update_yaxes(title="posterior (0 to 1)", col=1)
    figure.update_xaxes(title="blocks seen", row=num_rows)
    return Chart(
        figure,
        f"{kind}: where lines are flat, the posterior can be saved as a prior",
        _path_words(rows),
        _steps(answer, rows),
    )


def _draw_paths(
    figure: Any,
    experts: Sequence[str],
    row: DomainPosterior,
    where: Mapping[str, int],
    looks: Looks,
    *,
    is_first: bool,
) -> None:
    for column, (expert, path) in enumerate(zip(experts, row.trajectory, strict=True)):
        figure.add_scatter(
            y=path,
            **named(marked(expert, looks.expert(expert)), "after %{x} blocks: %{y:.2f}"),
            legendgroup=str(column),
            showlegend=is_first,
            mode="lines",
            line=line_of(looks.expert(expert)),
            **where,
        )
    if row.stable_after is not None:
        figure.add_vline(x=row.stable_after, line=baseline(), **where)


def _path_words(rows: Sequence[DomainPosterior]) -> str:
    stable = "; ".join(f"{row.domain} {stable_words(row)}" for row in rows[:8])
    return (
        "Line charts of the posterior over blocks. A dashed line marks the block from which on no share moves "
        f"by more than 0.05: {stable}."
    )


def _steps(answer: PosteriorMap, rows: Sequence[DomainPosterior]) -> list[dict[str, Any]]:
    return [
        {"domain": row.domain, "blocks seen": step, **dict(zip(answer.experts, shares, strict=True))}
        for row in rows
        for step, shares in enumerate(zip(*row.trajectory, strict=True))
    ]
