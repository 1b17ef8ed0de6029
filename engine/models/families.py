"""Hugging Face decoders of every family: made, loaded, and the places of their feed-forward and attention maps.

Surgery, training and mixing follow only `layout_of`, which finds the places by structure.
"""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from engine.config import ModelConfig, Targets
from engine.device import is_shapes_only
from engine.errors import ModelError
from engine.foreign_files import short
from engine.models import model_files
from engine.models.discovery import DecoderLayout, discover, family_of, is_linear, require_own_layers, takes_states_only
from engine.models.matrix_products import use_faster_products
from engine.models.stored_tensors import WRAPPERS, Unread

LAYOUTS: dict[str, Callable[[nn.Module], DecoderLayout]] = {}  # for families where discovery finds the wrong places
_building = RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Decorates functions that build a model, so that only one thread at a time runs one of them.

    While transformers builds a model it replaces methods of its own classes and torch's default precision: another
    thread that builds one meanwhile takes them for the real ones, and puts them back for good.
    """
    with _building:
        yield


def layout_of(lm: nn.Module) -> DecoderLayout:
    """The layout of a model, found by its structure; raises ModelError where that shows none."""
    layout = LAYOUTS.get(family_of(lm), discover)(lm)
    require_own_layers(lm, layout)
    return layout


Place = tuple[str, nn.Module, str]  # full name, the module that holds it, its attribute there


def ffn_places(lm: nn.Module, every: int = 1) -> Iterator[Place]:
    """Every linear map of the FFN of every k-th layer (k, 2k, …), or every whole mixture of experts there.

    Raises ModelError for a model without any.
    """
    layout = layout_of(lm)
    chosen = [paths if number % every == 0 else () for number, paths in enumerate(layout.ffn, 1)]
    if any(layout.ffn) and not any(chosen):
        problem = f"expert_every is {every}, but the model has {len(chosen)} layers."
        raise ModelError(problem, "Choose a smaller number.")
    if not any(chosen):
        problem = f"A model of the family “{family_of(lm)}” has no feed-forward networks of its own."
        raise ModelError(problem, "Choose another seed, or another method.")
    for name, holder, attribute in _places(lm, layout.layers, chosen):
        if not takes_states_only(getattr(holder, attribute)):
            problem = f"The mixtures of experts of the family “{family_of(lm)}” read more than a text's states."
            raise ModelError(problem, "Choose another seed, or the method LoRA or dense.")
        yield name, holder, attribute


def linear_places(lm: nn.Module, targets: Targets = "all") -> Iterator[Place]:
    """Every linear map of attention and FFNs, or of one of the two; not of a mixture of experts."""
    layout = layout_of(lm)
    both = tuple(map(operator.add, layout.attention, layout.ffn))
    paths = {"all": both, "attention": layout.attention, "ffn": layout.ffn}[targets]
    for name, holder, attribute in _places(lm, layout.layers, paths):
        if is_linear(getattr(holder, attribute)):
            yield name, holder, attribute


def embedding_place(lm: nn.Module) -> Place | None:
    """The table of vectors by which tokens enter the model; None where it is of a family's own kind."""
    embedding: Any = lm.get_input_embeddings()  # type: ignore[operator]
    name = next((name for name, module in lm.named_modules() if module is embedding), "")
    if type(embedding) is not nn.Embedding or not name:
        return None
    holder, _, attribute = name.rpartition(".")
    return name, lm.get_submodule(holder), attribute


def _places(lm: nn.Module, layers: str, paths: Sequence[Sequence[str]]) -> Iterator[Place]:
    for number, (layer, of_layer) in enumerate(zip(lm.get_submodule(layers).children(), paths, strict=True)):
        for path in of_layer:
            holder_path, _, attribute = path.rpartition(".")
            yield f"{layers}.{number}.{path}", layer.get_submodule(holder_path), attribute


def max_positions(config: Any) -> int:
    """The longest context in tokens, from a model's configuration."""
    return int(getattr(config, "max_position_embeddings", 1 << 20))


