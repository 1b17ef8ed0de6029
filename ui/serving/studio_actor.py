"""Who uses the studio: looked up anew in each run of a script, so that a revoked user is out at once."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from ui.serving.login import Login
from workbench.access.actor import NOBODY, Actor
from workbench.settings import Settings


def studio_actor(settings: Settings) -> Callable[[], Actor]:
    """The user whose browser opened the web socket of the script that runs; nobody outside of one."""
    login = Login(settings)

    def actor() -> Actor:
        headers = {name.lower(): value for name, value in st.context.headers.items()}
        return login.actor_of(headers, st.context.cookies) or NOBODY

    return actor
