"""Experts from other tools' folders: a PEFT adapter of a seed model, or a fine-tuned copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.errors import ModelError
from engine.files import ArtifactRef
from engine.foreign_files import confined, short
from engine.methods.base import Method, SeedOrigin
from engine.methods.registry import methods
from engine.models.stored_tensors import is_same
from engine.path_kinds import require_kind
from engine.text.chat.template import own_template
from engine.text.tokenizer import TOKENIZER_FILES, Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from engine.models.expert_model import TrainableModel
    from engine.models.imported_model import ImportedModel
    from engine.text.chat.template import ChatTemplate

Holds = Literal["adapter", "networks", "model"]
_ADAPTER = "adapter_config.json"
_NO_VOCABULARY = (  # files that folders without a tokenizer also have
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
_NO_EFFECT = frozenset(  # of a configuration on the logits
    (
        "architectures",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "id2label",
        "label2id",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    )
)
_OWN_TEMPLATE = "Its folder has another chat template than the seed: this expert keeps and uses its own."
_ANOTHER_SEED = "Give the seed that it was made of."


@dataclass(frozen=True)
class ImportedExpert:
    """An expert in memory, with its method and why it is of this one, and the tokenizer of its base."""

    method: Method
    model: TrainableModel
    reason: str
    tokenizer: Tokenizer
    is_on_seed: bool  # the seed model is its base; otherwise it has a base of its own
    changes: tuple[str, ...]  # what of its files was left out or changed, as sentences
    template: ChatTemplate | None  # its own, where it is on the seed and not trained with the seed's


def import_expert(
    seed: ArtifactRef, folder: Path, key: str, *, method: str = "", origin: SeedOrigin | None = None
) -> ImportedExpert:
    """The expert in a folder of any source, on a seed model; `method` is the one that it must be of, if any.

    Raises ModelError or TokenizerError with the first reason why it cannot be one; nothing is written.
    """
    require_kind(folder, ("adapter", "model", "folder"))
    tokenizer = _tokenizer(seed.folder, folder)
    lm: Any = None
    changes: list[str] = []
    if confined(folder, _ADAPTER) is not None:
        holds, why = "adapter", "the folder holds an adapter"
    else:
        imported, changed = _fine_tuned(seed, folder)
        lm, changes = imported.lm, [*imported.changes]
        holds = "model" if changed else "networks"
        why = f"its “{changed}” differs from the seed's" if changed else "only its feed-forward networks may differ"
    chosen = _choose(holds, why, method)
    expert = chosen.take_in(seed, origin or SeedOrigin(), lm, folder, key, changes)
    is_on_seed = chosen.imports != "model"  # otherwise its base has the folder's tokenizer and template
    template = own_template(seed.folder, folder)
    changes += [_OWN_TEMPLATE] if template else []
    return ImportedExpert(
        chosen,
        expert,
        f"{chosen.title}, since {why}",
        tokenizer,
        is_on_seed,
        tuple(changes),
        template if is_on_seed else None,
    )


def _choose(holds: str, why: str, name: str) -> Method:
    """The method of what a folder holds; raises ModelError where it cannot be the one that was named."""
    by_name = {name: method for name, method in methods().items() if method.imports}
    if not name:
        return next(method for method in by_name.values() if method.imports == holds)
    if name not in by_name:
        raise ModelError(f"No expert of the method {name} can be imported.", f"Choose one of {', '.join(by_name)}.")
    fits = by_name[name].imports == holds or (by_name[name].imports, holds) == ("model", "networks")
    if not fits:
        raise ModelError(f"It cannot be an expert of the method {name}: {why}.", "Leave the method open.")
    return by_name[name]


def _tokenizer(seed: Path, folder: Path) -> Tokenizer:
    """The tokenizer of a folder, or the seed's where it has none; raises ModelError for another vocabulary."""
    own = load_tokenizer(seed)
    if not any(confined(folder, name) for name in TOKENIZER_FILES if name not in _NO_VOCABULARY):
        return own
    other = load_tokenizer(folder, like=own)
    other.try_out()
    if other.sha256 != own.sha256:
        raise ModelError(f"The tokenizer in {folder} is not the seed's: it has another vocabulary.", _ANOTHER_SEED)
    return other


def _fine_tuned(seed: ArtifactRef, folder: Path) -> tuple[ImportedModel, str]:
    """A model from a folder, and the first thing of it but its feed-forward networks that differs from the seed's."""
    from engine.models.families import load_model
    from engine.models.imported_model import import_model

    imported = import_model(folder)
    seed.check()
    seed_lm = load_model(seed.folder)
    _refuse_another_shape(folder, imported.lm, seed_lm)
    return imported, next(_differences(imported.lm, seed_lm), "")


def _refuse_another_shape(folder: Path, lm: Any, seed_lm: Any) -> None:
    """Raises ModelError for a model of another architecture, vocabulary or shape than the seed."""
    for field, what in (("model_type", "family"), ("vocab_size", "size of the vocabulary")):
        theirs, ours = getattr(lm.config, field), getattr(seed_lm.config, field)
        if theirs != ours:
            raise ModelError(f"The {what} of the model in {folder} is {theirs}, the seed's is {ours}.", _ANOTHER_SEED)
    shapes, of_seed = ({name: [*one.shape] for name, one in each.state_dict().items()} for each in (lm, seed_lm))
    odd = sorted(name for name in shapes.keys() | of_seed.keys() if shapes.get(name) != of_seed.get(name))
    if odd:
        raise ModelError(
            f"The model in {folder} has another shape than the seed: “{short(odd[0])}” differs.", _ANOTHER_SEED
        )


def _differences(lm: Any, seed_lm: Any) -> Iterator[str]:
    """Names of the settings and tensors in which two models of one shape differ, feed-forward networks left out."""

    from engine.models.families import ffn_places

    config, of_seed = lm.config.to_dict(), seed_lm.config.to_dict()
    for name in sorted(config.keys() | of_seed.keys()):
        has_effect = name not in _NO_EFFECT and not name.startswith(("_", "name_")) and "drop" not in name
        if has_effect and config.get(name) != of_seed.get(name):
            yield name
    networks = tuple(f"{place}." for place, _, _ in ffn_places(seed_lm))
    tensors = seed_lm.state_dict()
    for name, tensor in lm.state_dict().items():
        if not name.startswith(networks) and not is_same(tensor, tensors[name]):
            yield name
