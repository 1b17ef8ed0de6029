"""The layout of a Hugging Face decoder from its modules: layers, feed-forward networks and attention.

A layer's children either mix positions (attention, recurrent and convolutional mixers) or treat every position alike.
The first take a mask, positions or a cache when they are called, the second nothing of the kind. Linear maps of the
second are the feed-forward maps; those of attention are its maps. Maps of recurrent mixers are neither: their kernels
read weights without calling the maps. A router and its experts are one place as a whole, the module that holds both.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from engine.errors import ModelError


@dataclass(frozen=True)
class DecoderLayout:
    """The dotted path from the model to its list of layers, and from each layer to its maps in FFN and attention.

    A mixture of experts is one place: its networks and their router belong together.
    """

    layers: str
    ffn: tuple[tuple[str, ...], ...]  # by layer
    attention: tuple[tuple[str, ...], ...]

    @property
    def is_uniform(self) -> bool:
        """Whether all layers have the same maps."""
        return len({*self.ffn}) <= 1 and len({*self.attention}) <= 1


def discover(lm: nn.Module) -> DecoderLayout:
    """The layout of any causal LM of transformers; raises ModelError where its modules do not show one."""
    layers = _list_of_layers(lm)
    parts = [_parts_of(layer) for layer in lm.get_submodule(layers).children()]
    return DecoderLayout(layers, tuple(ffn for ffn, _ in parts), tuple(attention for _, attention in parts))


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear map and nothing else; most subclasses of nn.Linear compute something else."""
    from transformers.pytorch_utils import Conv1D

    return type(module) in (nn.Linear, Conv1D) or type(module).__name__ in _ALSO_LINEAR


def is_recurrent(module: nn.Module) -> bool:
    """Whether a module holds a recurrent or convolutional mixer, whose state is not a list of keys and values."""
    return any(isinstance(inner, nn.Conv1d) or type(inner).__name__ in _ALSO_RECURRENT for inner in module.modules())


def keeps_other_states(lm: nn.Module) -> bool:
    """Whether a cache must know the configuration: for recurrent layers, and for the keys of indexers."""
    return is_recurrent(lm) or any(_INDEXER.search(f"{name}.") for name, _ in lm.named_modules())


def family_of(lm: Any) -> str:
    """The name of a model's family, for messages."""
    return str(getattr(getattr(lm, "config", None), "model_type", type(lm).__name__))


_ALSO_LINEAR = ("FalconLinear", "FasterLinear", "FasterConv1D")  # a linear map by another product
_ALSO_RECURRENT = ("xLSTMLayer", "RwkvSelfAttention")  # without a convolution
_INDEXER = re.compile(r"(^|\.)indexer\.")  # its maps choose positions by top-k, so they have no gradient
_MIXING = re.compile(  # arguments of modules that mix positions
    r"attention_mask|past_key_values?|layer_past|cache_(params|position)|position_(ids|embeddings)|"
    r"encoder_hidden_states|state"
)
_MIXING_NAME = re.compile(r"att(n|ention)?(_|$)|mixer|mamba")


def _list_of_layers(lm: nn.Module) -> str:
    """The path of the list of decoder layers: the only outermost list of modules with linear maps."""
    lists = [(name, one) for name, one in lm.named_modules() if isinstance(one, nn.ModuleList) and _holds_layers(one)]
    outer = [pair for pair in lists if not any(pair[0].startswith(f"{name}.") for name, _ in lists)]
    num_layers = getattr(getattr(lm, "config", None), "num_hidden_layers", None)
    if len(outer) > 1:
        outer = [pair for pair in outer if len(pair[1]) == num_layers]
    if len(outer) != 1:
        count = "no list" if not outer else f"{len(outer)} lists"
        problem = f"A model of the family “{family_of(lm)}” is not supported: it has {count} of decoder layers."
        raise ModelError(problem, "Choose a seed with one list of layers.")
    name: str = outer[0][0]
    return name


def _holds_layers(modules: nn.ModuleList) -> bool:
    members = list(modules.children())
    return bool(members) and all(not is_linear(member) and _has_weights(member) for member in members)


