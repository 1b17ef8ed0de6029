"""A LoRA expert from the folder of a PEFT adapter, from any source: its configuration and its tensors, checked.

What the configuration asks for and a LoRA expert does not hold exactly is refused by its name. Names, types and shapes
are checked before any tensor is read, so no file makes it read more than fits the seed's maps. peft itself never
sees the folder. Sources: https://huggingface.co/docs/peft/developer_guides/checkpoint

Shapes: R rank, I inputs, O outputs of a map.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from engine.errors import ModelError, first_of
from engine.foreign_files import confined, read_object, short
from engine.methods.base import SeedOrigin
from engine.methods.lora.adapters import all_places, map_sizes
from engine.methods.lora.peft_files import BASE_HASH, CONFIG, PREFIX, WEIGHTS
from engine.models.stored_tensors import WRAPPERS, StoredTensors

_PATTERN = re.compile(r"\^?[\w.]{1,300}")  # of the names that a rank or an alpha is for; others may take for ever
_COMMIT = re.compile("[0-9a-f]{40}")
_CONFIG_BYTES = 1 << 20
_AGAIN = "Train the adapter as plain LoRA, or merge it into its model and import that."
_BY_NAMES = f"Replace it in {CONFIG} by the names of the maps that it matches."
_DIVERGED = "Give the adapter of an earlier step, or train it again with a smaller learning rate."
_SAVE_AGAIN = "Save it again with safetensors: save_pretrained(folder)."
_READ = frozenset(
    (
        "alpha_pattern",
        "base_model_name_or_path",
        "bias",
        "init_lora_weights",
        "lora_alpha",
        "peft_type",
        "r",
        "rank_pattern",
        "revision",
        "use_rslora",
    )
)
_WITHOUT_EFFECT = frozenset(  # on what an adapter computes once its tensors are there
    (
        "auto_mapping",
        "ensure_weight_tying",
        "eva_config",
        "exclude_modules",
        "fan_in_fan_out",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "runtime_config",
        "target_modules",  # the names of the tensors say where they belong
        "task_type",
    )
)
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # others change the model beneath


@dataclass(frozen=True)
class AdapterBase:
    """The model that an adapter's files name as theirs; empty where they do not."""

    name: str
    revision: str
    weights_sha256: str

    def refuse_another(self, weights_sha256: str, origin: SeedOrigin) -> None:
        """Raises ModelError where the files name other weights, or another commit of the same model, than the seed's.

        A name is only a hint: the same model has many.
        """
        if self.weights_sha256 and self.weights_sha256 != weights_sha256:
            raise ModelError("The adapter names other weights than the seed's as its base.", ANOTHER_SEED)
        is_pinned = _COMMIT.fullmatch(self.revision) and origin.commit and origin.hub_name == self.name
        if is_pinned and self.revision != origin.commit:
            raise ModelError(
                f"The adapter belongs to commit {self.revision} of {self.name}, the seed is commit {origin.commit}.",
                ANOTHER_SEED,
            )


def adapter_base(folder: Path) -> AdapterBase:
    """The base model that an adapter's files name."""
    config = _read_config(folder)
    name, revision = (config.get(field) for field in ("base_model_name_or_path", "revision"))
    return AdapterBase(short(name or ""), short(revision or ""), _metadata(folder).get(BASE_HASH, ""))


def read_adapter(lm: nn.Module, folder: Path, changes: list[str]) -> dict[str, Tensor]:
    """The tensors of an adapter as those of a LoRA expert of the seed model `lm`, in float32 as peft computes them.

    Appends to `changes` what was left out or read in another way. Raises ModelError with the first thing that the
    expert could not hold exactly, or that does not fit the model.
    """
    config = _read_config(folder)
    _refuse_other_kinds(folder, config)
    maps = {name: getattr(holder, attribute) for name, holder, attribute in all_places(lm)}
    try:
        stored, names = StoredTensors(_weights_file(folder)), AdapterNames(lm, maps)
        tables = {name: table for name in stored if (table := names.table(name))}
        factors = names.factors([name for name in stored if name not in tables])
        if not factors:
            raise ModelError(f"The adapter has no low-rank changes in {WEIGHTS}.", _SAVE_AGAIN)
        for name, table in tables.items():
            _refuse_another_table(stored, name, lm.state_dict()[table])
        map_names = sorted({factor.rpartition(".")[0] for factor in factors})
        for map_name in map_names:
            _refuse_another_shape(stored, factors, map_name, maps[map_name], _rank(config, map_name))
        state = _read_tensors(stored, factors)
    except (OSError, SafetensorError, MemoryError) as error:
        raise ModelError(
            f"{folder / WEIGHTS} is not a complete safetensors file: {short(error)}.", _SAVE_AGAIN
        ) from None
    changes += [*names.changes, *(f"“{short(name)}” equals the seed's and was left out." for name in tables)]
    if not any(all(state[f"{map_name}.{factor}"].any() for factor in FACTORS.values()) for map_name in map_names):
        changes.append("Every change of the adapter is zero: the expert equals its seed.")
    return state | {f"{map_name}.scale": _scale(config, map_name) for map_name in map_names}


