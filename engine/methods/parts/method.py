"""Methods whose experts consist of parts and a gate, next to a frozen base.

An expert is trained with one part; composed, several are the parts of one expert. A request can switch parts off. Such
a method brings a model class of its own (`engine/methods/parts/parts_model.py`); files, memory, training and
composition follow. Importing this module loads no torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from engine.errors import ModelError, TrainingError
from engine.files import EXPERT_CARD, ArtifactRef, reading_own
from engine.methods.base import Method, StoredExpert
from engine.methods.registry import methods
from engine.models.flops import Shape
from engine.plugins import load_object

if TYPE_CHECKING:
    import torch

    from engine.methods.parts.files import PartsHost
    from engine.methods.parts.parts_model import ActiveParts, PartsModel

Learning = Literal["experts", "gates"]  # gates learn in any case


@dataclass(frozen=True, kw_only=True)
class PartsMethod(Method):
    """A method whose experts have parts. Classes are named as `module:Class`."""

    config: type[Any]  # a dataclass; its field `seed` is that of what starts at random
    model: str  # a PartsModel, made of a decoder and the `base_fields`
    base_fields: tuple[str, ...] = ()  # of the config: what they say of the base must be the same in a composition
    training: str = "engine.methods.parts.training:PartsTraining"
    uses_processes: bool = False  # whether `training` may put parts into processes of their own
    count_forward: Callable[[Shape, int, Sequence[Any]], int]  # operations per token: (shape, context, configs)
    count_training: Callable[[Shape, int, Sequence[Any], Learning], int]  # forward and backward; the last: what learns
    has_parts: bool = True
    is_joint: bool = False
    base_is_frozen: bool = True
    can_be_copied: bool = False

    @property
    def artifact_kind(self) -> str:
        return f"{self.name}-expert"

    def new_model(self, lm: Any, config: Any) -> PartsModel:
        """A model of this decoder without parts, for those with the `base_fields` of this config."""
        model: PartsModel = load_object(self.model)(lm, *(getattr(config, name) for name in self.base_fields))
        return model

    def describe_base(self, config: Any) -> str:
        """What `base_fields` say, such as “3 blocks”; parts of one base and one description lie in one model."""
        numbers = {name.removeprefix("num_"): getattr(config, name) for name in self.base_fields}
        return ", ".join(f"{n} {name.removesuffix('s') if n == 1 else name}" for name, n in numbers.items())

    def describe_part(self, config: Any) -> dict[str, Any]:
        """The columns of a part in a table of them."""
        return {name.replace("_", " "): value for name, value in asdict(config).items() if name != "seed"}

    def base_complaints(self, config: Any, shape: Shape, seed: str) -> list[str]:
        """Why parts with this config cannot stand next to this seed model, as sentences."""
        del config, shape, seed
        return []

    def starts_alike(self, config: Any) -> bool:
        """Whether several new parts with this config would start as the same weights, and so learn the same."""
        del config
        return False

    def configs_of(self, expert: Mapping[str, Any]) -> list[Any]:
        """The configs of an expert's parts, from the config of its row."""
        return [self.config(**part["shape"]) for part in expert["parts"]]

    def open_base(self, base: ArtifactRef, config: Any) -> PartsModel:
        """Loads the model of a base's folder without parts; every byte is checked before use."""
        from engine.models.families import load_model

        base.check()
        return self.new_model(load_model(base.folder), config).eval()

    def build(self, seed_folder: Path, keys: Sequence[str], config: Any = None, seed: int = 0) -> ActiveParts:
        from engine.methods.parts.parts_model import ActiveParts
        from engine.models.families import load_model

        if len(keys) != 1:
            raise TrainingError(f"{self.title} trains one expert at a time, not {len(keys)}.", "Give one key.")
        config = config or self.config(seed=seed)
        model = self.new_model(load_model(seed_folder), config)
        model.add_expert(keys[0], config)
        return ActiveParts(model, keys, keys[0])

    def save_expert(self, model: Any, key: str, folder: Path, *, base_sha256: str, tokenizer_sha256: str) -> None:
        from engine.methods.parts.files import save_parts

        parts = dict(zip(model.names, model.active, strict=True))
        save_parts(model.model, parts, folder, base_sha256=base_sha256, tokenizer_sha256=tokenizer_sha256)

    def open(self, base: ArtifactRef, device: torch.device | str) -> PartsHost:
        from engine.methods.parts.files import PartsHost

        return PartsHost(self, base, device)

    def forward_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return self.count_forward(shape, context, self.configs_of(expert.config))

    def adapting_flops(self, shape: Shape, context: int, expert: StoredExpert) -> int:
        return self.count_training(shape, context, self.configs_of(expert.config)[:1], "experts")

    def composing_flops(self, shape: Shape, context: int, expert: StoredExpert) -> dict[str, int]:
        parts = self.configs_of(expert.config)
        return {what: self.count_training(shape, context, parts, what) for what in get_args(Learning)}


def parts_methods() -> dict[str, PartsMethod]:
    """The installed methods whose experts have parts, by name."""
    return {name: method for name, method in methods().items() if isinstance(method, PartsMethod)}


def get_parts_method(name: str) -> PartsMethod:
    """The method of this name; raises ModelError where none is installed whose experts have parts."""
    if name not in parts_methods():
        raise ModelError(f"No method “{name}” with parts is installed.", "Install its package.")
    return parts_methods()[name]


def backbone_of(method: str, config: Mapping[str, Any]) -> str:
    """What the parts of an expert with this method and row config say of their base, such as “3 blocks”."""
    descriptor = get_parts_method(method)
    return descriptor.describe_base(descriptor.configs_of(config)[0])


def part_file(number: int) -> str:
    """The name of a part's file, by its index."""
    return f"part-{number}.safetensors"


def part_sizes(folder: Path) -> dict[str, int]:
    """The number of parameters of each part, gates included, by name; raises DamagedFileError. No tensor is read."""
    with reading_own(str(folder / EXPERT_CARD)):
        card = json.loads((folder / EXPERT_CARD).read_text(encoding="utf-8"))
        return {part["name"]: _size(folder / part_file(number)) for number, part in enumerate(card["parts"])}


def _size(file: Path) -> int:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as tensors:
        return sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
