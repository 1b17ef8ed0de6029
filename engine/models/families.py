"""Where each family of Hugging Face decoders keeps its layers and the linear maps of their feed-forward networks.

Another family is another row: surgery, training and mixing follow this table alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from engine.config import Family, ModelConfig, Targets
from engine.errors import ModelError


@dataclass(frozen=True)
class Layout:
    """Dotted paths: from the model to its list of layers, and from a layer to the linear maps of FFN and attention.

    A mixture of experts is one place: its networks and their router belong together.
    """

    layers: str
    ffn: tuple[str, ...]
    attention: tuple[str, ...]


_LLAMA_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_LLAMA = Layout("model.layers", ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), _LLAMA_ATTENTION)
LAYOUTS = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "mixtral": Layout("model.layers", ("mlp",), _LLAMA_ATTENTION),
    "gpt2": Layout("transformer.h", ("mlp.c_fc", "mlp.c_proj"), ("attn.c_attn", "attn.c_proj")),
    "opt": Layout("model.decoder.layers", ("fc1", "fc2"), (*_LLAMA_ATTENTION[:3], "self_attn.out_proj")),
    "gpt_neox": Layout(
        "gpt_neox.layers",
        ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        ("attention.query_key_value", "attention.dense"),
    ),
}


def layout_of(lm: nn.Module) -> Layout:
    """The layout of a model's family; raises ModelError for a family that is not in the table."""
    kind = str(getattr(getattr(lm, "config", None), "model_type", type(lm).__name__))
    if kind not in LAYOUTS:
        raise ModelError(
            f"The model's family must be one of {', '.join(sorted(LAYOUTS))}, but is “{kind}” instead.",
            "Choose a seed of one of these families.",
        )
    return LAYOUTS[kind]


Place = tuple[str, nn.Module, str]  # full name, the module that holds it, its attribute there


def ffn_places(lm: nn.Module) -> Iterator[Place]:
    """Every linear map of every FFN, or every whole mixture of experts."""
    return _places(lm, layout_of(lm).ffn)


def linear_places(lm: nn.Module, targets: Targets = "all") -> Iterator[Place]:
    """Every linear map of attention and FFNs, or of one of the two; a mixture of experts is none."""
    layout = layout_of(lm)
    paths = {"all": layout.attention + layout.ffn, "attention": layout.attention, "ffn": layout.ffn}[targets]
    for name, holder, attribute in _places(lm, paths):
        if hasattr(getattr(holder, attribute), "weight"):
            yield name, holder, attribute


def _places(lm: nn.Module, paths: Sequence[str]) -> Iterator[Place]:
    layers = layout_of(lm).layers
    for number, layer in enumerate(lm.get_submodule(layers).children()):
        for path in paths:
            holder_path, _, attribute = path.rpartition(".")
            yield f"{layers}.{number}.{path}", layer.get_submodule(holder_path), attribute


def max_positions(lm: nn.Module) -> int:
    """The longest context the model takes, in tokens."""
    return longest_context(lm.config)


def longest_context(config: Any) -> int:
    """The same, as a model's configuration says it."""
    return int(getattr(config, "max_position_embeddings", 1 << 20))


def fresh_model(config: ModelConfig, vocab_size: int, seed: int = 0) -> Any:
    """A randomly initialised decoder of the given shape; the same seed gives the same weights.

    Raises ModelError for a family that has no fresh models, and for a shape that this machine's memory cannot hold.
    """
    from transformers import AutoModelForCausalLM

    _require_memory(config, vocab_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(_hf_config(config, vocab_size), dtype=torch.float32)


def _require_memory(config: ModelConfig, vocab_size: int) -> None:
    """Before anything is allocated, since Linux grants more memory than there is and then ends the process."""
    positions = 0 if config.family == "llama" else config.max_positions
    maps = 3 if config.family == "llama" else 2
    in_layers = config.num_layers * config.width * (4 * config.width + maps * config.ffn_width)
    size_bytes = 4 * (in_layers + (vocab_size + positions) * config.width)
    there = memory_bytes()
    if size_bytes > there:
        raise ModelError(
            f"A model of this shape takes about {size_bytes / 1e9:,.0f} GB, but this machine has {there / 1e9:,.0f} GB "
            "of memory.",
            "Choose fewer layers, or a smaller width or ffn_width.",
        )


def memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _hf_config(config: ModelConfig, vocab_size: int) -> Any:
    from transformers import GPT2Config, LlamaConfig, OPTConfig

    shared: Any = {
        "vocab_size": vocab_size,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": None,
        "tie_word_embeddings": True,
    }
    if config.family == "llama":
        return LlamaConfig(
            **shared, hidden_size=config.width, intermediate_size=config.ffn_width, num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads, max_position_embeddings=config.max_positions,
        )  # fmt: skip
    if config.family == "gpt2":
        return GPT2Config(
            **shared, n_embd=config.width, n_inner=config.ffn_width, n_layer=config.num_layers,
            n_head=config.num_heads, n_positions=config.max_positions,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
    if config.family == "opt":
        return OPTConfig(
            **shared, hidden_size=config.width, word_embed_proj_dim=config.width, ffn_dim=config.ffn_width,
            num_hidden_layers=config.num_layers, num_attention_heads=config.num_heads,
            max_position_embeddings=config.max_positions, dropout=0.0,
        )  # fmt: skip
    raise ModelError(
        f"A fresh model's family must be one of {', '.join(get_args(Family))}, but is “{config.family}” instead.",
        "Choose one of these, or bring a trained model of your own.",
    )


def load_model(folder: Path) -> Any:
    """A causal LM in float32 from a local folder.

    Reads safetensors only and never runs code that comes with the model. Raises ModelError with the cause.
    """
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} must be a folder with a config.json, but is not.", "Give a model's folder.")
    try:
        lm = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"The model in {folder} cannot be loaded: {_first_line(error)}", _MEND) from error
    layout_of(lm)
    return lm


def download_model(name: str) -> Path:
    """The local folder of a model on the Hugging Face hub, downloaded now: configuration, safetensors, tokenizer.

    Raises ModelError when it cannot be had.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED))
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"The model “{name}” cannot be downloaded: {_first_line(error)}",
            "Check its name and the network, or give a local folder.",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt"]
_MEND = "Give a causal language model in safetensors format, without code of its own."


def num_parameters(module: nn.Module) -> int:
    """Parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())
