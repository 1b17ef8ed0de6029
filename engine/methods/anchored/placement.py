"""Beside each feed-forward network of the seed, which stays as it is, one of an expert, and a router between the two.

    y = (1 − s)·anchor(x) + s·network(x),  s = σ(row·x)

That is a softmax over two router rows of which the anchor's is zero: a softmax sees only differences of rows, so
whatever row the anchor has, subtracting it from all changes no output. An expert starts as its seed model.

Shapes: B rows, T positions, H the width of the model, N rows of text.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.errors import ModelError
from engine.events import Progress
from engine.files import ArtifactRef
from engine.methods.multi_expert_files import EXPERT_FILE
from engine.models.discovery import family_of, is_linear, takes_states_only
from engine.models.families import Place, ffn_places, layout_of, max_positions
from engine.models.likelihoods import decoder_of
from engine.models.multi_expert import AdditiveLayer, MultiExpertModel, Placement
from engine.models.rows import Rows, with_rows
from engine.models.shared_layers import first_layer
from engine.models.stored_tensors import StoredTensors
from engine.text.blocks import EvalSample

_DRAWN_ROWS, _DRAWN_TOKENS = 16, 64  # of the seed's own text
_BATCH = 4  # blocks read at once
_SEED = ""  # the key of rows that the seed computes as it is
_ROW = ".row"
_PHASE = "first rows of the routers"


class Anchored(nn.Module):
    """An expert's network and its row of the router, which is zero at first: both networks count alike."""

    in_float32 = ("row",)

    def __init__(self, network: nn.Module, width: int) -> None:
        super().__init__()
        self.network = network
        self.row = nn.Parameter(torch.zeros(width, device=next(network.parameters()).device))

    def forward(self, x: Tensor, anchor_out: Tensor) -> Tensor:
        """The change [B, T, H] of the anchor's output; the share is in float32, where a product may be in 16 bits."""
        share = torch.sigmoid((x.float() * self.row).sum(-1, keepdim=True))
        return share * (cast(Tensor, self.network(x)) - anchor_out)


class AnchoredLayer(AdditiveLayer):
    """The seed's network, and beside it those of experts."""

    def __init__(self, original: nn.Module, keys: Iterable[str], width: int) -> None:
        super().__init__(original)
        for key in keys:
            self.experts[key] = Anchored(copy.deepcopy(original), width)

    def change(self, out: Tensor, x: Tensor, key: str) -> Tensor:
        return cast(Tensor, self.experts[key](x, out))

    def map_of(self, key: str) -> nn.Module:
        """The network of this expert without the anchor."""
        return self.experts[key].network  # type: ignore[return-value]


class BesideNetwork(Placement):
    """Networks beside those of the seed; each starts as a copy of the seed's."""

    def insert(self, lm: Any, keys: Sequence[str]) -> dict[str, Any]:
        layers = {}
        for name, holder, attribute in network_places(lm):
            layers[name] = AnchoredLayer(getattr(holder, attribute), keys, lm.config.hidden_size)
            setattr(holder, attribute, layers[name])
        return layers

    def start_from(self, model: MultiExpertModel, texts: Mapping[str, Sequence[EvalSample]]) -> Iterator[Progress]:
        """Gives experts their first rows: the direction of the mean input of their text, less that of the seed's own.

        Text that is drawn from the seed stands for the public text of the paper: every owner of the seed has it.
        """
        batches = {
            key: [torch.from_numpy(ids_NT) for one in samples for ids_NT, _ in one.batches(_BATCH)]
            for key, samples in texts.items()
        }
        length = min(_DRAWN_TOKENS, max_positions(model.lm.config) - 1)
        total = sum(ids_NT.numel() for of in batches.values() for ids_NT in of) + 2 * _DRAWN_ROWS * (1 + length)
        done = 0
        own_NT = torch.empty(0)
        for ids_NT in _draw(model.lm, length):
            own_NT, done = ids_NT, done + _DRAWN_ROWS
            yield Progress(done, total, "tokens", _PHASE)
        batches = {_SEED: [*own_NT.split(_BATCH)]} | batches
        directions: dict[str, dict[str, Tensor]] = {}
        for key, of_key in batches.items():
            sums: dict[str, Tensor] = {}
            for ids_NT in of_key:
                _add_inputs(model, ids_NT, sums)
                done += ids_NT.numel()
                yield Progress(done, total, "tokens", _PHASE)
            directions[key] = {place: functional.normalize(sum_H, dim=0) for place, sum_H in sums.items()}
        for key in texts:
            for place, expert in model.own_modules(key):
                row_H = directions[key][place] - directions[_SEED][place]
                expert.row.data.copy_(row_H)  # type: ignore[operator]


