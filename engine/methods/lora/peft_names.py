"""Which factor of a seed's map each tensor of a PEFT adapter is, by its name.

Trainers write more or less than PEFT's names: wrappers around the model, the model of images that the seed is a part
of, the adapter's own name. Nothing of that changes what an adapter computes: it is read, and said.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from engine.errors import ModelError
from engine.foreign_files import short
from engine.methods.lora.peft_files import PREFIX
from engine.models.stored_tensors import WRAPPERS

FACTORS = {"A": "down", "B": "up"}
ANOTHER_SEED = "Give the seed that the adapter was trained on."
PEFT_NAMES = "Convert it to a PEFT adapter, with adapter_config.json and adapter_model.safetensors."
MERGE = "Merge the adapter into its model and import that, or train it for attention and feed-forward networks only."
_TENSOR = re.compile(
    r"(?P<path>.+)\.lora_"
    r"(?:embedding_(?P<of_rows>[AB])(?:\.(?P<rows_of>[^.]+))?|(?P<of_map>[AB])(?:\.(?P<map_of>[^.]+))?\.weight)"
)
_TABLE = re.compile(r"(?P<path>.+?)(\.base_layer|\.original_module|\.modules_to_save(\.[^.]+)?)?\.weight")
_LAYER = re.compile(r"(?:layers|h|blocks)\.(\d+)\.")
_OTHER_KINDS = {"lora_magnitude_vector": "a magnitude of DoRA", "bias": "a bias"}


@dataclass
class AdapterNames:
    """The maps of a seed by what is left of their names without wrappers; `changes` says how names were read."""

    lm: nn.Module
    maps: Mapping[str, Any]
    changes: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_bare = {_bare(name): name for name in self.maps}
        weights = (name for name in self.lm.state_dict() if name.endswith(".weight"))
        self._tables = {_bare(name.removesuffix(".weight")): name for name in weights}
        self._first = str(getattr(self.lm, "base_model_prefix", ""))

    def factors(self, stored: Collection[str]) -> dict[str, str]:
        """The stored name of each factor, PLACE.down or PLACE.up; raises ModelError for a tensor of anything else."""
        names: dict[str, str] = {}
        of: set[str] = set()
        for name in stored:
            match = _TENSOR.fullmatch(name)
            place = self._place(match["path"], self._by_bare) if match else None
            if match is None or place is None or bool(match["of_rows"]) != isinstance(self.maps[place], nn.Embedding):
                raise self._refusal(name, match and match["path"])
            of.add(match["rows_of"] or match["map_of"] or "")
            factor = f"{place}.{FACTORS[match['of_rows'] or match['of_map']]}"
            if factor in names or len(of) > 1:
                raise ModelError(
                    f"The adapter's file holds several adapters, or one twice: “{short(name)}” and "
                    f"“{short(names.get(factor, min(stored)))}”.",
                    'Save one of them: model.save_pretrained(folder, selected_adapters=["NAME"]).',
                )
            names[factor] = name
        if called := of - {""}:
            self.changes[f"The adapter's own name, “{short(min(called))}”, was left out of its tensors' names."] = None
        return names

    def table(self, name: str) -> str | None:
        """The name of the seed's tensor that a stored one stands for as a whole; None for a factor of a change."""
        match = None if _TENSOR.fullmatch(name) else _TABLE.fullmatch(name)
        return self._place(match["path"], self._tables) if match else None

    def _place(self, path: str, by_bare: Mapping[str, str]) -> str | None:
        """The name behind a path of PEFT's, where a known prefix may be too much or missing; None: there is none."""
        changes: dict[str, None] = {}
        bare = _bare(path)
        if not bare.startswith(PREFIX):
            changes[f"The names of its tensors do not begin with “{PREFIX}”, as PEFT's do: it was added."] = None
        bare = bare.removeprefix(PREFIX)
        if bare not in by_bare and f"{self._first}.{bare}" in by_bare:
            bare = f"{self._first}.{bare}"
            changes[f"The names of its tensors lack “{self._first}.”: it was added."] = None
        if bare not in by_bare:
            return None
        place = by_bare[bare]
        for part in path.split("."):
            if part in WRAPPERS and part not in place.split("."):
                changes[f"“{part}.” in the names of its tensors (of {WRAPPERS[part]}) was left out."] = None
        self.changes |= changes
        return place

    def _refusal(self, name: str, path: str | None) -> ModelError:
        """Why a tensor is none of an expert's, and what to do about it."""
        start = f"The adapter changes “{short(name)}”"
        if path is None:
            what = next((words for part, words in _OTHER_KINDS.items() if part in name), "")
            if not what and "lora_" in name.lower():
                return ModelError(f"“{short(name)}” is not a name of PEFT's, but of another tool.", PEFT_NAMES)
            what = what or "a tensor of its own"
            return ModelError(f"{start}, which is {what}: a LoRA expert has low-rank changes only.", MERGE)
        bare = _bare(path).removeprefix(PREFIX)
        own = [place for place in self._by_bare if bare.endswith(f".{place}")]
        if own:
            prefix = name[: name.index(own[0])]
            return ModelError(
                f"The names of the adapter's tensors begin with “{short(prefix)}”, not known here: “{short(name)}”.",
                f"Rename its tensors so that they begin with “{PREFIX}” instead.",
            )
        if bare in {_bare(module) for module, _ in self.lm.named_modules()}:
            return ModelError(f"{start}, where a LoRA expert of this seed has no map.", MERGE)
        layers = [int(number) for place in self.maps for number in _LAYER.findall(place)]
        number = next(iter(_LAYER.findall(bare)), None)
        if number is not None and layers and int(number) > max(layers):
            return ModelError(f"{start}, but the seed has {max(layers) + 1} layers.", ANOTHER_SEED)
        return ModelError(f"{start}, but the seed has nothing of this name.", ANOTHER_SEED)


def _bare(path: str) -> str:
    """A name without the parts that programs put around a model."""
    return ".".join(part for part in path.split(".") if part not in WRAPPERS)