@one_at_a_time()
def fresh_model(config: ModelConfig, vocab_size: int, seed: int = 0) -> Any:
    """A randomly initialised decoder of the given shape; the same seed gives the same weights.

    Raises ModelError for a family that has no fresh models, and for a model larger than the memory.
    """
    from transformers import AutoModelForCausalLM

    hf_config = _hf_config(config, vocab_size)
    _refuse_too_large(_count_parameters(hf_config), "Choose fewer layers, or a smaller width.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        lm = AutoModelForCausalLM.from_config(hf_config, dtype=torch.float32)
    use_faster_products(lm)
    return lm


def _refuse_too_large(num_parameters: int, next_step: str, dtype: torch.dtype = torch.float32) -> None:
    size_bytes, memory = dtype.itemsize * num_parameters, memory_bytes()
    if size_bytes > memory:
        raise ModelError(
            f"A model of this shape takes {size_bytes >> 30:,} GB, but this machine has {memory >> 30:,} GB of memory.",
            next_step,
        )


def memory_bytes() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _hf_config(config: ModelConfig, vocab_size: int) -> Any:
    from transformers import GPT2Config, LlamaConfig, OPTConfig

    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "llama": (LlamaConfig, {"intermediate_size": config.ffn_width}),
        "gpt2": (GPT2Config, {"n_inner": config.ffn_width, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
        "opt": (OPTConfig, {"ffn_dim": config.ffn_width, "word_embed_proj_dim": config.width, "dropout": 0.0}),
    }
    if config.family not in kinds:
        problem = f"A fresh model cannot have the family “{config.family}”."
        raise ModelError(problem, f"Choose one of {', '.join(kinds)}, or import a trained model.")
    config_class, own = kinds[config.family]
    return config_class(
        vocab_size=vocab_size,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
        tie_word_embeddings=True,
        hidden_size=config.width,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        max_position_embeddings=config.max_positions,
        **own,
    )


def load_model(folder: Path) -> Any:
    """A causal LM from a local folder, in the precision that its weights are stored in (float32 for float64).

    Reads safetensors of this folder only and never runs code that comes with the model. Raises ModelError with the
    cause, before anything is built where the configuration asks for more than the files hold.
    """
    return load_checkpoint(folder, model_files.read_config(folder))[0]


@one_at_a_time()
def load_checkpoint(folder: Path, config: Any, file: str = "") -> tuple[Any, model_files.Weights, frozenset[str]]:
    """The model of a folder with this configuration, its files, and the names of the tensors that it has a place for.

    With `file` the weights are in that safetensors file only. Raises as `load_model` does.
    """
    weights = model_files.find_weights(folder, file)
    token_ids, _ = model_files.read_token_ids(folder, config.vocab_size)
    try:
        _refuse_missing(folder, config, weights)
        lm, used = load_weights(folder, config, weights.open(), weights.dtype)
        weights.check_types(folder, used, lm.state_dict())
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # transformers fails in many ways on a model that it does not expect
        problem = f"The model in {folder} cannot be loaded: {short(error)}"
        raise ModelError(problem, model_files.EXPECTED_MODEL) from error
    for name, value in token_ids.items():
        setattr(lm.generation_config, name, value)
    return lm, weights, used


@one_at_a_time()
def load_weights(
    folder: Path,
    config: Any,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    names: Mapping[str, str] | None = None,
) -> tuple[Any, frozenset[str]]:
    """The model of a configuration with these tensors, and the names of those that it has a place for.

    `names` are those of the model's weights by the tensors' names, and choose among them; None: they are the same. The
    model is built without memory for its weights, and each tensor becomes a weight as it is read: never two copies of
    one. Raises ModelError unless they fit; any other error of transformers passes.
    """
    if is_shapes_only():
        return empty_model(config).to(dtype), frozenset()
    # PyTorch's fused attention has no cap of the attention's scores (Gemma 2), and transformers 5.17 leaves it out
    attention = "eager" if getattr(config, "attn_logit_softcapping", None) else None
    unread = {name: Unread(tensors, name) for name in (tensors if names is None else names)}
    with silent():
        lm, report = _model_class(config).from_pretrained(
            None,
            config=config,
            state_dict={(names or {}).get(name, name): one for name, one in unread.items()},
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    _refuse_unlike(folder, report, tensors)
    _untie(lm)
    use_faster_products(lm)
    lm.config.name_or_path, lm.config.architectures = folder, [type(lm).__name__]
    return lm, frozenset(name for name, one in unread.items() if one.was_read)


def _untie(lm: Any) -> None:
    """Writes into the configuration that tables are not tied, where the weights hold two different ones.

    The configuration on its own must say what a model consists of: experts on it are saved and loaded by its names.
    """
    pairs = lm.get_expanded_tied_weights_keys(all_submodels=True).items()  # what the configuration ties
    tied = [lm.get_parameter_or_buffer(one) is lm.get_parameter_or_buffer(other) for one, other in pairs]
    if not tied or all(tied):
        return
    if any(tied):
        raise ModelError(
            "Some of the tables that the configuration ties (tie_word_embeddings) differ in the weights, others do "
            "not.",
            _MISMATCH,
        )
    lm.config.tie_word_embeddings = False


@contextmanager
def silent() -> Iterator[None]:
    """Keeps transformers from drawing a progress bar, and from reporting on weights: both is said in other words."""
    from transformers.utils import logging

    was_enabled, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if was_enabled:
            logging.enable_progress_bar()


def _model_class(config: Any) -> Any:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


@one_at_a_time()
def empty_model(config: Any) -> nn.Module:
    """A model of this configuration without memory for its weights."""
    with torch.device("meta"):
        lm: nn.Module = _model_class(config)(copy.deepcopy(config))
    return lm


def _count_parameters(config: Any) -> int:
    return num_parameters(empty_model(config))


def _refuse_missing(folder: Path, config: Any, weights: model_files.Weights) -> None:
    """Raises ModelError for more layers or parameters than the files or the memory hold, without allocating any."""
    if config.num_hidden_layers > weights.num_layers:
        raise ModelError(
            f"{folder / model_files.CONFIG} asks for {config.num_hidden_layers:,} layers, but the weights hold "
            f"{weights.num_layers:,}.",
            _MISMATCH,
        )
    wanted = _count_parameters(config)
    if wanted > weights.num_parameters:
        if wanted <= weights.num_elements:
            weights.refuse_integers(folder)
        _refuse_untied(folder, config, weights)
        raise ModelError(
            f"{folder / model_files.CONFIG} asks for {wanted:,} parameters, but the weights hold "
            f"{weights.num_parameters:,}.",
            _MISMATCH,
        )
    smaller = "Give a smaller model, or take a machine with more memory."
    _refuse_too_large(max(wanted, weights.num_elements), smaller, weights.dtype)


def _refuse_untied(folder: Path, config: Any, weights: model_files.Weights) -> None:
    """Raises ModelError where only the output table is missing, which the configuration does not tie to the input's."""
    tied = copy.deepcopy(config)
    tied.tie_word_embeddings = True
    if not getattr(config, "tie_word_embeddings", True) and _count_parameters(tied) <= weights.num_parameters:
        raise ModelError(
            f"tie_word_embeddings in {folder / model_files.CONFIG} is false, but the weights hold one table of tokens "
            "only: the output table is missing.",
            "Set it to true if the model was trained with one table, or give all of its weights.",
        )


def _refuse_unlike(folder: Path, report: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raises ModelError for weights that are missing or of another shape, which would stay random."""
    missing = {key for key in report.get("missing_keys", ()) if isinstance(key, str)}
    prefixes = {tensor.removesuffix(name) for name in missing for tensor in tensors if tensor.endswith(f".{name}")}
    if prefix := next((one for one in sorted(prefixes) if all(name.startswith(one) for name in tensors)), ""):
        known = " and ".join(WRAPPERS[part] for part in prefix.split(".") if part in WRAPPERS)
        raise ModelError(
            f"The names of the weights in {folder} begin with “{short(prefix)}”{known and f' (of {known})'}: "
            f"“{short(min(tensors))}”.",
            f"Save the model inside it again, so that its names begin after “{short(prefix)}”.",
        )
    for key, words in _UNLIKE.items():
        if report.get(key):
            name = min(one if isinstance(one, str) else one[0] for one in report[key])
            problem = f"The weights in {folder} do not fit its {model_files.CONFIG}: “{name}” {words}."
            raise ModelError(problem, _MISMATCH)


_MISMATCH = "Give a model whose configuration and weights belong together."
_UNLIKE = {
    "missing_keys": "is missing",
    "mismatched_keys": "is of another shape",
    "conversion_errors": "cannot be converted",
    "error_msgs": "cannot be loaded",
}


def num_parameters(module: nn.Module) -> int:
    """Parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())