def _has_weights(member: nn.Module) -> bool:
    return any(is_linear(inner) or _stacks_experts(inner) for inner in member.modules())


def _parts_of(layer: nn.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    ffn: list[str] = []
    attention: list[str] = []
    for name, child in layer.named_children():
        if not _mixes_positions(name, child):
            ffn += _feed_forward(name, child)
        elif not is_recurrent(child):
            paths = [_join(name, path) for path, inner in child.named_modules() if is_linear(inner)]
            attention += [path for path in paths if not _INDEXER.search(path)]
    return tuple(ffn), tuple(attention)


def _mixes_positions(name: str, child: nn.Module) -> bool:
    takes = inspect.signature(child.forward).parameters
    if [*takes][:1] != ["x"] and any(map(_MIXING.fullmatch, takes)):
        return True
    return bool(_MIXING_NAME.search(name)) and len(takes) > 1 and not is_linear(child)


def _feed_forward(name: str, child: nn.Module) -> Iterator[str]:
    """Linear maps, or the modules that hold a router and its experts."""
    mixtures = {path.rpartition(".")[0] for path, inner in child.named_modules() if path and _is_experts(inner)}
    if _is_experts(child):  # next to its router in the layer itself
        mixtures.add("")
    outermost = [
        mixture
        for mixture in mixtures
        if not any(mixture != other and _is_within(mixture, other) for other in mixtures)
    ]
    yield from (_join(name, path) for path in sorted(outermost))
    for path, inner in child.named_modules():
        if is_linear(inner) and not any(_is_within(path, one) for one in outermost):
            yield _join(name, path)


def takes_states_only(module: nn.Module) -> bool:
    """Whether a module is called with one tensor."""
    parameters = inspect.signature(module.forward).parameters.values()
    return sum(parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) for parameter in parameters) == 1


def _is_experts(module: nn.Module) -> bool:
    if isinstance(module, nn.ModuleList):
        return len(module) > 1 and all(_has_weights(one) for one in module)
    return _stacks_experts(module)


def _stacks_experts(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv1d):
        return False
    return any(parameter.ndim == 3 for parameter in module.parameters(recurse=False))


def _is_within(path: str, holder: str) -> bool:
    return not holder or path == holder or path.startswith(f"{holder}.")


def _join(name: str, path: str) -> str:
    return f"{name}.{path}" if path else name


def require_own_layers(lm: Any, layout: DecoderLayout) -> None:
    """Raises ModelError for a model whose layers share weights: an expert in one would also be in the other."""
    seen: set[int] = set()
    for layer in lm.get_submodule(layout.layers).children():
        own = {id(parameter) for parameter in layer.parameters()}
        if own & seen:
            problem = f"A model of the family “{family_of(lm)}” is not supported: its layers share weights."
            raise ModelError(problem, "Choose a seed whose layers have weights of their own.")
        seen |= own


class RouterLosses:
    """The logits of a model's routers in one forward pass."""

    def __init__(self, lm: Any) -> None:
        self._config, self.logits_NX = lm.config, list[Tensor]()

    def loss(self) -> Tensor | float:
        """The weighted loss that is least when every network has as many tokens; 0 where nothing was routed."""
        if not self.logits_NX:
            return 0.0
        from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

        layers: Any = tuple(self.logits_NX)
        loss = load_balancing_loss_func(layers, self._config.num_local_experts, self._config.num_experts_per_tok)
        return loss * float(self._config.router_aux_loss_coef)


@contextmanager
def router_losses(lm: Any) -> Iterator[RouterLosses]:
    """Collects the logits of the routers within; a model without routers has none."""
    losses = RouterLosses(lm)
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, out: losses.logits_NX.append(out[0]))
        for module in routers(lm)
    ]
    try:
        yield losses
    finally:
        for hook in hooks:
            hook.remove()


def routers(lm: nn.Module) -> list[nn.Module]:
    """The routers of a Mixtral model, layer by layer; of any other none."""
    if family_of(lm) != "mixtral":
        return []
    from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

    return [module for module in lm.modules() if isinstance(module, MixtralTopKRouter)]
