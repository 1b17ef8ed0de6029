"""Several experts that differ only in their feed-forward networks, as one mixture-of-experts model of transformers.

In each layer the model adds the outputs of all networks with fixed weights, or of the k that a router chooses. Without
routers they are zeros, so they give every network the share 1/E; weights that differ are in the networks' last maps.
This is a mixture of the networks' outputs, not of the probabilities of the next token that a mixture computes.

Sources: https://github.com/arcee-ai/mergekit/blob/main/docs/moe.md
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.errors import ModelError
from engine.events import Progress
from engine.methods.moe.upcycle import counterpart_tensor
from engine.models.discovery import family_of
from engine.models.families import one_at_a_time
from engine.models.stored_tensors import is_same

# the family with the same attention, norms and positions, and how it counts its networks
_COUNTERPARTS: dict[str, tuple[str, str]] = {
    "llama": ("mixtral", "num_local_experts"),
    "mistral": ("mixtral", "num_local_experts"),
    "qwen3": ("qwen3_moe", "num_experts"),
    "olmo2": ("flex_olmo", "num_experts"),
}
_NOT_SHAPE = ("model_type", "architectures", "transformers_version", "dtype", "layer_types", "_name_or_path")
_NETWORKS = tuple(f"mlp.{one}_proj.weight" for one in ("gate", "up", "down"))
_ROUTER = "mlp.gate.weight"
_OVER_CHOSEN = "norm_topk_prob"  # whether the shares of the chosen networks are scaled to sum 1
_NUM_CHECKED = 8  # tokens with which the new model is compared with the first
_MIX = "Export each expert on its own, or mix them here."


def as_moe(models: Mapping[str, Callable[[], Any]], weights: Mapping[str, float]) -> Iterator[Progress | Any]:
    """Yields progress for each expert, then the model; at most two experts are in memory in addition.

    `models` maps names to functions that load a plain decoder. Weights are normalised; experts of weight 0 are left
    out. Raises ModelError for a family without a counterpart, and for experts that differ in more than their networks.
    """
    names = [name for name in models if weights[name] > 0]
    if len(names) < 2:
        raise ModelError("A model of several experts needs two with a weight above 0.", "Switch another expert on.")
    total = math.fsum(weights[name] for name in names)
    scales = {name: len(names) * weights[name] / total for name in names}
    yield from _assembled(models, scales, len(names))


def as_sparse_moe(
    models: Mapping[str, Callable[[], Any]], num_active: int, *, of_all: bool = False, average_rest: bool = False
) -> Iterator[Progress | Any]:
    """As `as_moe`, but in each layer a token goes through `num_active` experts; `set_routers` says which.

    Their shares are the softmax over these, so that with one expert it is 1; `of_all`: they are those of a softmax over
    all experts, as in FlexOlmo, and sum to less. Mixtral has only the first. `average_rest`: what differs besides the
    networks is averaged.
    """
    for event in _assembled(models, dict.fromkeys(models, 1.0), num_active, average_rest):
        if of_all and not isinstance(event, Progress) and hasattr(event.config, _OVER_CHOSEN):
            for one in (event.config, *(module for module in event.modules() if hasattr(module, _OVER_CHOSEN))):
                setattr(one, _OVER_CHOSEN, False)
        yield event


@torch.no_grad()
def set_routers(moe: Any, routers_LEH: Tensor) -> None:
    """Gives each layer [L] its router [E, H], in the precision of the model."""
    routers = [tensor for name, tensor in moe.state_dict().items() if name.endswith(_ROUTER)]
    for router, new_EH in zip(routers, routers_LEH, strict=True):
        router.copy_(new_EH)


def _assembled(
    models: Mapping[str, Callable[[], Any]], scales: Mapping[str, float], num_active: int, average_rest: bool = False
) -> Iterator[Progress | Any]:
    names = [*scales]
    first = models[names[0]]()
    moe = _empty(first, len(names), num_active)
    _copy_shared(moe, first.state_dict())
    for number in range(len(names)):
        _put(moe, number, first.state_dict(), 1.0)
    _require_same_logits(first, moe)  # while all networks and routers are alike
    shared = _rest(first.state_dict())
    sums = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in shared.items() if average_rest}
    for number, name in enumerate(names):
        state = models[name]().state_dict() if number else first.state_dict()
        _require_same_shared(shared, state, names[0], name, only_shapes=average_rest)
        for place, sum_of in sums.items():
            sum_of += state[place]
        _put(moe, number, state, scales[name])
        yield Progress(number + 1, len(names), "models", f"adding {name}")
    if average_rest:
        _copy_shared(moe, {name: sum_of / len(names) for name, sum_of in sums.items()})
    yield moe.eval()


def _rest(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All but the networks."""
    return {name: tensor for name, tensor in state.items() if ".mlp." not in name}


