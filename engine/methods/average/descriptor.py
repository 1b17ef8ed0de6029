"""One model whose parameters are the weighted mean of several experts' (BTM, Li et al. 2022, §3.3)."""

from __future__ import annotations

from dataclasses import replace

from engine.methods.demix import descriptor as demix

METHOD = replace(
    demix.METHOD,
    name="average",
    title="average",
    sentence="one model of several: the weighted mean of their parameters",
    paper="Li et al. 2022, §3.3",
    only_expert="average",
    is_trainable=False,
    is_joint=False,
    method_of_copy=demix.METHOD.name,
    config=None,
    imports="",
)
