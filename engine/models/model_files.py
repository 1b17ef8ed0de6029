"""A model folder from any source: its configuration and its safetensors, checked before use.

transformers never sees the folder, since a folder can lead it elsewhere: to pickles by an index, to another model by an
adapter, to code by a configuration. It gets a configuration of known fields, and tensors that safetensors read.
"""

from __future__ import annotations

import inspect
import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import ModelError
from engine.foreign_files import HEAD_BYTES, confined, describe_pointer, read_object, short
from engine.models.stored_tensors import StoredTensors

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_GENERATION, _ADAPTER = "generation_config.json", "adapter_config.json"
SMALL_FILES = (CONFIG, _GENERATION, _ADAPTER, INDEX)
_CONFIG_BYTES, _INDEX_BYTES = 1 << 20, 32 << 20
_HEADER_BYTES = 32 << 20  # of all files together: some 200,000 tensors
_MAX_FILES = 1000
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors")
_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|attentions)\.(\d+)\.")
_FLOATS = {"F64": torch.float32, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}  # as loaded
_SMALL = ("F8_", "F6_", "F4")  # types of less than 16 bits
EXPECTED_MODEL = "Give a causal language model in safetensors format, without code of its own."
_AGAIN = "Download the model again."
CORRECT = "Correct it, or give the model as it was published."
_ID = "_token_id"  # how the fields end that name tokens
_UNQUANTIZED = "Give the model in float32, float16 or bfloat16 instead."

_SIZE, _LENGTH, _LAYERS, _COUNT = 1 << 20, 1 << 26, 1000, 1 << 12
_LARGEST = {  # the sizes that a configuration may ask for, several times those of the largest models known
    **dict.fromkeys(("num_hidden_layers", "n_layer", "max_window_layers"), _LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd", "word_embed_proj_dim", "intermediate_size", "ffn_dim", "n_inner"), _SIZE),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_key_value_heads"), _COUNT),
    **dict.fromkeys(("num_local_experts", "num_experts", "num_experts_per_tok"), _COUNT),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "sliding_window"), _LENGTH),
    "head_dim": 1 << 14,
    "vocab_size": 1 << 22,
}
_LARGEST_BY_NAME = (  # the same for other families' names: the first pattern that a name matches
    (
        re.compile(
            r"(n|num|.*_num)_(.*_)?(layers?|blocks)(_per_stack)?|(en|de)coder_layers|.*_layer_(period|interval|step)|attention_types"
        ),
        _LAYERS,
    ),
    (re.compile(r"(.*_)?(n|num)_(.*_)?heads?|.*_heads|.*_groups?|n_langs|[HL]_cycles"), _COUNT),
    (re.compile(r"(.*_)?(num_|n_)?(.*_)?experts(_per_tok(en)?)?|moe_(topk|k|top_k)"), _COUNT),
    (re.compile(r"(.*_)?vocab_size.*"), 1 << 26),
    (
        re.compile(
            r".*(hidden|intermediate|embedding|embed|state|inner|ffn|ff|head|model|rank|lru).*_?(size|dim|width)"
        ),
        _SIZE,
    ),
    (re.compile(r"d_.*|.*_rank|(.*_)?ffn_dim|dff|dim_.*|emb_dim|.*_dim|.*_kernel(_size)?|.*expand"), _SIZE),
    (re.compile(r"(.*_)?max_.*(positions|embeddings|len|length)|n_ctx|.*_length|.*window.*|.*chunk_size"), _LENGTH),
    (re.compile(r"first_k_dense_replace|moe_layer_.*_index|n_layers_.*|attention_types"), _LAYERS),
    (re.compile(r"zero_expert_num|.*ngroups|(prompt|segment)_types"), _COUNT),
    (re.compile(r"mamba_d_.*|.*_size_per_layer_input|.*_size_mlp|kv_channels|feed_forward_size"), _SIZE),
    (re.compile(r"local_attention"), _LENGTH),
)
_NONE_MEANS_DEFAULT = frozenset(
    ("n_inner", "num_key_value_heads", "head_dim", "sliding_window", "word_embed_proj_dim", "max_window_layers")
)
_BY_LAYER = frozenset(("intermediate_size", "num_experts", "num_experts_per_tok", "num_key_value_heads"))
_MAY_BE_ZERO = frozenset(("max_window_layers", "sliding_window"))
_FORMER_NAMES = ("rope_theta", "rope_scaling", "rotary_pct", "rotary_emb_base", "partial_rotary_factor")


