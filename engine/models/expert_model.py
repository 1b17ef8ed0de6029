"""The interfaces of models with experts known by keys, for any method: to score and generate, and to train.

Texts of one row may be kept apart: their positions start again at 0. transformers makes masks of such positions
(`find_packed_sequence_indices`). Not every family does so itself, but most take masks that are made for them. Some
ignore both, and recurrent layers carry a state over: so the model is tried.

Shapes: B rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from engine.errors import Problem, TrainingError
from engine.events import GateWeights, Progress
from engine.files import ArtifactRef
from engine.models.discovery import family_of, keeps_other_states
from engine.models.likelihoods import Objective, TokenLosses, TokenScores, head_of, losses_from, token_scores
from engine.models.rows import Rows, with_rows
from engine.text.blocks import EvalSample


@dataclass(frozen=True)
class PartWeights:
    """The weights [K, 1 + P, B, T] in K blocks of an expert's backbone, which is the first, and of its P parts."""

    parts: tuple[str, ...]
    weights_KPBT: Tensor

    def at(self, position: int) -> GateWeights:
        """The part weights of the first row at one position."""
        backbone, *parts = map(tuple, self.weights_KPBT[:, :, 0, position].T.tolist())
        return GateWeights(backbone, dict(zip(self.parts, parts, strict=True)))

    def last(self) -> PartWeights:
        """The part weights of the last position only."""
        return PartWeights(self.parts, self.weights_KPBT[..., -1:])


class ExpertModel(Protocol):
    """A model with experts known by keys, for scoring and generation: each row of a batch uses one expert.

    Requests do not change it.
    """

    @property
    def keys(self) -> list[str]: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    def __call__(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """Logits [B, T, V]; `cache` is one of `new_cache`, filled and used, or None."""

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D], from which `logits` and `likelihoods` are computed where they are used."""

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        """Logits [B, T, V] of hidden states."""

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Log-likelihood [B, T] of each target after hidden states, never all logits at once."""

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""

    def new_cache(self) -> Any:
        """An empty cache of keys and values, for one growing text of each row."""

    def part_weights(self) -> Mapping[str, PartWeights]:
        """The part weights of each expert that has parts, at the tokens of this view's last forward pass."""


class ExpertHost(Protocol):
    """The experts of one base that one method holds in memory."""

    @property
    def keys(self) -> list[str]: ...

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        """Loads experts, every byte checked before use; what is there stays if one cannot be loaded."""

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[ExpertModel]:
        """Models that hold these experts; `parts` names the active parts of some (else all)."""

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in memory by name."""

    def modules(self) -> list[nn.Module]:
        """The modules that hold all parameters in memory."""

    def num_parameters(self, key: str) -> int:
        """The number of an expert's own parameters."""

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        """The number of copies of the base that must be loaded for these experts."""

    def num_bytes(self) -> int:
        """Bytes of all parameters."""


