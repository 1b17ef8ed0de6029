"""Which expert was proposed as the parent of a new one, and how clearly (DEMix §6)."""

from __future__ import annotations

from collections.abc import Mapping

from ui.parts.gallery import show_picture
from ui.parts.pictures import GREY, Picture, name_axis, new_figure
from workbench.palette import COLOURS


def show_posterior(posterior: Mapping[str, float], parent: str, key: str) -> None:
    """The posterior behind a parent; nothing where it was named by a person."""
    if posterior:
        show_picture(parent_picture(posterior, parent), f"{key}_parent")


def parent_picture(posterior: Mapping[str, float], parent: str) -> Picture:
    """The mean posterior of each expert on held-out text of the new domain, the greatest first."""
    ranked = sorted(posterior.items(), key=lambda pair: -pair[1])
    figure = new_figure("expert", "mean posterior at block ends (share)")
    places = name_axis(figure, "x", [name for name, _ in ranked])
    colours = [COLOURS[0] if name == parent else GREY for name, _ in ranked]
    figure.add_bar(x=places, y=[share for _, share in ranked], marker_color=colours)
    told = "; ".join(f"{name} {share:.2f}" for name, share in ranked[:6])
    words = f"Bar chart of the posterior on held-out text of the new domain: {told}. The parent is {parent}."
    table = [{"expert": name, "posterior": share, "parent": name == parent} for name, share in ranked]
    return Picture(figure, "Why this parent: the tallest bar knew the new domain best", words, table)
