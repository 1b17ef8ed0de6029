"""DEMix layers (Gururangan et al. 2021, §3): every FFN of a decoder becomes one FFN per expert; the rest is shared.

Experts may be elsewhere. In the paper's baseline +Domain-Token (§4.2) every weight is shared, and an expert is one
learned vector before the sequence. With LoRA every weight is the seed's, and an expert is a change of low rank beside
each linear map of attention and FFNs. Rows, caches, training and mixing are the same for all.

The surgery replaces only the *linear maps* inside each layer, so the model's own forward pass stays as it is. Which
expert a row of the batch takes is said per call, by spans of rows, so one batch can carry many domains in training and
E copies of one prompt in mixing: shared weights are read once, and no request leaves a trace in the model.

Shapes: B rows, T positions, V vocabulary, E experts, D width of the embeddings.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Never

import torch
from torch import Tensor, nn

from engine.config import ExpertsIn
from engine.errors import ModelError
from engine.models.families import ffn_places, linear_places, max_positions
from engine.models.flops import Shape, training_flops
from engine.models.likelihoods import TokenScores, token_scores
from engine.models.lora import adapters_of, merge


@dataclass(frozen=True)
class Rows:
    """The experts of a batch: `num_rows[i]` consecutive rows take expert `keys[i]`."""

    keys: tuple[str, ...]
    num_rows: tuple[int, ...]

    @classmethod
    def one_each(cls, keys: Sequence[str]) -> Rows:
        """One row for each expert: E copies of one prompt."""
        return cls(tuple(keys), (1,) * len(keys))

    @classmethod
    def all_to(cls, key: str, num_rows: int) -> Rows:
        """Every row takes the same expert."""
        return cls((key,), (num_rows,))


_rows: ContextVar[Rows] = ContextVar("rows")


@contextmanager
def _routed(rows: Rows) -> Iterator[None]:
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


_STACKED_BYTES = 16 << 20  # of one map of all experts: a copy that the backward pass keeps


class ExpertLinear(nn.Module):
    """One linear map per expert in the place of a single one; the rows of the call decide which is used."""

    def __init__(self, original: nn.Module, keys: Iterable[str]) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({key: copy.deepcopy(original) for key in keys})

    def forward(self, x: Tensor) -> Tensor:
        """x is [B, T, in], or [B·T, in] from a family that flattens; so is the answer."""
        rows = _rows.get()
        if len(rows.keys) == 1:
            return self.experts[rows.keys[0]](x)  # type: ignore[no-any-return]
        if torch.is_grad_enabled() and self._stacks(rows):
            return self._together(x, rows)
        per_row = x.shape[0] // sum(rows.num_rows)
        # split, not slices: its backward pass is one concatenation instead of E padded copies
        parts = x.split([count * per_row for count in rows.num_rows])
        return torch.cat([self.experts[key](part) for key, part in zip(rows.keys, parts, strict=True)])

    def whole(self, key: str) -> nn.Module:
        """What stands in its place when only this expert is left."""
        return self.experts[key]

    def _stacks(self, rows: Rows) -> bool:
        """Whether every expert has as many rows, and the weights of all are small enough to copy at each call."""
        weights: list[Any] = [getattr(self.experts[key], "weight", None) for key in rows.keys]
        if weights[0] is None:  # a mixture of experts in the place of a map
            return False
        return len(set(rows.num_rows)) == 1 and sum(weight.nbytes for weight in weights) <= _STACKED_BYTES

    def _together(self, x: Tensor, rows: Rows) -> Tensor:
        """The same by one batched product: training copies fewer activations this way."""
        maps: list[Any] = [self.experts[key] for key in rows.keys]
        weight = torch.stack([one.weight for one in maps])
        if isinstance(maps[0], nn.Linear):
            weight = weight.transpose(1, 2)
        groups = x.reshape(len(maps), -1, x.shape[-1])
        if maps[0].bias is None:
            out = torch.bmm(groups, weight)
        else:
            out = torch.baddbmm(torch.stack([one.bias for one in maps])[:, None], groups, weight)
        return out.view(*x.shape[:-1], -1)


class AdaptedLinear(nn.Module):
    """One linear map that all experts share, and beside it the changes of those that have one here."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.shared = original
        self.experts = nn.ModuleDict()

    def forward(self, x: Tensor) -> Tensor:
        """x is [B, T, in], or [B·T, in] from a family that flattens; so is the answer."""
        rows, out = _rows.get(), self.shared(x)
        if len(rows.keys) == 1:
            return self._changed(out, x, rows.keys[0])
        per_row = x.shape[0] // sum(rows.num_rows)
        sizes = [count * per_row for count in rows.num_rows]
        parts = zip(out.split(sizes), x.split(sizes), rows.keys, strict=True)
        return torch.cat([self._changed(*part) for part in parts])

    def whole(self, key: str) -> nn.Module:
        """What stands in its place when only this expert is left: the map with its change."""
        if key in self.experts:
            merge(self.shared, self.experts[key])  # type: ignore[arg-type]
        return self.shared

    def _changed(self, out: Tensor, x: Tensor, key: str) -> Tensor:
        return out + self.experts[key](x) if key in self.experts else out