def _read_config(folder: Path) -> dict[str, Any]:
    config = read_object(folder, CONFIG, _CONFIG_BYTES)
    if config is None:
        raise ModelError(f"{folder} has no {CONFIG}.", "Give the folder of an adapter.")
    return config


def _refuse_other_kinds(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises ModelError for code, and for a configuration that asks for more than low-rank changes."""
    if config.get("auto_map"):
        raise ModelError(f"{folder / CONFIG} asks for code of its own (auto_map), which is never run.", _AGAIN)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"The adapter in {folder} is of the type “{short(kind)}”, not LORA.", _AGAIN)
    start, bias = config.get("init_lora_weights", True), config.get("bias", "none")
    if not any(start is one or start == one for one in _PLAIN_STARTS):
        raise ModelError(
            f"The adapter in {folder} began with init_lora_weights “{short(start)}”, which changes the model beneath.",
            _AGAIN,
        )
    others = {"bias": bias} if bias != "none" else {}
    others |= {name: value for name, value in config.items() if name not in _READ | _WITHOUT_EFFECT and value}
    if others:
        name = min(others)
        raise ModelError(
            f"The adapter in {folder} uses {short(name)} ({short(others[name])}), which a LoRA expert does not have.",
            _AGAIN,
        )


def _weights_file(folder: Path) -> Path:
    """The file of an adapter's tensors; raises ModelError where there is none that may be opened."""
    file = confined(folder, WEIGHTS)
    if file is None:
        pickles = sorted(path.name for path in folder.glob("adapter_model*") if path.suffix in (".bin", ".pt", ".pth"))
        held = f"only {pickles[0]}, a pickle, which is never opened" if pickles else f"no {WEIGHTS}"
        raise ModelError(f"The adapter in {folder} cannot be read: there is {held}.", _SAVE_AGAIN)
    return file


def _metadata(folder: Path) -> dict[str, str]:
    """The metadata of the file of tensors; empty where it cannot be read, which reading its tensors reports."""
    file = confined(folder, WEIGHTS)
    try:
        if file is None:
            return {}
        with safe_open(file, framework="pt") as opened:
            return opened.metadata() or {}
    except (OSError, SafetensorError):
        return {}


def _refuse_another_table(stored: StoredTensors, name: str, seed_table: Tensor) -> None:
    """Raises ModelError unless a whole tensor of the file equals the seed's; trainers write tables nobody trained."""
    kind, shape = stored.header(name)
    is_alike = kind.startswith(("F", "BF")) and tuple(shape) == tuple(seed_table.shape)
    if not is_alike or not torch.equal(stored[name].float(), seed_table.float()):
        differs = "has other numbers" if is_alike else f"is {' x '.join(map(str, shape))} of {kind}"
        raise ModelError(
            f"The adapter holds “{short(name)}” as a whole, and it {differs} than the seed's: it was trained or "
            "resized, which a LoRA expert does not hold.",
            "Merge the adapter into its model and import that.",
        )


def _refuse_another_shape(
    stored: StoredTensors, factors: Mapping[str, str], map_name: str, linear: Any, rank: float
) -> None:
    """Raises ModelError unless both factors of a map's change are stored as floats, with this rank and its sizes."""
    if lacking := [letter for letter, factor in FACTORS.items() if f"{map_name}.{factor}" not in factors]:
        raise ModelError(f"The adapter's tensor lora_{lacking[0]} of “{map_name}” is missing.", _SAVE_AGAIN)
    names = [factors[f"{map_name}.{factor}"] for factor in FACTORS.values()]
    types, (down, up) = zip(*map(stored.header, names), strict=True)
    if others := [type_ for type_ in types if not type_.startswith(("F", "BF"))]:
        raise ModelError(f"The adapter's tensors at “{map_name}” hold {others[0]} and no floats.", _SAVE_AGAIN)
    if len(down) != 2 or down[0] != rank:
        shape = " x ".join(map(str, down)) or "one number"
        raise ModelError(
            f"r (or rank_pattern) in {CONFIG} gives “{map_name}” the rank {rank:g}, but its tensor is {shape}.",
            f"Correct {CONFIG}.",
        )
    num_inputs, num_outputs = map_sizes(linear)
    if (down[1], *up) != (num_inputs, num_outputs, down[0]):
        raise ModelError(
            f"The adapter does not fit its base: {map_name} has {num_inputs} inputs and {num_outputs} outputs.",
            ANOTHER_SEED,
        )
    if rank > max(num_inputs, num_outputs):
        raise ModelError(
            f"The adapter's rank at “{map_name}” is {rank:g}, more than the map has inputs or outputs.", _AGAIN
        )


def _read_tensors(stored: StoredTensors, factors: Mapping[str, str]) -> dict[str, Tensor]:
    """The factors in float32; raises ModelError for numbers that are not finite."""
    state: dict[str, Tensor] = {}
    for factor, name in factors.items():
        tensor = stored[name].float()
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"“{short(name)}” of the adapter holds infinite numbers or NaN.", _DIVERGED)
        state[factor] = tensor
    return state


