"""The playground of the API server, in a frame and as a link."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from ui.addresses import STUDIO_HOST, playground_beside
from ui.playground.address import NAMES
from ui.present.pages import PLAYGROUND
from ui.studio.job_views.pending_jobs import empty_until_trained
from ui.studio.shared.health import api_signs
from ui.widgets.address import query_at_opening
from ui.widgets.elements.components import follow_frame
from ui.widgets.notices import empty
from ui.widgets.page_head import show_head
from workbench.registry import experts
from workbench.registry.database import reading
from workbench.settings import get_settings

FRAME_HEIGHT = 640  # until studio.css gives it the rest of the window


def show() -> None:
    """Draws the page."""
    right = show_head(PLAYGROUND)
    settings = get_settings()
    api, _ = api_signs(settings)
    if not api.is_well:
        empty(api.sentence, api.next_step)
        st.button("Retry", icon=":material/refresh:")
        return
    with reading() as session:
        has_models = bool(experts.list_looks(session))
    if not has_models:
        empty_until_trained("There is no model to generate with yet.", "Train a DEMix model.")
        return
    requested = urlencode([(name, value) for name in NAMES for value in query_at_opening().get(name, ())])
    address = playground_beside(settings, st.context.headers.get("host") or STUDIO_HOST)
    address += f"?{requested}" if requested else ""
    right.link_button("Open in a new window", address, icon=":material/open_in_new:")
    follow_frame(".st-key-playground")
    with st.container(key="playground"):
        framed = f"{address}{'&' if '?' in address else '?'}__theme={st.context.theme.type or 'light'}"
        st.iframe(framed, height=FRAME_HEIGHT, alt="The playground: panes side by side, each with its own model")


if __name__ == "__main__":
    show()
