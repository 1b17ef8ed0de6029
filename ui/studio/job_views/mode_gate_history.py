"""The gate weights inside an expert during training: the share of backbone and parts on each held-out domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from ui.present.charts.chart import Chart, line_of, named, new_subplots
from ui.present.charts.colours import in_order
from ui.present.text.formatting import listed
from ui.widgets.show_chart import show_chart
from workbench.analysis.training_curves import gate_names
from workbench.answers.cards import JobCard, MetricPoint
from workbench.formatting.number_format import weight
from workbench.registry.database import reading

_PREFIX = "gate/"
_MOST = 6  # domains that a sentence names
_MARGIN = 0.01  # of a share: smaller differences do not count
Shares = Mapping[str, Mapping[int, list[float]]]  # domain -> step -> share of the backbone and of each part


def show_gates(job: JobCard, points: Sequence[MetricPoint], key: str) -> None:
    """The picture of a training of parts; nothing for any other job."""
    looks = looks_of(points)
    if not looks:
        return
    with reading() as session:
        names = gate_names(session, job.id)
    show_chart(gates_picture(looks, names), f"{key}_gates")
    st.caption("Means over the tokens of held-out text and over all blocks; the shares on a domain sum to 1.")


def looks_of(points: Sequence[MetricPoint]) -> Shares:
    """What was measured of the gates, by domain and step; an evaluation that is not whole yet is left out."""
    shares: dict[str, dict[int, dict[int, float]]] = {}
    for point in points:
        if point.name.startswith(_PREFIX):
            number, _, domain = point.name.removeprefix(_PREFIX).partition("/")
            shares.setdefault(domain, {}).setdefault(point.step, {})[int(number)] = point.value
    size = max((len(look) for steps in shares.values() for look in steps.values()), default=0)
    return {
        domain: {step: [look[n] for n in range(size)] for step, look in sorted(steps.items()) if len(look) == size}
        for domain, steps in shares.items()
    }


def gates_picture(looks: Shares, names: Sequence[str]) -> Chart:
    """A band for each, one picture for each domain beneath the other, so that a part has one colour everywhere."""
    figure = new_subplots(
        len(looks),
        1,
        list(looks),
        140 + 130 * len(looks),
        shared_xaxes=True,
        vertical_spacing=0.35 / max(3, len(looks)),
    )
    colours = in_order(names[1:])
    for row, steps in enumerate(looks.values(), 1):
        for place, name in enumerate(names):
            figure.add_scatter(
                x=list(steps),
                y=[look[place] for look in steps.values()],
                **named(name, "%{y:.2f}"),
                legendgroup=str(place),
                showlegend=row == 1,
                stackgroup=str(row),
                line=line_of(colours.expert(name), 1),
                mode="lines",
                row=row,
                col=1,
            )
        figure.update_yaxes(range=[0, 1], title="share", row=row, col=1)
    figure.update_xaxes(title="step (optimizer updates)", row=len(looks), col=1)
    figure.update_layout(
        margin_t=60,
        legend={"orientation": "h", "y": 1 + 28 / (72 + 130 * len(looks)), "yanchor": "bottom"},  # above the first name
    )
    return Chart(figure, _title(looks, names), _words(looks, names), _table(looks, names))


def _last(looks: Shares) -> dict[str, list[float]]:
    return {domain: list(steps.values())[-1] for domain, steps in looks.items() if steps}


def _title(looks: Shares, names: Sequence[str]) -> str:
    last = _last(looks)
    at_home = [(place, name) for place, name in enumerate(names) if name in last and len(last) > 1]
    if not at_home:
        return "Gate shares: a wider band is a larger weight"
    fits = [name for place, name in at_home if _has_more_say_at_home(last, name, place)]
    if all(_spread(last, place) < _MARGIN for place, _ in at_home):
        summary = "the gates do not distinguish the domains yet"
    elif len(at_home) == 1:
        summary = f"{at_home[0][1]} has {'more' if fits else 'no more'} weight on its own domain than elsewhere"
    elif len(fits) == len(at_home):
        summary = "each part weighs most on its own domain"
    else:
        most = "weighs most on its" if len(fits) == 1 else "weigh most on their"
        summary = f"{len(fits)} of {len(at_home)} parts {most} own domain"
    return f"Gate shares: {summary}; a wider band is a larger weight"


def _has_more_say_at_home(last: Mapping[str, Sequence[float]], home: str, place: int) -> bool:
    """Whether a part weighs more on its domain than on each other, by a margin that can be seen."""
    return all(look[place] + _MARGIN <= last[home][place] for domain, look in last.items() if domain != home)


def _spread(last: Mapping[str, Sequence[float]], place: int) -> float:
    shares = [look[place] for look in last.values()]
    return max(shares) - min(shares)


def _words(looks: Shares, names: Sequence[str]) -> str:
    shares_by_domain = [
        f"on {domain} {', '.join(f'{name} {weight(share)}' for name, share in zip(names, shares, strict=True))}"
        for domain, shares in _last(looks).items()
    ]
    steps = max((step for by_step in looks.values() for step in by_step), default=0)
    return f"Bands over the steps, for each domain. After {steps:,} steps: {listed(shares_by_domain, _MOST)}."


def _table(looks: Shares, names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"domain": domain, "step": step, **dict(zip(names, shares, strict=True))}
        for domain, steps in looks.items()
        for step, shares in steps.items()
    ]