def _rank(config: Mapping[str, Any], map_name: str) -> float:
    return _of_place(config, "rank_pattern", "r", 8, map_name)


def _scale(config: Mapping[str, Any], map_name: str) -> Tensor:
    """The factor of a map's change, one number."""
    rank, alpha = _rank(config, map_name), _of_place(config, "alpha_pattern", "lora_alpha", 8, map_name)
    return torch.tensor([alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)])


def _of_place(config: Mapping[str, Any], patterns: str, field: str, default: float, map_name: str) -> float:
    """The rank or the alpha of a map: that of the first pattern that the end of its name matches, as in peft."""
    by_pattern = config.get(patterns) or {}
    if not isinstance(by_pattern, dict):
        raise ModelError(f"The adapter's {patterns} is not a JSON object.", _SAVE_AGAIN)
    if odd := [pattern for pattern in by_pattern if not _PATTERN.fullmatch(pattern)]:
        raise ModelError(
            f"The adapter's {patterns} has the pattern “{short(first_of(odd))}”, not a plain name.", _BY_NAMES
        )
    matching = (value for pattern, value in by_pattern.items() if re.match(rf"(.*\.)?({pattern})$", map_name))
    value = next(matching, config.get(field, default))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        raise ModelError(
            f"The adapter's {field} at “{map_name}” must be a number above 0, not {short(value)}.", f"Correct {CONFIG}."
        )
    return float(value)


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
            map_name = self._place(match["path"], self._by_bare) if match else None
            if (
                match is None
                or map_name is None
                or bool(match["of_rows"]) != isinstance(self.maps[map_name], nn.Embedding)
            ):
                raise self._refusal(name, match and match["path"])
            of.add(match["rows_of"] or match["map_of"] or "")
            factor = f"{map_name}.{FACTORS[match['of_rows'] or match['of_map']]}"
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
        map_name = by_bare[bare]
        for part in path.split("."):
            if part in WRAPPERS and part not in map_name.split("."):
                changes[f"“{part}.” in the names of its tensors (of {WRAPPERS[part]}) was left out."] = None
        self.changes |= changes
        return map_name

    def _refusal(self, name: str, path: str | None) -> ModelError:
        """Why an expert cannot have this tensor, and what to do about it."""
        start = f"The adapter changes “{short(name)}”"
        if path is None:
            what = next((words for part, words in _OTHER_KINDS.items() if part in name), "")
            if not what and "lora_" in name.lower():
                return ModelError(f"“{short(name)}” is not a name of PEFT's, but of another tool.", PEFT_NAMES)
            what = what or "a tensor of its own"
            return ModelError(f"{start}, which is {what}: a LoRA expert has low-rank changes only.", MERGE)
        bare = _bare(path).removeprefix(PREFIX)
        own = [map_name for map_name in self._by_bare if bare.endswith(f".{map_name}")]
        if own:
            prefix = name[: name.index(own[0])]
            return ModelError(
                f"The names of the adapter's tensors begin with “{short(prefix)}”, not known here: “{short(name)}”.",
                f"Rename its tensors so that they begin with “{PREFIX}” instead.",
            )
        if bare in {_bare(module) for module, _ in self.lm.named_modules()}:
            return ModelError(f"{start}, where a LoRA expert of this seed has no map.", MERGE)
        layers = [int(number) for map_name in self.maps for number in _LAYER.findall(map_name)]
        number = next(iter(_LAYER.findall(bare)), None)
        if number is not None and layers and int(number) > max(layers):
            return ModelError(f"{start}, but the seed has {max(layers) + 1} layers.", ANOTHER_SEED)
        return ModelError(f"{start}, but the seed has nothing of this name.", ANOTHER_SEED)


def _bare(path: str) -> str:
    """A name without the parts that programs put around a model."""
    return ".".join(part for part in path.split(".") if part not in WRAPPERS)
