"""LoRA (Hu et al. 2021): beside each linear map of the seed a change of low rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.config import LoraConfig
from engine.methods.lora.flops import training_flops
from engine.methods.rows import RowMethod

if TYPE_CHECKING:
    from pathlib import Path

    from engine.files import ArtifactRef


@dataclass(frozen=True, kw_only=True)
class Lora(RowMethod):
    """Adapters beside the linear maps of a seed model."""

    def export_adapter(self, base: ArtifactRef, expert: ArtifactRef, folder: Path, *, base_model: str) -> None:
        from engine.methods.lora.peft_files import save_adapter
        from engine.methods.multi_expert_files import read_expert
        from engine.models.families import load_model

        state = read_expert(expert, base.check())
        save_adapter(load_model(base.folder), state, folder, base_model=base_model)


_LORA = Lora(
    name="lora",
    title="LoRA",
    sentence="each domain has only a low-rank change of the seed",
    paper="Hu et al. 2021",
    expert_words="low-rank change",
    shared_words="the seed model beneath it",
    base_is_frozen=True,
    is_adapter=True,
    config=LoraConfig,
    config_field="lora",
    experts_in="adapter",
    placement="engine.methods.lora.placement:BesideLinear",
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
        method_of_copy=_LORA.name,
    ),
)
