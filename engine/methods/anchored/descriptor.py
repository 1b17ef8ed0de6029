"""Anchored experts (FlexOlmo, Shi et al. 2025): each is trained by itself beside the seed's frozen networks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.methods.demix import descriptor as demix
from engine.methods.moe import descriptor as moe
from engine.methods.rows import RowMethod
from engine.models.flops import Shape

if TYPE_CHECKING:
    from torch import Tensor

    from engine.files import ArtifactRef


def training_flops(shape: Shape, context: int, expert_size: int = 0) -> int:
    """Per token trained on: as of DEMix, and the seed's networks, which the loss goes back through but the first's."""
    del expert_size
    return demix.training_flops(shape, context) + shape.num_layers * shape.ffn + (shape.num_layers - 1) * shape.ffn


@dataclass(frozen=True, kw_only=True)
class AnchoredMethod(RowMethod):
    """Networks and router rows beside the networks of a seed model."""

    @property
    def learns_trained_weights(self) -> bool:
        return True

    def starts_as_seed(self, config: Any) -> bool:
        del config
        return True

    def trained_parameters(self, of_seed: int, shape: Shape, num_domains: int) -> int | None:
        return num_domains * shape.num_layers * (shape.ffn // 2 + shape.width)

    def load_full_model(self, base: ArtifactRef, expert: ArtifactRef) -> Any:
        raise self._refusal("made a plain decoder")

    def load_networks(self, base: ArtifactRef, expert: ArtifactRef) -> Any:
        return super().load_full_model(base, expert)

    def rows(self, expert: ArtifactRef) -> Tensor:
        from engine.methods.anchored.placement import stored_rows

        return stored_rows(expert)


METHOD = (
    AnchoredMethod(
        name="anchored",
        title="Anchored",
        order=1,
        sentence="each domain has feed-forward networks beside those of the seed, and a row of the router between them",
        paper="Shi et al. 2025, FlexOlmo",
        expert_words="feed-forward networks and rows of routers",
        shared_words="the seed model beneath it",
        base_is_frozen=True,
        no_decoder_because="has two networks in each layer, its own and the seed's",
        has_rows=True,
        joined="anchored-joined",
        experts_in="anchored",
        placement="engine.methods.anchored.placement:BesideNetwork",
        frozen_flops=training_flops,
        adds_to_base=True,
    ),
    replace(
        moe.METHOD,
        name="anchored-joined",
        title="Anchored, joined",
        order=1,
        sentence="one model of the networks of the seed and of several experts, with the rows of their own training",
        paper="Shi et al. 2025, FlexOlmo",
        only_expert="joined",
        is_trainable=False,
        is_joint=False,
        config=None,
    ),
)
