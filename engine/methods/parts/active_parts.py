"""The active parts of an expert, which are trained, scored and used for generation like a single expert.

Training, scoring and generation know experts by name, and each row of a batch uses one of them. Here one name stands
for a set of active experts. Toggling makes a new set, which costs nothing; the model does not change.

Shapes: B rows, T positions, D width, V vocabulary, K blocks, E active experts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ModelError
from engine.methods.parts.method import Learning
from engine.methods.parts.parts_model import PartsModel
from engine.models.discovery import RouterLosses, router_losses
from engine.models.expert_model import PartWeights
from engine.models.likelihoods import Objective, TokenLosses, TokenScores, head_of, losses_from, token_scores
from engine.models.rows import Rows


class GateShares:
    """The mean gate weights of the backbone and each active expert, collected over forward passes of any thread."""

    def __init__(self) -> None:
        self._passes: list[tuple[list[float], int]] = []

    def add(self, weights_KGBT: Tensor) -> None:
        """Adds the weights of one forward pass."""
        sums_G = weights_KGBT.double().mean(0).sum((1, 2))
        self._passes.append((sums_G.tolist(), weights_KGBT[0, 0].numel()))

    def means(self) -> tuple[float, ...]:
        """The backbone's mean, then each expert's, over all tokens and blocks; bit-identical in any order."""
        sums, counts = zip(*self._passes, strict=True)
        return tuple(math.fsum(of_one) / sum(counts) for of_one in zip(*sums, strict=True))


class ActiveParts(nn.Module):
    """Some experts of a model, known together as `name`; an empty set is the backbone alone.

    `weights` [K, 1 + E, B, T] are those of the last forward pass, the backbone's first. Use one object per text or per
    training.
    """

    def __init__(
        self,
        model: PartsModel,
        active: Sequence[str],
        name: str,
        learning: Learning = "experts",
        names: Sequence[str] | None = None,
    ) -> None:
        """`names` label the active experts in `part_weights`; by default their keys."""
        super().__init__()
        self.model = model
        self.active = tuple(active)
        self.names = tuple(names or active)
        self.keys = [name]
        self.learning: Learning = learning
        self.weights: Tensor | None = None
        self._recorder: GateShares | None = None

    def train(self, mode: bool = True) -> ActiveParts:
        """Puts only the trained modules in training mode, so that frozen ones use no dropout.

        An expert is then trained beside the backbone, and gates among the experts, as they are at inference.
        """
        super().train(False)
        for key in self.active if mode and self.learning == "experts" else ():
            for module in self.model.modules_of(key).values():
                module.train()
        self.training = mode
        return self

    @property
    def lm(self) -> Any:
        return self.model.lm

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def max_positions(self) -> int:
        return self.model.max_positions

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    def forward(
        self, input_ids_BT: Tensor, rows: Rows, cache: Any = None, *, position_ids_BT: Tensor | None = None
    ) -> Tensor:
        """Logits [B, T, V] of rows that all use this set; `cache` is from `new_cache`, or of transformers.

        `position_ids_BT` as for `PartsModel.forward`.
        """
        self._require(rows)
        logits_BTV, self.weights = self.model(input_ids_BT, self.active, cache, position_ids_BT=position_ids_BT)
        return logits_BTV  # type: ignore[no-any-return]

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D]; `cache` as for `forward`."""
        self._require(rows)
        hidden_BTD, self.weights = self.model.read(input_ids_BT, self.active, cache)
        return hidden_BTD

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
        self._require(rows)
        hidden_BTD, self.weights = self.model.read(input_ids_BT, self.active, position_ids_BT=position_ids_BT)
        return losses_from(self.lm, head_of(self.lm), hidden_BTD, targets_BT, objective)

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        """Logits [B, T, V] of hidden states."""
        self._require(rows)
        return head_of(self.lm)(hidden_BTD)

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Log-likelihood [B, T] of each target after hidden states."""
        self._require(rows)
        return token_scores(self.lm, hidden_BTD, targets_BT).logprobs_BT

    def token_scores(
        self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows, *, position_ids_BT: Tensor | None = None
    ) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""
        self._require(rows)
        scores, weights_KGBT = self.model.token_scores(
            input_ids_BT, targets_BT, self.active, position_ids_BT=position_ids_BT
        )
        if self._recorder is not None:
            self._recorder.add(weights_KGBT)
        return scores

    @contextmanager
    def record_gates(self) -> Iterator[GateShares]:
        """Records the gate weights while text is scored within the context."""
        self._recorder = GateShares()
        try:
            yield self._recorder
        finally:
            self._recorder = None

    def new_cache(self) -> Any:
        """An empty cache of keys and values, for any model that holds these experts on this backbone."""
        return self.model.new_cache()

    def part_weights(self) -> Mapping[str, PartWeights]:
        """The weights of the last forward pass; empty before the first."""
        return {} if self.weights is None else {self.keys[0]: PartWeights(self.names, self.weights)}

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """None: the backbone is frozen."""
        return {}

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]:
        """The trained parameters: the active experts and their gates, or their gates alone."""
        self._require(Rows.all_to(key, 1))
        of = self.model.expert_parameters if self.learning == "experts" else self.model.gate_parameters
        return {name: parameter for one in self.active for name, parameter in of(one).items()}

    def auxiliary_loss(self) -> AbstractContextManager[RouterLosses]:
        """Collects the auxiliary loss of the backbone's routers, if any, for the forward passes within."""
        return router_losses(self.lm)

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward."""
        del experts_only  # nothing else ever learns
        return self.model.training_flops(self.active, context, self.learning)

    def _require(self, rows: Rows) -> None:
        if unknown := set(rows.keys) - set(self.keys):
            raise ModelError(f"There is no expert “{min(unknown)}”.", f"Known: {self.keys[0]}.")