def is_family(model_type: str) -> bool:
    """Whether transformers knows causal LMs of this model type that do not wrap other models.

    Asked of one type, since transformers imports the module of every type that is looked at.
    """
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not CONFIG_MAPPING[model_type].sub_configs


def read_config(folder: Path, left_out: dict[str, Any] | None = None) -> Any:
    """The transformers configuration of a model of a supported family; raises ModelError with the cause.

    Known fields only, each of its type and within bounds; others are left out. With `left_out`, so are token ids that
    the model has no row for: they go there, by the field's name.
    """
    config = read_object(folder, CONFIG, _CONFIG_BYTES)
    if config is None:
        raise ModelError(f"{folder} has no {CONFIG}.", "Give a model's folder.")
    kind = config.get("model_type")
    if not isinstance(kind, str) or not is_family(kind):
        raise ModelError(
            f"The model's family “{short(kind)}” is not supported: the installed transformers knows no causal language "
            "model of this name.",
            "Choose a seed of one of the families in docs/models.md.",
        )
    _refuse_other_weights(folder, config)
    if left_out is None:
        return _build_config(folder, kind, config)
    others = {name: value for name, value in config.items() if not name.endswith(_ID)}
    left_out |= _ids_outside(config, int(_build_config(folder, kind, others).vocab_size))
    inside = {name: _ids_inside(config[name], left_out[name]) for name in left_out}
    try:
        return _build_config(folder, kind, config | inside)
    except ModelError:  # of a family whose ids must be numbers: those that it has by default
        unset = {name for name, value in inside.items() if value is None}
        return _build_config(folder, kind, {name: one for name, one in (config | inside).items() if name not in unset})


def _ids_outside(config: Mapping[str, Any], num_rows: int) -> dict[str, list[int]]:
    """The token ids of a configuration that a model with so many rows has none for, by field."""
    ids = {name: [id for id in _leaves([value]) if type(id) is int] for name, value in config.items()}
    outside = {name: [id for id in of_one if not 0 <= id < num_rows] for name, of_one in ids.items()}
    return {name: of_one for name, of_one in outside.items() if name.endswith(_ID) and of_one}


def _ids_inside(value: Any, outside: Collection[int]) -> Any:
    """The value of such a field without some ids; None where none is left."""
    return ([id for id in value if id not in outside] or None) if isinstance(value, list) else None


def refuse_foreign_code(folder: Path) -> None:
    """Raises ModelError when the model needs code of its own, which is never run."""
    if (read_object(folder, CONFIG, _CONFIG_BYTES) or {}).get("auto_map"):
        problem = f"{folder / CONFIG} asks for code of the model's own (auto_map), which is never run."
        raise ModelError(problem, EXPECTED_MODEL)


def _refuse_other_weights(folder: Path, config: dict[str, Any]) -> None:
    """Raises ModelError for weights that are quantized, in another file, or of another model."""
    if config.get("quantization_config") is not None:
        raise ModelError(f"The weights in {folder} are quantized.", _UNQUANTIZED)
    if config.get("transformers_weights") not in (None, WEIGHTS, INDEX):
        problem = f"{folder / CONFIG} names {short(config['transformers_weights'])} as its weights."
        raise ModelError(problem, f"Give a folder with {WEIGHTS}, or with {INDEX}.")
    if confined(folder, _ADAPTER) is not None:
        problem = f"{folder} holds an adapter ({_ADAPTER}) for another model."
        raise ModelError(problem, "Merge the two, save the result, and give that.")