@one_at_a_time()
def _empty(lm: Any, num_experts: int, num_active: int) -> Any:
    """A model of the counterpart's family with the shape of `lm`; its tensors are not set."""
    from transformers import AutoConfig, AutoModelForCausalLM

    family = family_of(lm)
    if family not in _COUNTERPARTS:
        raise ModelError(
            f"Experts of the family “{family}” cannot become one mixture-of-experts model: transformers has none with "
            f"its attention and positions. Supported families: {', '.join(_COUNTERPARTS)}.",
            _MIX,
        )
    counterpart, count = _COUNTERPARTS[family]
    shape = {name: value for name, value in lm.config.to_dict().items() if name not in _NOT_SHAPE}
    if any(kind != "full_attention" for kind in getattr(lm.config, "layer_types", None) or ()):
        raise ModelError(
            f"A model with sliding attention in some layers has no counterpart of the family “{counterpart}”.", _MIX
        )
    shape |= {count: num_experts, "num_experts_per_tok": num_active, _OVER_CHOSEN: True}
    config = AutoConfig.for_model(counterpart, **shape, moe_intermediate_size=lm.config.intermediate_size)
    return AutoModelForCausalLM.from_config(config, dtype=lm.dtype).eval()


@torch.no_grad()
def _copy_shared(moe: Any, state: Mapping[str, Tensor]) -> None:
    """Copies all but the networks, and zeros as routers; raises ModelError for a tensor that has no place."""
    rest = {name for name in state if not name.endswith(_NETWORKS)}
    for name, tensor in moe.state_dict().items():
        if name.endswith(_ROUTER):
            tensor.zero_()
        elif ".mlp.experts." not in name:
            tensor.copy_(state[name])
            rest.remove(name)
    if rest:
        raise ModelError(f"A mixture-of-experts model of this family has no place for “{min(rest)}”.", _MIX)


@torch.no_grad()
def _put(moe: Any, number: int, state: Mapping[str, Tensor], scale: float) -> None:
    """Copies the networks of one expert; the last maps are multiplied by its weight times the number of experts."""
    for name, tensor in moe.state_dict().items():
        if name.endswith("mlp.experts.gate_up_proj"):
            tensor[number].copy_(counterpart_tensor(state, name))
        elif name.endswith("mlp.experts.down_proj"):
            tensor[number].copy_(counterpart_tensor(state, name) * scale)


def _require_same_shared(
    shared: Mapping[str, Tensor], state: Mapping[str, Tensor], first: str, name: str, *, only_shapes: bool = False
) -> None:
    others = _rest(state)
    for key in sorted(shared.keys() | others.keys()):
        is_in_both = key in shared and key in others
        if is_in_both and only_shapes and shared[key].shape == others[key].shape:
            continue
        if not is_in_both or not is_same(shared[key], others[key]):
            raise ModelError(
                f"“{first}” and “{name}” differ in “{key}”: one model of several experts needs experts that differ "
                "only in their feed-forward networks, such as DEMix experts of one base.",
                "Export their average instead, or each on its own; to join them, average the rest (--average-rest).",
            )


@torch.no_grad()
def _require_same_logits(lm: Any, moe: Any) -> None:
    """Compares the model with one of its experts in every place. What a configuration says otherwise shows here."""
    ids = torch.arange(_NUM_CHECKED)[None] % lm.config.vocab_size
    expected, actual = lm.eval()(input_ids=ids).logits, moe(input_ids=ids).logits
    tolerance = max(1e-3, 8 * torch.finfo(lm.dtype).eps)  # sums of experts round in the stored precision
    largest = max(1.0, float(expected.abs().max()))  # what rounds is large: logits are sums, and some of them near 0
    if not float((expected - actual).abs().max()) <= tolerance * largest:
        raise ModelError(
            f"The family “{family_of(moe)}” computes otherwise than this model of the family “{family_of(lm)}”.", _MIX
        )
