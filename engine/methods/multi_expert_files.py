"""Models with experts on disk: a folder for what is shared, one for each expert. safetensors and JSON only.

Cards say where experts lie. A seed's own folder is the base of experts that change none of it. An expert's folder
names the base it was trained on by the hash of the base's manifest, so that an expert of another base, or of another
tokenizer, is refused before its tensors are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from engine.errors import DamagedFileError, ModelError
from engine.files import EXPERT_CARD, ArtifactRef
from engine.methods.base_card import BASE_CARD, CARD_METHOD, SHARED_FILE, base_card, is_seed
from engine.models.families import empty_model, load_model, load_weights, read_config
from engine.models.model_files import weights_in
from engine.models.multi_expert import MultiExpertModel, Placement
from engine.models.stored_tensors import StoredTensors, fill

_EXPERT = "expert.safetensors"


def save_base(model: MultiExpertModel, folder: Path) -> None:
    """Writes the shared parameters, the model's configuration, and where its experts are, into a folder."""
    model.lm.config.save_pretrained(folder)
    _save(model.shared_state(), folder / SHARED_FILE)
    (folder / BASE_CARD).write_text(
        json.dumps({"experts_in": model.experts_in} | model.placement.card()), encoding="utf-8"
    )


def save_expert(model: MultiExpertModel, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
    """Writes one expert's parameters into a folder, with the base and tokenizer they belong to."""
    _save(model.expert_state(key), folder / _EXPERT)
    card = {
        "method": CARD_METHOD,
        "experts_in": model.experts_in,
        **model.placement.card(),
        "base_sha256": base_sha256,
        "tokenizer_sha256": tokenizer_sha256,
    }
    (folder / EXPERT_CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")


def load_experts(base: ArtifactRef, experts: Mapping[str, ArtifactRef], placement: Placement) -> MultiExpertModel:
    """The model of a base folder with these experts (by key), which lie there; every byte is checked before use."""
    base_sha256 = base.check()
    states = {key: read_expert(expert, base_sha256) for key, expert in experts.items()}
    first, placement = next(iter(experts)), placement.of_card(base_card(base.folder))
    model = _with_first(base.folder, placement, first, states.pop(first), experts[first].folder)
    for key, state in states.items():
        model.add_expert(key, state=state)
    return model.eval()


def _with_first(
    base: Path, placement: Placement, key: str, state: Mapping[str, Tensor], folder: Path
) -> MultiExpertModel:
    """The model of a base with its first expert, whose tensors lie in `folder`."""
    if is_seed(base):
        lm, beside = load_model(base), set(state)
    else:
        lm, beside = _lm_with(base, placement, key, state, folder)
    model = MultiExpertModel(lm, [] if placement.made_from_tensors else [key], placement)
    if placement.made_from_tensors:
        model.add_expert(key, state=state)
    elif wrong := fill(model.expert_state(key), state, beside):
        raise _no_full_model(wrong)
    return model


def _lm_with(
    base: Path, placement: Placement, key: str, state: Mapping[str, Tensor], folder: Path
) -> tuple[Any, set[str]]:
    """A base's decoder with the weights of an expert, and the names of the expert's tensors that are not among them."""
    config = read_config(base)
    stored = {*StoredTensors(base / SHARED_FILE), *state}
    inside, beside = _names_in(config, placement, key, state)
    if {*inside, *beside} != stored and getattr(config, "tie_word_embeddings", False):
        config.tie_word_embeddings = False  # bases made when a seed's two tables were kept and called tied
        inside, beside = _names_in(config, placement, key, state)
    if wrong := sorted({*inside, *beside} ^ stored):
        raise _no_full_model(wrong)
    weights = weights_in({path: path for path in (base / SHARED_FILE, folder / _EXPERT)})
    lm, _ = load_weights(base, config, weights.open(), weights.dtype, inside)
    vars(lm).pop("_weight_conversions", None)  # these files have no names to change back when the model is saved
    return lm, beside


def _names_in(
    config: Any, placement: Placement, key: str, state: Mapping[str, Tensor]
) -> tuple[dict[str, str], set[str]]:
    """The names in files with those in a plain decoder, and the names of what lies beside it."""
    lm = empty_model(config)
    plain = {id(one): name for name, one in (*lm.named_parameters(), *lm.named_buffers())}
    known = set(lm.state_dict())
    model = MultiExpertModel(lm, [] if placement.made_from_tensors else [key], placement)
    inside = {name: plain[id(one)] for name, one in model.shared_state().items()}
    if placement.made_from_tensors:
        return inside, set(state)
    own = model.expert_state(key)
    return inside | {name: name for name in own if name in known}, {name for name in own if name not in known}


def _no_full_model(wrong: Sequence[str]) -> ModelError:
    return ModelError(
        f"The base and the expert do not form a full model: “{wrong[0]}” does not fit.", "Use a matching pair."
    )


def read_expert(expert: ArtifactRef, base_sha256: str) -> StoredTensors:
    """An expert's tensors, after its bytes and its base were checked; none of the base itself as an expert."""
    if expert.check() == base_sha256:
        return StoredTensors()
    folder = expert.folder
    if read_card(folder).get("base_sha256") != base_sha256:
        raise ModelError(
            f"The expert in {folder} was trained on another base.",
            "Mix experts of the same base.",
        )
    return StoredTensors(folder / _EXPERT)


def read_card(folder: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads((folder / EXPERT_CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{folder} has no valid {EXPERT_CARD} of an expert.", "Restore the expert.") from error
    return card


def _save(state: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, path)
