"""One model of several: the weighted average of their parameters (BTM, Li et al. 2022, §3.3).

Unlike a mixture it costs one forward pass, and its weights are fixed for every text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelError
from engine.events import Progress

_NOT_SHAPE = ("_name_or_path", "architectures", "dtype", "transformers_version", "use_cache")


def average(models: Mapping[str, Callable[[], Any]], weights: Mapping[str, float]) -> Iterator[Progress | Any]:
    """Progress for each model, then one decoder whose parameters are the weighted average of all.

    `models` read a plain decoder each, by its name; no more than two are in memory at once, beside the sum in double
    precision. Weights count by their proportions; what weighs nothing is not read. Raises ModelError when two models
    are not of one architecture.
    """
    taking_part = [name for name in models if weights[name] > 0]
    whole = math.fsum(weights[name] for name in taking_part)
    first, total_by_name = models[taking_part[0]](), dict[str, Tensor]()
    for number, name in enumerate(taking_part):
        lm = models[name]() if number else first
        _require_same(first, lm, taking_part[0], name)
        for key, tensor in lm.state_dict().items():
            part = tensor.double() * (weights[name] / whole)
            total_by_name[key] = total_by_name[key] + part if number else part
        yield Progress(number + 1, len(taking_part), "models", f"averaging {name}")
    with torch.no_grad():
        for key, tensor in first.state_dict().items():
            tensor.copy_(total_by_name[key])
    yield first


def _require_same(one: Any, other: Any, name: str, other_name: str) -> None:
    mine, theirs = _shape(one), _shape(other)
    different = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
    if different:
        key = different[0]
        raise ModelError(
            f"Models must be of one architecture to be averaged, but “{name}” has {key} {mine.get(key)} and "
            f"“{other_name}” {theirs.get(key)}.",
            "Average experts that began from the same seed, or mix them instead.",
        )


def _shape(lm: Any) -> dict[str, Any]:
    return {key: value for key, value in lm.config.to_dict().items() if key not in _NOT_SHAPE}