class TrainableModel(nn.Module):
    """A model as the training loop uses it; a subclass reads hidden states, from which all else is computed."""

    lm: Any  # the decoder of transformers
    keys: list[str]
    max_positions: int  # of the longest text that it reads at once

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def vocab_size(self) -> int:
        return int(self.lm.config.vocab_size)

    def new_cache(self) -> Any:
        """An empty cache of keys and values, and of the states of recurrent layers."""
        from transformers import DynamicCache

        return DynamicCache(config=self.lm.config) if keeps_other_states(self.lm) else DynamicCache()

    def part_weights(self) -> Mapping[str, PartWeights]:
        """The part weights of each expert that has parts, at the tokens of the last forward pass."""
        return {}

    def read(
        self, input_ids_BT: Tensor, rows: Rows, cache: Any = None, *, position_ids_BT: Tensor | None = None
    ) -> Tensor:
        """The last hidden states [B, T, D]; `cache` as for an `ExpertModel`.

        `position_ids_BT` start again at 0 at each text of a row, and so keep these apart; not together with a cache.
        """
        raise NotImplementedError

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """What all experts share and a training may change."""
        raise NotImplementedError

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """What an expert owns."""
        raise NotImplementedError

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward; shared parameters may be frozen."""
        raise NotImplementedError

    def start_from(self, texts: Mapping[str, Sequence[EvalSample]]) -> Iterator[Progress]:
        """Sets what new experts take from their own text, by key, before they are trained; most take nothing."""
        del texts
        yield from ()

    def losses(
        self,
        input_ids_BT: Tensor,
        targets_BT: Tensor,
        rows: Rows,
        objective: Objective,
        *,
        position_ids_BT: Tensor | None = None,
    ) -> TokenLosses:
        """The objective with gradients and the loss of each target; never all logits at once."""
        hidden_BTD = self.read(input_ids_BT, rows, position_ids_BT=position_ids_BT)
        with with_rows(rows):
            return losses_from(self.lm, head_of(self.lm), hidden_BTD, targets_BT, objective)

    @torch.no_grad()
    def token_scores(
        self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows, *, position_ids_BT: Tensor | None = None
    ) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""
        return token_scores(self.lm, self.read(input_ids_BT, rows, position_ids_BT=position_ids_BT), targets_BT)

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        with with_rows(rows):
            return head_of(self.lm)(hidden_BTD)

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        del rows  # the head is that of all experts
        return token_scores(self.lm, hidden_BTD, targets_BT).logprobs_BT


def trainable(model: TrainableModel, only_experts: Sequence[str] | None) -> Mapping[str, nn.Parameter]:
    """The parameters to train by name; turns the gradients of all others off."""
    parameters: dict[str, nn.Parameter] = {} if only_experts is not None else model.shared_parameters()
    for key in model.keys if only_experts is None else only_experts:
        parameters |= model.expert_parameters(key)
    model.requires_grad_(False)
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    return parameters


@dataclass(frozen=True)
class ModelLimits:
    """The context length of a base in tokens, and the size of its vocabulary."""

    max_positions: int
    vocab_size: int


def require_context(model: TrainableModel | ModelLimits, block_size: int) -> None:
    """Raises TrainingError when blocks are longer than the context of a model."""
    if block_size > model.max_positions:
        problem = f"block_size {block_size} is above the model's context of {model.max_positions} tokens."
        raise TrainingError(problem, "Choose a smaller block size, or a seed with a longer context.")


_MOST_TOKENS: Final = 24  # of the row that is tried
# In nats. Of the families of transformers 5.23, as tiny random models, those that keep texts apart change by less than
# 3e-7 and round by less than 2e-6 (bf16: 1e-2); of all others one of the two is above 1e-4.
_MOST_CHANGE: Final = 1e-5  # of any token, by another text before it: what is masked has no part in the result
_MOST_ROUNDING: Final = {
    False: 5e-5,
    True: 0.05,
}  # on average, compared with a text on its own; by whether it is in bf16


def separate_texts(lm: Any, input_ids_BT: Tensor, position_ids_BT: Tensor) -> dict[str, Any]:
    """What a decoder reads so that it keeps texts apart: masks are by the kind of layer where a family has several."""
    from transformers.masking_utils import create_masks_for_generate

    embedding = lm.get_input_embeddings().weight  # only shape, type and device matter
    masks = create_masks_for_generate(
        config=lm.config,
        inputs_embeds=embedding.new_empty(1).expand(*input_ids_BT.shape, 1),
        attention_mask=None,
        past_key_values=None,
        position_ids=position_ids_BT,
    )
    return {"input_ids": input_ids_BT, "position_ids": position_ids_BT, "attention_mask": masks}


@torch.no_grad()
def require_separation(model: TrainableModel, block_size: int) -> None:
    """Raises TrainingError unless a text's log-likelihoods in a row are those that it has in a row of its own.

    The second of two random texts is read after the first, after another one in its place, and on its own: in float32,
    or in bf16 where weights are held in less. Leaves the model in evaluation mode.
    """
    model.eval()
    is_half = any(parameter.dtype != torch.float32 for parameter in model.parameters())
    length = min(block_size, _MOST_TOKENS)
    half = length // 2
    generator = torch.Generator().manual_seed(0)
    rows_2T = torch.randint(int(model.lm.config.vocab_size), (2, length + 1), generator=generator)
    rows_2T[1, half:] = rows_2T[0, half:]
    positions_T = torch.cat([torch.arange(half), torch.arange(length - half)])
    try:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=is_half):
            after_one, after_other = _log_likelihoods(model, rows_2T, positions_T)[:, half:]
            (by_itself,) = _log_likelihoods(model, rows_2T[:1, half:], None)
    except Problem:
        raise
    except Exception as error:  # its code takes no such positions or masks
        raise _refusal(model) from error
    change_T, rounding_T = (after_one - after_other).abs(), (after_one - by_itself).abs()
    if not (change_T.max() <= _MOST_CHANGE and rounding_T.mean() <= _MOST_ROUNDING[is_half]):
        raise _refusal(model)


def _log_likelihoods(model: TrainableModel, rows_BT: Tensor, positions_T: Tensor | None) -> Tensor:
    """Of each token but the first of rows [B, 1 + T]; without positions as a model reads one text."""
    inputs_BT, targets_BT = rows_BT[:, :-1].to(model.device), rows_BT[:, 1:].to(model.device)
    positions_BT = None if positions_T is None else positions_T.to(model.device).expand_as(inputs_BT)
    rows = Rows.all_to(model.keys[0], len(rows_BT))
    return model.token_scores(inputs_BT, targets_BT, rows, position_ids_BT=positions_BT).logprobs_BT


def _refusal(model: TrainableModel) -> TrainingError:
    problem = f"A model of the family “{family_of(model.lm)}” cannot keep the conversations of a block apart."
    return TrainingError(problem, "Train without separate_conversations, or choose another seed model.")


class CompositeModel:
    """An `ExpertModel` of several models that read the same tokens. No two hold an expert of the same key."""

    def __init__(self, models: Sequence[ExpertModel]) -> None:
        self.models = tuple(models)
        self.device, self.vocab_size = models[0].device, models[0].vocab_size
        self.max_positions = min(model.max_positions for model in models)

    @property
    def keys(self) -> list[str]:
        return [key for model in self.models for key in model.keys]

    def __call__(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        return self._each("__call__", rows, input_ids_BT, caches=cache)[0]

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D]: the models are of one base, and so of one width."""
        return self._each("read", rows, input_ids_BT, caches=cache)[0]

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        return self._each("logits", rows, hidden_BTD)[0]

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        return self._each("likelihoods", rows, hidden_BTD, targets_BT)[0]

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        return TokenScores(*self._each("token_scores", rows, input_ids_BT, targets_BT))

    def new_cache(self) -> list[Any]:
        """A cache for each model."""
        return [model.new_cache() for model in self.models]

    def part_weights(self) -> Mapping[str, PartWeights]:
        return {key: weights for model in self.models for key, weights in model.part_weights().items()}

    def _each(self, method: str, rows: Rows, *tensors: Tensor, caches: Sequence[Any] | None = None) -> list[Tensor]:
        """Calls a method of each model once for its rows. Returns the output tensors in the order of the rows."""
        spans = [tensor.split(rows.num_rows) for tensor in tensors]
        answers: list[Sequence[Tensor]] = [()] * len(rows.keys)
        for number, model in enumerate(self.models):
            indices = [index for index, key in enumerate(rows.keys) if key in model.keys]
            if indices:
                share = Rows(tuple(rows.keys[i] for i in indices), tuple(rows.num_rows[i] for i in indices))
                inputs = [torch.cat([span[i] for i in indices]) for span in spans]
                outputs = getattr(model, method)(*inputs, share, *(() if caches is None else (caches[number],)))
                outputs = outputs if isinstance(outputs, tuple) else (outputs,)
                for index, *parts in zip(indices, *(output.split(share.num_rows) for output in outputs), strict=True):
                    answers[index] = parts
        return [torch.cat(parts) for parts in zip(*answers, strict=True)]
