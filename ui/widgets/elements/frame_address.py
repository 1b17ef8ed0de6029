"""The address of a framed page, kept in the studio's own: a reload or a link finds the frame as it was."""

from __future__ import annotations

from ui.widgets.elements.component import unseen_component

_draw = unseen_component("frame_address")


def follow_frame(around: str) -> None:
    """Draws nothing. `around` is the CSS selector of what the frame is in."""
    _draw(key="frame_address", data={"around": around})
