"""Models with experts on disk: a folder for what is shared, one for each expert. safetensors and JSON only.

Cards say where experts lie. A seed's own folder is the base of experts that change none of it. An expert's folder
names the base it was trained on by the hash of the base's manifest, so that an expert of another base, or of another
tokenizer, is refused before its tensors are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.errors import DamagedFile, ModelError
from engine.files import EXPERT_CARD, ArtifactRef
from engine.methods.base_card import BASE_CARD, CARD_METHOD, SHARED_FILE, is_seed
from engine.models.families import load_model, read_config
from engine.models.multi_expert import MultiExpertModel, Placement

_EXPERT = "expert.safetensors"


def save_base(model: MultiExpertModel, folder: Path) -> None:
    """Writes the shared parameters, the model's configuration, and where its experts are, into a folder."""
    model.lm.config.save_pretrained(folder)
    _save(model.shared_state(), folder / SHARED_FILE)
    (folder / BASE_CARD).write_text(json.dumps({"experts_in": model.experts_in}), encoding="utf-8")


def save_expert(model: MultiExpertModel, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
    """Writes one expert's parameters into a folder, with the base and tokenizer they belong to."""
    _save(model.expert_state(key), folder / _EXPERT)
    card = {
        "method": CARD_METHOD,
        "experts_in": model.experts_in,
        "base_sha256": base_sha256,
        "tokenizer_sha256": tokenizer_sha256,
    }
    (folder / EXPERT_CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")


def load_experts(base: ArtifactRef, experts: Mapping[str, ArtifactRef], placement: Placement) -> MultiExpertModel:
    """The model of a base folder with these experts (by key), which lie there; every byte is checked before use."""
    base_sha256 = base.check()
    states = {key: read_expert(expert, base_sha256) for key, expert in experts.items()}
    first = next(iter(experts))
    model = _with_first(base.folder, placement, first, states.pop(first))
    for key, state in states.items():
        model.add_expert(key, state=state)
    return model.eval()


def _with_first(base: Path, placement: Placement, key: str, state: Mapping[str, Tensor]) -> MultiExpertModel:
    """The model of a base with its first expert."""
    lm = load_model(base) if is_seed(base) else _empty_lm(base)
    model = MultiExpertModel(lm, [] if placement.made_from_tensors else [key], placement)
    if placement.made_from_tensors:
        model.add_expert(key, state=state)
    shared = ({}, {}) if is_seed(base) else (model.shared_state(), load_file(base / SHARED_FILE))
    _copy({**shared[0], **model.expert_state(key)}, {**shared[1], **state})
    return model


def read_expert(expert: ArtifactRef, base_sha256: str) -> dict[str, Tensor]:
    """An expert's tensors, after its bytes and its base were checked; none of the base itself as an expert."""
    if expert.check() == base_sha256:
        return {}
    folder = expert.folder
    if read_card(folder).get("base_sha256") != base_sha256:
        raise ModelError(
            f"The expert in {folder} was trained on another base.",
            "Mix experts of the same base.",
        )
    return load_file(folder / _EXPERT)


def read_card(folder: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((folder / EXPERT_CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{folder} has no valid {EXPERT_CARD} of an expert.", "Restore the expert.") from error
    return card


def _empty_lm(base: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(read_config(base), dtype=torch.float32, trust_remote_code=False)


def _copy(targets: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    if set(targets) != set(source):
        odd = sorted(set(targets) ^ set(source))[0]
        raise ModelError(
            f"The base and the expert do not form a full model: “{odd}” does not fit.",
            "Use a matching pair.",
        )
    with torch.no_grad():
        for name, tensor in targets.items():
            tensor.copy_(source[name])


def _save(state: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, path)
