"""Weighted average of the parameters of several models (BTM, Li et al. 2022, §3.3).

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
    """Yields progress for each model, then one decoder with the weighted average of all parameters.

    `models` maps names to functions that load a plain decoder; at most two are in memory at once, besides the sum in
    double precision. Weights are normalised; models of weight 0 are not loaded. Raises ModelError when architectures
    differ.
    """
    names = [name for name in models if weights[name] > 0]
    total_weight = math.fsum(weights[name] for name in names)
    first, total_by_name = models[names[0]](), dict[str, Tensor]()
    for number, name in enumerate(names):
        lm = models[name]() if number else first
        _require_same(first, lm, names[0], name)
        for key, tensor in lm.state_dict().items():
            part = tensor.double() * (weights[name] / total_weight)
            total_by_name[key] = total_by_name[key] + part if number else part
        yield Progress(number + 1, len(names), "models", f"averaging {name}")
    with torch.no_grad():
        for key, tensor in first.state_dict().items():
            tensor.copy_(total_by_name[key])
    yield first


def _require_same(first: Any, second: Any, first_name: str, second_name: str) -> None:
    first_shape, second_shape = _shape(first), _shape(second)
    keys = {*first_shape, *second_shape}
    different = sorted(key for key in keys if first_shape.get(key) != second_shape.get(key))
    if different:
        key = different[0]
        raise ModelError(
            f"Only models of one architecture can be averaged: “{first_name}” has {key} {first_shape.get(key)}, "
            f"“{second_name}” has {second_shape.get(key)}.",
            "Average experts of the same seed model, or mix them instead.",
        )


def _shape(lm: Any) -> dict[str, Any]:
    return {key: value for key, value in lm.config.to_dict().items() if key not in _NOT_SHAPE}
