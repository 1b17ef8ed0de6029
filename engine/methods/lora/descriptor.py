"""LoRA (Hu et al. 2021): next to each linear map of the seed a change of low rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.config import LoraConfig
from engine.files import weights_sha256
from engine.methods.rows import RowMethod
from engine.models.flops import Shape, forward_flops

if TYPE_CHECKING:
    from pathlib import Path

    from engine.files import ArtifactRef
    from engine.methods.base import SeedOrigin, StoredExpert
    from engine.models.expert_model import TrainableModel


def training_flops(shape: Shape, context: int, expert_size: int, first_layer: int = 0) -> int:
    """Per token trained on: the loss goes back to the first adapter; at most its first maps cost less than counted.

    Of token vectors more is counted than computed: a token reads one column of their first factor.
    """
    first = shape.ffn + 2 * shape.scores(context) + 2 * shape.width * shape.attention_width  # up to the values
    above = (shape.num_layers - first_layer - 1) * shape.through_layer(context)
    return forward_flops(shape, context) + above + first + shape.ends + 3 * 2 * expert_size


def adapter_size(shape: Shape, config: LoraConfig) -> int:
    """Parameters of an adapter: the rank times inputs and outputs of each map."""
    attention = 2 * (shape.width + shape.attention_width) + 2 * (shape.width + shape.key_width)
    ffn = shape.ffn_maps * (shape.width + shape.ffn_width)
    sizes = {"attention": attention, "ffn": ffn, "all": attention + ffn}
    of_embeddings = shape.vocab_size + shape.embedding_width if config.embeddings else 0
    return config.rank * ((shape.num_layers - config.first_layer) * sizes[config.targets] + of_embeddings)


@dataclass(frozen=True, kw_only=True)
class Lora(RowMethod):
    """Adapters next to the linear maps of a seed model."""

    def trained_parameters(self, of_seed: int, shape: Shape, num_domains: int) -> int | None:
        return None if self.only_expert else num_domains * adapter_size(shape, LoraConfig())

    def starts_as_seed(self, config: LoraConfig) -> bool:
        del config
        return True

    def adapting_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        settings: Mapping[str, Any] = expert.config.get(self.config_field) or {}  # none of an imported expert
        first_layer = 0 if settings.get("embeddings") else settings.get("first_layer", 0)
        return training_flops(shape, context, expert.num_parameters, first_layer)

    def export_adapter(
        self, base: ArtifactRef, expert: ArtifactRef, folder: Path, *, base_model: str, revision: str = ""
    ) -> None:
        from engine.methods.lora.peft_files import save_adapter
        from engine.methods.multi_expert_files import read_expert
        from engine.models.families import load_model

        state = read_expert(expert, base.check())
        of_base = weights_sha256(base.folder)
        lm = load_model(base.folder)
        save_adapter(lm, state, folder, base_model=base_model, revision=revision, base_weights_sha256=of_base)

    def take_in(
        self, seed: ArtifactRef, origin: SeedOrigin, lm: Any, folder: Path, key: str, changes: list[str]
    ) -> TrainableModel:
        from engine.methods.lora.peft_import import adapter_base, read_adapter
        from engine.models.families import load_model
        from engine.models.multi_expert import MultiExpertModel

        seed.check()
        adapter_base(folder).refuse_another(weights_sha256(seed.folder), origin)
        lm = load_model(seed.folder)
        state = read_adapter(lm, folder, changes)
        model = MultiExpertModel(lm, [], self.new_placement())
        model.add_expert(key, state=state)
        return model


_LORA = Lora(
    name="lora",
    title="LoRA",
    sentence="each domain has only a low-rank change of the seed",
    paper="Hu et al. 2021",
    expert_words="low-rank change",
    shared_words="the seed model beneath it",
    base_is_frozen=True,
    is_adapter=True,
    imports="adapter",
    config=LoraConfig,
    config_field="lora",
    experts_in="adapter",
    placement="engine.methods.lora.adapters:BesideLinear",
    frozen_flops=training_flops,
    adds_to_base=True,
)
METHOD = (
    _LORA,
    replace(
        _LORA,
        name="lora-mixed",
        title="LoRA (mixed)",
        sentence="one low-rank change of the seed for all domains, equal text of each",
        only_expert="mixed",
        imports="",
        method_of_copy=_LORA.name,
    ),
)