def _build_config(folder: Path, kind: str, values: dict[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING

    config_class: Any = CONFIG_MAPPING[kind]
    known = {*inspect.get_annotations(config_class), *config_class.attribute_map, *_FORMER_NAMES}
    fields = {name: value for name, value in values.items() if name in known}
    for name, value in fields.items():
        may_be_by_layer = name in _BY_LAYER and "list" in str(inspect.get_annotations(config_class).get(name))
        if isinstance(value, list) and may_be_by_layer:
            _check(folder, "num_hidden_layers", len(value))
            for of_layer in value:
                _check(folder, name, of_layer)
        else:
            _check(folder, name, value, may_be_none=getattr(config_class, name, 0) is None)
        if isinstance(value, list):  # transformers writes infinite numbers as objects
            fields[name] = [math.inf if of_layer == {"__float__": "Infinity"} else of_layer for of_layer in value]
    try:
        config = config_class(**fields)
    except MemoryError:
        raise
    except Exception as error:  # transformers fails in many ways on values that it does not expect
        raise ModelError(f"{folder / CONFIG} does not describe a model: {short(error)}.", CORRECT) from None
    rope = getattr(config, "rope_parameters", None) or {}
    if not (_between(rope.get("partial_rotary_factor", 1), 0, 1) and _between(rope.get("rope_theta", 1), 1e-3, 1e15)):
        raise ModelError(f"{folder / CONFIG} has no usable rotary embedding: {short(rope)}.", CORRECT)
    return config


def _leaves(value: Any) -> list[Any]:
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list) else [value]


def _check(folder: Path, name: str, value: Any, *, may_be_none: bool = False) -> None:
    """Raises ModelError for an invalid size, and for any other value that is not plain and small."""
    smallest, largest = 0 if name in _MAY_BE_ZERO else 1, _LARGEST.get(name)
    if largest is None:
        bound = next((bound for pattern, bound in _LARGEST_BY_NAME if pattern.fullmatch(name)), math.inf)
        if any(abs(leave) > bound for leave in _leaves(value) if type(leave) is int):
            problem = f"“{name}” in {folder / CONFIG} must be a whole number of at most {bound:,}, not {short(value)}."
            raise ModelError(problem, CORRECT)
        if not _is_plain(value) or ("drop" in name and value is not None and not _between(value, 0, 1)):
            raise ModelError(f"{folder / CONFIG} has no usable value for “{name}”: {short(value)}.", CORRECT)
    elif value is None and (may_be_none or name in _NONE_MEANS_DEFAULT):
        return
    elif type(value) is not int or not smallest <= value <= largest:
        raise ModelError(
            f"“{name}” in {folder / CONFIG} must be a whole number from {smallest} to {largest:,}, not {short(value)}.",
            CORRECT,
        )


def _is_plain(value: Any, depth: int = 3) -> bool:
    if isinstance(value, dict):
        return depth > 0 and len(value) <= 100 and all(_is_plain(one, depth - 1) for one in value.values())
    if isinstance(value, list):
        return depth > 0 and len(value) <= 10_000 and all(_is_plain(one, depth - 1) for one in value)
    if isinstance(value, str):
        return len(value) <= 1000
    return value is None or abs(value) < 1e15  # neither infinite nor NaN


def _between(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


@dataclass(frozen=True)
class Weights:
    """The safetensors files of a model's folder, with what their headers say of each tensor: type and size."""

    files: tuple[Path, ...]
    tensors: Mapping[str, tuple[str, int]]

    @property
    def num_parameters(self) -> int:
        """The number of floating-point parameters in the files."""
        return sum(size for kind, size in self.tensors.values() if kind in _FLOATS)

    @property
    def num_elements(self) -> int:
        """The number of elements of all types in the files."""
        return sum(size for _, size in self.tensors.values())

    @property
    def num_layers(self) -> int:
        return len({match[1] for match in map(_LAYER.search, self.tensors) if match})

    @cached_property
    def dtype(self) -> torch.dtype:
        """The type to load the model in: that of most numbers; float32 for those in double precision."""
        sizes = Counter[torch.dtype]()
        for kind, size in self.tensors.values():
            sizes[_FLOATS.get(kind, torch.float32)] += size if kind in _FLOATS else 0
        return max(sizes, key=lambda one: sizes[one], default=torch.float32)

    def open(self) -> StoredTensors:
        """The tensors by their names, each read when it is asked for."""
        return StoredTensors(*self.files)

    def refuse_integers(self, folder: Path) -> None:
        """Raises ModelError that names the largest tensor of whole numbers, if there is one."""
        sizes = {name: size for name, (kind, size) in self.tensors.items() if kind not in _FLOATS}
        if sizes:
            raise _holds_integers(folder, max(sizes, key=lambda name: sizes[name]))

    def check_types(self, folder: Path, used: Collection[str], loaded: Mapping[str, Tensor]) -> None:
        """Raises ModelError when loading changed a tensor's type, which would lose or invent digits.

        `used` are the names of tensors that were read, `loaded` the tensors that a model made of them.
        """
        kept = {_end_of(name): tensor.dtype for name, tensor in loaded.items()}
        for name in sorted(used):
            kind = self.tensors[name][0]
            after = kept.get(_end_of(name), self.dtype)
            if kind not in _FLOATS and after.is_floating_point:
                raise _holds_integers(folder, name)
            if kind in _FLOATS and _FLOATS[kind] not in (self.dtype, after):
                own, others = (str(dtype).removeprefix("torch.") for dtype in (_FLOATS[kind], self.dtype))
                raise ModelError(
                    f"The weights in {folder} differ in their precision: “{short(name)}” is in {own}, most others in "
                    f"{others}.",
                    f"Save it in one precision, and give {folder}-float32: {_converting(folder)}",
                )


def _converting(folder: Path) -> str:
    """A shell command that saves a model in float32, which loses nothing."""
    code = (
        "import sys, transformers as t; a, b = sys.argv[1:]; "
        't.AutoModelForCausalLM.from_pretrained(a, dtype="float32").save_pretrained(b); '
        "t.AutoTokenizer.from_pretrained(a).save_pretrained(b)"
    )
    return shlex.join(["python", "-c", code, str(folder), f"{folder}-float32"])


def _holds_integers(folder: Path, name: str) -> ModelError:
    return ModelError(f"The weights in {folder} are quantized: “{short(name)}” holds whole numbers.", _UNQUANTIZED)


def _end_of(name: str) -> str:
    """The end of a tensor's name, which renaming keeps."""
    return ".".join(name.split(".")[-2:])


def find_weights(folder: Path, file: str = "") -> Weights:
    """The weights of a folder: the named safetensors file, else model.safetensors, else those that an index names.

    Reads only their headers, which safetensors checks against the files' lengths. Raises ModelError with the cause.
    """
    names = [file] if file else [WEIGHTS] if confined(folder, WEIGHTS) else shard_names(folder)
    files: dict[Path, Path] = {}
    for name in names:
        if (path := confined(folder, name)) is None:
            raise ModelError(f"The model in {folder} cannot be loaded: {name} is missing.", _AGAIN)
        files[folder / name] = path
    length = sum(_header_length(path, real) for path, real in files.items())
    if length > _HEADER_BYTES:
        raise ModelError(f"The weights in {folder} have headers of {length:,} bytes, which are too large.", _AGAIN)
    weights = weights_in(files)
    for name, (kind, _) in sorted(weights.tensors.items()):
        if kind.startswith(_SMALL):
            raise ModelError(f"The weights in {folder} are quantized: “{short(name)}” is in {kind}.", _UNQUANTIZED)
    return weights


def weights_in(files: Mapping[Path, Path]) -> Weights:
    """The weights in these files, by the paths that messages name."""
    tensors: dict[str, tuple[str, int]] = {}
    for path, file in files.items():
        try:
            with safe_open(file, framework="numpy") as opened:
                slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
                header = {name: (slice_.get_dtype(), math.prod(slice_.get_shape())) for name, slice_ in slices.items()}
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path} is not a complete safetensors file: {short(error)}.", _AGAIN) from None
        if twice := tensors.keys() & header.keys():
            problem = f"Several files in {path.parent} hold the tensor “{short(min(twice))}”."
            raise ModelError(problem, "Remove one of them.")
        tensors |= header
    return Weights(tuple(files.values()), tensors)


def shard_names(folder: Path) -> list[str]:
    """The files that the index names, which must be safetensors of the folder itself."""
    index = read_object(folder, INDEX, _INDEX_BYTES)
    if index is None:
        raise ModelError(f"The model in {folder} cannot be loaded: there is no {WEIGHTS}.", EXPECTED_MODEL)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{folder / INDEX} does not say which file holds which weight.", _AGAIN)
    for name in weight_map.values():
        if not (isinstance(name, str) and _SHARD.fullmatch(name)):
            problem = f"{folder / INDEX} names {short(name)}, which is not a .safetensors file of this folder."
            raise ModelError(problem, EXPECTED_MODEL)
    names = sorted(set(weight_map.values()))
    if len(names) > _MAX_FILES:
        raise ModelError(f"{folder / INDEX} names {len(names):,} files, more than {_MAX_FILES:,}.", _AGAIN)
    return names


def _header_length(path: Path, file: Path) -> int:
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD_BYTES)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from None
    if pointer := describe_pointer(head, path):
        raise ModelError(*pointer)
    length = int.from_bytes(head[:8], "little")
    if not 0 < length <= file.stat().st_size - 8:
        raise ModelError(f"{path} is not a complete safetensors file.", _AGAIN)
    return length


def read_token_ids(folder: Path, vocab_size: int) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The beginning, ending and padding tokens that the folder's generation_config.json names.

    Ids outside the vocabulary are left out, since published models have them: they come second, by field.
    """
    generation_config = read_object(folder, _GENERATION, _CONFIG_BYTES) or {}
    outside = _ids_outside(generation_config, vocab_size)
    token_ids = {}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = generation_config.get(name)
        value = _ids_inside(value, outside[name]) if name in outside else value
        ids = value if isinstance(value, list) and name == "eos_token_id" else [value]
        if 0 < len(ids) <= 100 and all(type(id) is int for id in ids):
            token_ids[name] = value
    return token_ids, outside