class DomainTokens(nn.Module):
    """One learned vector per expert, put before the embeddings of each sequence: a token that no text holds."""

    def __init__(self, embedding: nn.Embedding, keys: Iterable[str]) -> None:
        """All start alike, as experts do: at one draw from the distribution of the vocabulary's embeddings."""
        super().__init__()
        std_D, mean_D = torch.std_mean(embedding.weight.detach(), 0)
        draw_D = torch.randn(mean_D.shape, generator=torch.Generator().manual_seed(0)).to(mean_D)
        start_1D = (mean_D + std_D * draw_D)[None]
        self.experts = nn.ModuleDict(
            {key: nn.Embedding.from_pretrained(start_1D.clone(), freeze=False) for key in keys}
        )

    def forward(self, embeddings_BTD: Tensor) -> Tensor:
        """[B, 1 + T, D]: every row with its expert's vector before it."""
        rows = _rows.get()
        vectors_1D: list[Any] = [self.experts[key].weight for key in rows.keys]
        first = [vector_1D.expand(count, 1, -1) for vector_1D, count in zip(vectors_1D, rows.num_rows, strict=True)]
        return torch.cat([torch.cat(first), embeddings_BTD], 1)


class MultiExpertModel(nn.Module):
    """A decoder with DEMix layers. Experts are known by keys (no dots); their order is that of their coming."""

    def __init__(self, lm: Any, keys: Sequence[str], experts_in: ExpertsIn = "ffn") -> None:
        """Cuts `lm` open: every expert starts as a copy of its FFNs, or as the same vector before the sequence.

        Experts that are adapters come one by one, with their tensors, by `add_expert`.
        """
        super().__init__()
        assert experts_in != "adapter" or not keys, "adapters are made by engine.models.lora"
        self.lm = lm
        self.keys = list(keys)
        self.experts_in = experts_in
        self.tokens = DomainTokens(lm.get_input_embeddings(), keys) if experts_in == "token" else None
        self._places = _cut_open(lm, keys, experts_in) if self.tokens is None else {"domain_token": self.tokens}

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def max_positions(self) -> int:
        """The longest text that the model reads at once; a domain's token takes a position of its own."""
        return max_positions(self.lm) - (self.tokens is not None)

    @property
    def vocab_size(self) -> int:
        return int(self.lm.config.vocab_size)

    def forward(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """Logits [B, T, V]; `cache` is a transformers Cache that is filled and used, or None."""
        with _routed(rows):
            text = self._text(input_ids_BT, cache)
            kept = input_ids_BT.shape[1]  # a domain's token predicts nothing that is asked for
            out = self.lm(**text, past_key_values=cache, use_cache=cache is not None, logits_to_keep=kept)
        return out.logits  # type: ignore[no-any-return]

    @torch.no_grad()
    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target, without gradients; never all logits at once."""
        num_positions = input_ids_BT.shape[1]
        with _routed(rows):
            out = self.lm.base_model(**self._text(input_ids_BT, None), use_cache=False)
        return token_scores(self.lm, out.last_hidden_state[:, -num_positions:], targets_BT)

    def log_likelihoods(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Natural log-likelihood [B, T] of each target, float32, without gradients."""
        return self.token_scores(input_ids_BT, targets_BT, rows).logprobs_BT

    def new_cache(self) -> Any:
        """An empty cache of keys and values."""
        from transformers import DynamicCache

        return DynamicCache()

    def part_weights(self) -> Mapping[str, Never]:
        """None: an expert here is one whole."""
        return {}

    def _text(self, input_ids_BT: Tensor, cache: Any) -> dict[str, Any]:
        """What the decoder reads: the text, or at its beginning its embeddings behind the domain's token."""
        if self.tokens is None or (cache is not None and cache.get_seq_length()):
            return {"input_ids": input_ids_BT}
        return {"inputs_embeds": self.tokens(self.lm.get_input_embeddings()(input_ids_BT))}

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward; experts alone may learn."""
        shape, only = Shape.of(self.lm.config.to_dict()), self.experts_in if experts_only else None
        return training_flops(shape, context, only=only, adapter=self._adapter_size())

    def _adapter_size(self) -> int:
        """The parameters of one expert that is an adapter; 0 where experts are something else."""
        if self.experts_in != "adapter" or not self.keys:
            return 0
        return sum(parameter.numel() for parameter in self.expert_parameters(self.keys[0]).values())

    def expert_state(self, key: str) -> dict[str, Tensor]:
        """An expert's tensors under the names they have in the seed model."""
        self._require(key)
        return {f"{place}.{name}": tensor for place, own in self._own(key) for name, tensor in own.state_dict().items()}

    def shared_state(self) -> dict[str, Tensor]:
        """Everything that no expert owns; tied weights once."""
        kept = self.lm.state_dict()
        own = {id(buffer) for layer in self._places.values() for buffer in layer.experts.buffers()}
        buffers = self.lm.named_buffers()
        return {
            **self.shared_parameters(),
            **{name: buffer for name, buffer in buffers if name in kept and id(buffer) not in own},
        }

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The trainable view of `expert_state`, named by expert, too."""
        self._require(key)
        return {
            f"{key}:{place}.{name}": parameter
            for place, own in self._own(key)
            for name, parameter in own.named_parameters()
        }

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """The trainable view of `shared_state`."""
        own = {id(p) for layer in self._places.values() for p in layer.experts.parameters()}
        return {name: p for name, p in self.lm.named_parameters() if id(p) not in own}

    def add_expert(self, key: str, *, copy_of: str | None = None, state: Mapping[str, Tensor] | None = None) -> None:
        """Adds an expert as a copy of another, or from its tensors. No other tensor is touched (law L8)."""
        if key in self.keys:
            raise ModelError(f"The expert “{key}” is in this model already.", "Use another key.")
        for place, expert in self._new_expert(copy_of, state).items():
            self._places[place].experts[key] = expert
        self.keys.append(key)

    def _new_expert(self, copy_of: str | None, state: Mapping[str, Tensor] | None) -> dict[str, nn.Module]:
        """The modules of an expert by their place."""
        if state is not None and self.experts_in == "adapter":
            maps = {place: layer.shared for place, layer in self._places.items() if isinstance(layer, AdaptedLinear)}
            return {place: one.to(self.device) for place, one in adapters_of(state, maps).items()}
        source = copy_of or (self.keys[0] if self.keys else None)
        if source is None:
            raise ModelError("A model without experts must be given one's tensors.", "Load an expert first.")
        self._require(source)
        modules = {place: copy.deepcopy(own) for place, own in self._own(source)}
        if state is not None:
            self._check_state(state, source)
            for place, expert in modules.items():
                expert.load_state_dict({name: state[f"{place}.{name}"] for name in expert.state_dict()})
        return modules

    def remove_expert(self, key: str) -> None:
        """Takes an expert out; the others stay as they are."""
        self._require(key)
        for place, _ in list(self._own(key)):
            del self._places[place].experts[key]
        self.keys.remove(key)

    def _own(self, key: str) -> Iterator[tuple[str, nn.Module]]:
        """What an expert has of its own, by its place."""
        for place, layer in self._places.items():
            if key in layer.experts:
                yield place, layer.experts[key]

    def whole(self, key: str) -> Any:
        """The plain decoder that this expert makes with what is shared. The model is used up.

        Raises ModelError where experts are vectors before the text: no decoder holds one.
        """
        self._require(key)
        if self.tokens is not None:
            raise ModelError(
                "An expert must be part of the weights to make a whole model, but is a vector before the text.",
                "Choose experts of another method than domain-token.",
            )
        for place, layer in self._places.items():
            assert not isinstance(layer, DomainTokens)
            holder, _, attribute = place.rpartition(".")
            setattr(self.lm.get_submodule(holder), attribute, layer.whole(key))
        return self.lm

    def _check_state(self, state: Mapping[str, Tensor], like: str) -> None:
        expected = self.expert_state(like)
        wrong = sorted(set(expected) ^ set(state)) or sorted(
            name for name, tensor in expected.items() if state[name].shape != tensor.shape
        )
        if wrong:
            raise ModelError(
                f"An expert's tensors must fit its base, but {wrong[0]} (and {len(wrong) - 1} more) do not.",
                "Load it on the base it was trained on.",
            )

    def _require(self, key: str) -> None:
        if key not in self.keys:
            raise ModelError(f"There is no expert “{key}” in this model.", f"It holds: {', '.join(self.keys)}.")


_Layer = ExpertLinear | AdaptedLinear | DomainTokens


def _cut_open(lm: Any, keys: Sequence[str], experts_in: ExpertsIn) -> dict[str, _Layer]:
    """Puts experts in the place of every linear map of every FFN, or beside every map; gives them by their place."""
    adapted = experts_in == "adapter"
    places: dict[str, _Layer] = {}
    for name, holder, attribute in list(linear_places(lm) if adapted else ffn_places(lm)):
        original = getattr(holder, attribute)
        places[name] = AdaptedLinear(original) if adapted else ExpertLinear(original, keys)
        setattr(holder, attribute, places[name])
    return places
