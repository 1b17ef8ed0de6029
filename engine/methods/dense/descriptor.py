"""One model that all domains train: the baselines Dense and Dense (balanced) of DEMix (§4.2)."""

from __future__ import annotations

from dataclasses import replace

from engine.methods.demix import descriptor as demix

_DENSE = replace(
    demix.METHOD,
    name="dense",
    title="dense",
    sentence="one model for all domains, text drawn as much as there is",
    paper="Gururangan et al. 2021, §4.2",
    only_expert="dense",
    balanced=False,
    imports="model",
    method_of_copy=demix.METHOD.name,
    config=None,
)
METHOD = (
    _DENSE,
    replace(
        _DENSE,
        name="dense-balanced",
        title="dense (balanced)",
        sentence="one model for all domains, equal text of each",
        balanced=True,
        imports="",
    ),
)
