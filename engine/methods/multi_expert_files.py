"""Models with experts, on disk and in memory: a folder for what is shared, one for each expert.

Files are safetensors and JSON. Cards say where experts lie. A seed's own folder is the base of experts that change none
of it. An expert's folder names the base it was trained on by the hash of the base's manifest, so that an expert of
another base, or of another tokenizer, is refused before its tensors are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import DamagedFileError, ModelError
from engine.files import EXPERT_CARD, ArtifactRef, read_own
from engine.methods.registry import methods
from engine.methods.rows import BASE_CARD, CARD_METHOD, SHARED_FILE, RowMethod, base_card, is_seed, stored_placement
from engine.models.expert_model import ExpertModel, ModelLimits
from engine.models.families import empty_model, load_model, load_weights, max_positions
from engine.models.model_files import read_config, weights_in
from engine.models.multi_expert import MultiExpertModel, Placement
from engine.models.stored_tensors import StoredTensors, fill, save_tensors

EXPERT_FILE = "expert.safetensors"


def save_base(model: MultiExpertModel, folder: Path) -> None:
    """Writes the shared parameters, the model's configuration, and where its experts are, into a folder."""
    model.lm.config.save_pretrained(folder)
    save_tensors(model.shared_state(), folder / SHARED_FILE)
    (folder / BASE_CARD).write_text(
        json.dumps({"experts_in": model.experts_in} | model.placement.card()), encoding="utf-8"
    )


def save_expert(model: MultiExpertModel, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
    """Writes one expert's parameters into a folder, with the base and tokenizer they belong to."""
    save_tensors(model.expert_state(key), folder / EXPERT_FILE)
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
    weights = weights_in({path: path for path in (base / SHARED_FILE, folder / EXPERT_FILE)})
    lm, _ = load_weights(base, config, weights.open(), weights.dtype, inside)
    vars(lm).pop("_weight_conversions", None)  # these files have no names to change back when the model is saved
    return lm, beside


def _names_in(
    config: Any, placement: Placement, key: str, state: Mapping[str, Tensor]
) -> tuple[dict[str, str], set[str]]:
    """The names in files with those in a plain decoder, and the names of what lies outside it."""
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
    return StoredTensors(folder / EXPERT_FILE)


def read_card(folder: Path) -> dict[str, Any]:
    return read_own(folder / EXPERT_CARD)


class MultiExpertHost:
    """Loads the model with its first expert and adds the others to it."""

    def __init__(self, base: ArtifactRef, device: torch.device | str, new_placement: Callable[[], Placement]) -> None:
        self._base, self._device, self._new_placement = base, device, new_placement
        self._model: MultiExpertModel | None = None

    @property
    def keys(self) -> list[str]:
        return self._model.keys if self._model else []

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        if self._model is None:
            self._model = load_experts(self._base, experts, self._new_placement()).to(self._device)
            return
        for key, kept in experts.items():
            self._model.add_expert(key, state=read_expert(kept, str(self._base.sha256)))

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[ExpertModel]:
        del keys, parts
        return [self._model] if self._model else []

    def tensors(self) -> dict[str, Tensor]:
        return self._model.state_dict() if self._model else {}

    def modules(self) -> list[nn.Module]:
        return [self._model] if self._model else []

    def num_parameters(self, key: str) -> int:
        own = self._model.expert_parameters(key) if self._model else {}
        return sum(parameter.numel() for parameter in own.values())

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        return int(self._model is None and bool(experts))

    def num_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self._model.parameters()) if self._model else 0


def row_method(experts_in: str) -> RowMethod:
    """The method whose files have this placement; raises ModelError if it is not installed."""
    of_rows = [method for method in methods().values() if isinstance(method, RowMethod)]
    matches = [method for method in of_rows if method.experts_in == experts_in]
    if not matches:
        raise ModelError(f"No method is installed that reads experts in “{experts_in}”.", "Install its package.")
    return min(matches, key=lambda method: bool(method.method_of_copy))


def new_placement(experts_in: str = "ffn") -> Placement:
    """The placement of a new model's experts."""
    return row_method(experts_in).new_placement()


def load_multi_expert(base: ArtifactRef, experts: Mapping[str, ArtifactRef]) -> MultiExpertModel:
    """The model of a base folder with these experts (by key), by whatever row method; every byte is checked."""
    if not experts:
        raise ModelError("No expert was given to load.", "Choose an expert.")
    base.check()
    first = next(iter(experts.values()))
    first.check()
    return load_experts(base, experts, new_placement(stored_placement(read_card(first.folder), base.folder)))


def read_limits(base: Path) -> ModelLimits:
    """The limits of a base, without its tensors; raises DamagedFileError where they cannot be read."""
    try:
        config = read_config(base)
        longest = max_positions(config) - row_method(stored_placement({}, base)).extra_positions
        return ModelLimits(longest, int(config.vocab_size))
    except Exception as error:  # transformers fails in many ways on a folder that is gone, or changed
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedFileError(
            f"{base} has no valid base of a model ({reason}).", "Restore it from a copy, or train it again."
        ) from None
