"""The compute and speed of a training as text, and the tokens that it has seen."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from ui.present.text.formatting import pluralize
from workbench.formatting.number_format import flops_per_second

if TYPE_CHECKING:
    from workbench.questions.costs import MixtureCosts

_COUNTED = (
    "Operations are those of the matrix products by the formula of Narayanan et al. (2021), without a second forward "
    "pass: activations are kept."
)
COUNTED_AS = f"{_COUNTED} DEMix's table 2 counts one, so its figures are a third larger for the same work."


def operations(count: float) -> str:
    """A number of operations in the unit a person would choose: `812 MFLOPs`, `3.4 TFLOPs`."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000:
            return f"{count:.3g} {unit}FLOPs"
        count /= 1000
    return f"{count:,.4g} PFLOPs"


def describe_throughput(measured: Mapping[str, Any]) -> str:
    """`9,800 tokens/s and 12 GFLOP/s over 300 updates; an update costs 3.4 GFLOPs.`"""
    speed = f"{measured['tokens_per_second']:,.0f} tokens/s"
    if not measured["flops_per_update"]:
        return f"{speed} over {measured['num_steps']:,} updates."
    update, token = operations(measured["flops_per_update"]), operations(measured["flops_per_token"])
    return (
        f"{speed} and {flops_per_second(measured['flops_per_second'])} over {measured['num_steps']:,} updates; "
        f"an update costs {update}, a token {token}."
    )


def counting_note(costs: MixtureCosts) -> str:
    """How the operations of these costs were counted."""
    return _COUNTED if any(costs.num_parts) else COUNTED_AS


def describe_costs(costs: MixtureCosts) -> str:
    """The cost of a token (`workbench.questions.costs`), in two sentences."""
    if all(costs.num_parts):
        return _describe_mode_costs(costs)
    num_experts = pluralize(costs.num_experts, "expert")
    text = (
        f"A token in a context of {costs.context:,} costs one expert {operations(costs.forward)}; this mixture "
        f"of {num_experts} costs {operations(costs.mixture)}, one forward pass each."
    )
    if any(costs.num_parts):
        return f"{text} The cost of training is shown only where all experts have parts, or none has."
    return (
        f"{text} Training costs {operations(costs.training)} per token, as the dense model does; adding an expert "
        f"with everything else frozen costs {operations(costs.adapting)}."
    )


def _describe_mode_costs(costs: MixtureCosts) -> str:
    first, context = costs.num_parts[0], costs.context
    text = f"A token in a context of {context:,} costs {operations(costs.forward)}: one forward pass of one model"
    if costs.num_experts > 1:
        text += f", that of the first expert; the mixture of {costs.num_experts} costs {operations(costs.mixture)}"
    composing = {what: operations(count) for what, count in (costs.composing or {}).items()}
    both = f", all {first} at once {composing['experts']}" if first > 1 else ""
    return (
        f"{text}. Its gates mix the backbone and {pluralize(first, 'part')} inside. A token of training costs, forward "
        f"and backward in this context: one part next to the frozen backbone {operations(costs.adapting)}{both}, "
        f"only the gates {composing['gates']}; the full backbone without parts {operations(costs.training)}."
    )


_SIZES = ("block_size", "sequences_per_domain", "accumulate")


def tokens_per_step(spec: Mapping[str, Any]) -> int:
    """The tokens of one update over all its domains; 0 for a job that trains nothing."""
    training = spec.get("training") or {}
    return int(prod(training.get(size, 0) for size in _SIZES)) * len(spec.get("domains", ["its one domain"]))
