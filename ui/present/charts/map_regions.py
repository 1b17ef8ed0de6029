"""The areas of a map that became domains, drawn around their documents in the colour of the expert trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ui.present.charts.colours import Looks
from workbench.formatting.number_format import full_label, label
from workbench.formatting.palette import GREY
from workbench.registry.clusters.cluster_documents import MapRegion


def draw_regions(figure: Any, regions: Sequence[MapRegion], looks: Looks) -> None:
    """An outline for each area with the name of its expert; grey and dashed while there is none."""
    for region in regions:
        colour = looks.expert(region.expert).colour if region.expert else GREY
        name = region.expert or f"{region.domain} (no expert yet)"
        for corners in region.areas:
            figure.add_shape(
                type="path",
                path=f"M {' L '.join(f'{x},{y}' for x, y in corners)} Z",
                line={"color": colour, "width": 3, "dash": None if region.expert else "dash"},
                name=full_label(name),
            )
        x, y = max(region.areas[0], key=lambda corner: corner[1])
        style = {"font": {"size": 13, "color": "#1f1d1a"}, "bgcolor": "rgba(255,253,248,0.86)", "bordercolor": colour}
        figure.add_annotation(text=label(name, 32), x=x, y=y, showarrow=False, yshift=12, borderpad=2, **style)


def describe_regions(regions: Sequence[MapRegion]) -> str:
    """What the outlines are; empty without any."""
    names = [region.expert for region in regions if region.expert]
    if not regions:
        return ""
    waiting = [region.domain for region in regions if not region.expert]
    of_experts = f"Outlined: what {', '.join(names)} trained on. " if names else ""
    return of_experts + (f"Dashed, without an expert yet: {', '.join(waiting)}." if waiting else "")
