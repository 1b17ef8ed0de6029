"""MoDE experts on disk: a folder for each, with its layers and gates alone. safetensors and JSON only.

The backbone is any decoder's folder, and is never written again: an expert's folder names it by the hash of its
manifest, so that an expert of another backbone is refused before its tensors are read. A composed model is a set of
such folders: each expert's row of the gate is relative to the backbone, and so goes with the expert.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.errors import DamagedFile, EngineError, ModelError
from engine.files import Kept
from engine.mode.config import ModeConfig
from engine.mode.model import ModeModel
from engine.models.families import load_model

_EXPERT, _CARD = "expert.safetensors", "expert.json"


def save_expert(model: ModeModel, key: str, folder: Path, *, backbone_sha256: str, tokenizer_sha256: str) -> None:
    """Writes what an expert added into a folder, with the backbone and tokenizer it belongs to."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.expert_state(key).items()}
    save_file(state, folder / _EXPERT)
    card = {
        "method": "mode",
        "backbone_sha256": backbone_sha256,
        "tokenizer_sha256": tokenizer_sha256,
        "shape": asdict(model.shape_of(key)),
    }
    (folder / _CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")


def load_mode(backbone: Kept, experts: Mapping[str, Kept], tokenizer_sha256: str | None = None) -> ModeModel:
    """The model of a backbone's folder with these experts (by key), every byte checked before use.

    Raises ModelError where an expert is of another backbone or, if that is given, another tokenizer; DamagedFile where
    a folder is not what was written.
    """
    backbone_sha256 = backbone.check()
    found = {key: read_expert(expert, backbone_sha256, tokenizer_sha256) for key, expert in experts.items()}
    if not found:
        raise ModelError("A MoDE model must have at least one expert, but none was given.", "Choose an expert.")
    model = ModeModel(load_model(backbone.folder), next(iter(found.values()))[0].num_blocks)
    for key, (config, state) in found.items():
        model.add_expert(key, config, state)
    return model.eval()


def read_expert(
    expert: Kept, backbone_sha256: str, tokenizer_sha256: str | None = None
) -> tuple[ModeConfig, dict[str, Tensor]]:
    """An expert's shape and tensors, after its bytes, its backbone and its tokenizer were checked.

    They are what `ModeModel.add_expert` takes: switching domain reads no more than this.
    """
    expert.check()
    folder = expert.folder
    try:
        card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        method, config = card["method"], ModeConfig(**card["shape"]) if card["method"] == "mode" else None
    except (OSError, ValueError, KeyError, TypeError, EngineError) as error:
        raise DamagedFile(f"{folder} must hold an expert's {_CARD}, but does not.", "Restore the expert.") from error
    if config is None:
        raise ModelError(
            f"The expert in {folder} must be one of MoDE, but is one of “{method}” instead.",
            "Mix it on the base that it was trained on.",
        )
    for part, wanted in (("backbone", backbone_sha256), ("tokenizer", tokenizer_sha256)):
        if wanted is not None and card.get(f"{part}_sha256") != wanted:
            raise ModelError(
                f"The expert in {folder} was trained on another {part} than the one it is to be put beside.",
                f"Compose experts of the same {part}.",
            )
    return config, load_file(folder / _EXPERT)
