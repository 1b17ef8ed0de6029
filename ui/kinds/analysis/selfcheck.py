"""Checking the engine's laws; its button is on the page Self-check."""

from __future__ import annotations

from ui.kinds.screen import ResultLink, Screen
from ui.present.pages import SELFCHECK
from ui.present.text.verdicts import summary

SCREEN = Screen(
    command=lambda _: "workbench selfcheck",
    sentence=summary,
    link=ResultLink(SELFCHECK, "See the laws"),
    form=None,
)
