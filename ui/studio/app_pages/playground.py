"""The playground of the API server, in a frame and as a link."""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from ui.addresses import STUDIO_HOST, playground_address
from ui.present.pages import PLAYGROUND, TRAIN
from ui.present.text.formatting import plain
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.shared.health import api_signs
from ui.widgets.notices import empty
from ui.widgets.page_head import show_head
from workbench.registry import experts
from workbench.registry.database import reading
from workbench.settings import get_settings

FRAME_HEIGHT = 1000


def show() -> None:
    """Draws the page."""
    show_head(PLAYGROUND)
    settings = get_settings()
    api, _ = api_signs(settings)
    if not api.is_well:
        empty(api.sentence, api.next_step)
        st.button("Retry", icon=":material/refresh:")
        return
    if not _is_anybody_there():
        empty_until(
            "train-joint", "There is no model to generate with yet.", "Train a DEMix model.", TRAIN.script, "Train"
        )
        return
    address = playground_address(settings, _name_in_browser())
    st.link_button("Open in a new window", address, icon=":material/open_in_new:")
    st.caption(plain("Two mixtures or experts side by side, each generating its own text."))
    st.iframe(address, height=FRAME_HEIGHT, alt="The playground: panes side by side, each with its own model")


def _name_in_browser() -> str:
    """The name by which the browser came here."""
    return urlsplit(f"//{st.context.headers.get('host', '')}").hostname or STUDIO_HOST


def _is_anybody_there() -> bool:
    with reading() as session:
        return bool(experts.list_experts(session))


if __name__ == "__main__":
    show()
