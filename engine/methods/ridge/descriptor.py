"""Stored experts as one sparse model, whose routers are solved and not trained (DUME)."""

from __future__ import annotations

from dataclasses import replace

from engine.methods.moe import descriptor as moe

METHOD = replace(
    moe.METHOD,
    name="ridge",
    title="ridge router",
    sentence="one model of several experts: routers in closed form send each token to some of their networks",
    paper="DUME",
    only_expert="ridge",
    is_trainable=False,
    is_joint=False,
    config=None,
)
