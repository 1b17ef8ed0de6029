"""The address of a framed page, kept in the studio's own: a reload or a link finds the frame as it was."""

from __future__ import annotations

import streamlit as st

# The frame says its address whenever it changes (ui/playground/page.js). An entry in the browser's history is the
# frame's own, which *back* takes back; this page's address follows it without one.
_JS = """
export default function (component) {
  const follow = (event) => {
    const frame = document.querySelector(`${component.data.around} iframe`);
    if (!frame || event.source !== frame.contentWindow || typeof event.data?.playground !== "string") return;
    const query = event.data.playground;
    history.replaceState(history.state, "", location.pathname + (query ? `?${query}` : ""));
  };
  window.addEventListener("message", follow);
  return () => window.removeEventListener("message", follow);
}
"""

_draw = st.components.v2.component("frame_address", html="", js=_JS)


def follow_frame(around: str) -> None:
    """Draws nothing. `around` is the CSS selector of what the frame is in."""
    _draw(key="frame_address", data={"around": around})