def stored_rows(expert: ArtifactRef) -> Tensor:
    """The rows [L, H] of an expert's files, in order of layers."""
    state = StoredTensors(expert.folder / EXPERT_FILE)
    rows = {first_layer([name]): state[name] for name in state if name.endswith(_ROW)}
    return torch.stack([rows[layer].double() for layer in sorted(rows)])


@torch.no_grad()
def _add_inputs(model: MultiExpertModel, ids_NT: Tensor, sums: dict[str, Tensor]) -> None:
    """Adds the inputs of each layer's network to the sums, as the seed computes them."""

    def add(place: str, x: Tensor) -> None:
        sums[place] = sums.get(place, 0) + x.flatten(0, -2).double().sum(0)

    layers = {place: model.lm.get_submodule(place) for place in model.places}
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, place=place: add(place, inputs[0]))
        for place, layer in layers.items()
    ]
    try:
        with with_rows(Rows.all_to(_SEED, len(ids_NT))):
            decoder_of(model.lm)(input_ids=ids_NT.to(model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()


def _draw(lm: Any, length: int) -> Iterator[Tensor]:
    """Text that the seed writes, the same whenever it is drawn: [N, T] from the token that begins a text, ever longer.

    A configuration may name another vocabulary's tokens.
    """
    named = (lm.config.bos_token_id, lm.config.eos_token_id)
    begins = next((one for one in named if isinstance(one, int) and 0 <= one < lm.config.vocab_size), 0)
    ids_NT = torch.full((_DRAWN_ROWS, 1), begins)
    generator = torch.Generator().manual_seed(0)
    yield ids_NT
    for _ in range(length):
        with torch.no_grad(), with_rows(Rows.all_to(_SEED, _DRAWN_ROWS)):
            logits_NV = lm(input_ids=ids_NT.to(lm.device), use_cache=False).logits[:, -1]
        next_N1 = torch.multinomial(logits_NV.float().softmax(-1).cpu(), 1, generator=generator)
        ids_NT = torch.cat([ids_NT, next_N1], dim=1)
        yield ids_NT


def network_places(lm: Any) -> Iterator[Place]:
    """The whole feed-forward network of every layer.

    Raises ModelError where a layer's is not one module that maps each state on its own, or is a mixture of experts.
    """
    by_layer: dict[str, list[str]] = {}
    for name, holder, attribute in ffn_places(lm):
        if not is_linear(getattr(holder, attribute)):
            raise _unanchored(lm, "its networks are mixtures of experts already")
        layers = layout_of(lm).layers
        number, _, path = name.removeprefix(f"{layers}.").partition(".")
        by_layer.setdefault(f"{layers}.{number}", []).append(path)
    for layer, paths in by_layer.items():
        parts = [path.split(".") for path in paths]
        depth = next(
            (depth for depth, names in enumerate(zip(*parts, strict=False)) if len({*names}) > 1), len(parts[0]) - 1
        )
        name = ".".join([layer, *parts[0][:depth]])
        if not depth or not takes_states_only(lm.get_submodule(name)):
            raise _unanchored(lm, "its layers have no networks as modules of their own")
        holder_name, _, attribute = name.rpartition(".")
        yield name, lm.get_submodule(holder_name), attribute


def _unanchored(lm: Any, because: str) -> ModelError:
    return ModelError(
        f"A model of the family “{family_of(lm)}” cannot be an anchor: {because}.",
        "Choose another seed, or the method DEMix or LoRA.",
    )
