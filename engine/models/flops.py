"""Floating-point operations of a decoder from its shape: per token read, and per token trained on.

Narayanan et al. (2021), whose formula DEMix uses (appendix A.3, table 2), count the matrix products of a GPT with
layers l, width h, vocabulary V, B sequences of s tokens: F = 96·B·s·l·h²·(1 + s/(6h) + V/(16·l·h)). A backward pass
costs twice its forward pass, and theirs runs every layer's forward pass a second time instead of keeping activations.
We keep them, so ours is 72·B·s·l·h²·(1 + s/(6h) + V/(12·l·h)), and what is computed twice is not counted as progress.

The terms are kept apart here, so that feed-forward networks of any width and number of maps, and keys of fewer heads,
are counted as they are. A product of [m, k] and [k, n] is 2·m·k·n operations; sums, norms and softmax are left out.
A DEMix layer sends a sequence to one expert, so training costs what the dense model costs (§3.2); a mixture of k
experts runs k whole forward passes, though it reads the shared weights from memory once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.config import ModelConfig

_WIDTH = ("hidden_size", "n_embd", "d_model", "emb_dim")  # the names of one size in different families
_HEADS = ("num_attention_heads", "n_head", "attention_heads", "decoder_attention_heads", "n_heads", "num_heads")
_LAYERS = ("decoder_layers", "num_hidden_layers", "n_layer", "num_layers", "n_layers")
_FFN = ("moe_intermediate_size", "intermediate_size", "decoder_ffn_dim", "ffn_dim", "n_inner", "dff")
_UNGATED = ("gpt2", "opt", "gpt_neox")  # two maps in each feed-forward network; the others have three


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder, as counting needs it."""

    num_layers: int
    width: int
    attention_width: int  # of all query heads together
    key_width: int  # of all key (or value) heads together
    ffn_width: int
    ffn_maps: int
    vocab_size: int
    embedding_width: int
    ffn_active: int = 1  # networks that a token goes through, in a mixture of experts
    ffn_choices: int = 0  # networks that its router chooses from

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """The shape from a model's config.json, with the field names of any family."""
        width, heads = _number(config, _WIDTH), _number(config, _HEADS, default=1)  # a recurrent model has no heads
        head_width = int(config.get("head_dim") or width // heads)
        return cls(
            num_layers=_number(config, _LAYERS),
            width=width,
            attention_width=heads * head_width,
            key_width=_number(config, ("num_key_value_heads",), default=heads) * head_width,
            ffn_width=_number(config, _FFN, default=4 * width),
            ffn_maps=2 if config["model_type"] in _UNGATED else 3,
            vocab_size=int(config["vocab_size"]),
            embedding_width=int(config.get("word_embed_proj_dim") or width),
            ffn_active=_number(config, ("num_experts_per_tok",), default=1),
            ffn_choices=_number(config, ("num_local_experts", "num_experts", "n_routed_experts"), default=0),
        )

    @classmethod
    def fresh(cls, config: ModelConfig, vocab_size: int) -> Shape:
        """The shape of a fresh model."""
        sizes = {
            "num_hidden_layers": config.num_layers,
            "hidden_size": config.width,
            "num_attention_heads": config.num_heads,
            "intermediate_size": config.ffn_width,
        }
        return cls.of({"model_type": config.family, "vocab_size": vocab_size, **sizes})

    @property
    def ffn(self) -> int:
        """One layer's feed-forward network, per token; of a mixture of experts the active ones, and the router."""
        return 2 * self.width * (self.ffn_maps * self.ffn_width * self.ffn_active + self.ffn_choices)

    @property
    def projections(self) -> int:
        """One layer's maps to queries, keys, values and back, per token."""
        return 2 * self.width * (2 * self.attention_width + 2 * self.key_width)

    def scores(self, context: int) -> int:
        """One layer's products of queries with keys and of weights with values, per token of so long a context."""
        return 2 * 2 * context * self.attention_width

    def through_layer(self, context: int) -> int:
        """One layer's backward pass without the gradients of its weights, per token of so long a context."""
        return self.projections + self.ffn + 2 * self.scores(context)

    @property
    def ends(self) -> int:
        """The logits, and the maps between embeddings and layers where their widths differ, per token."""
        between = 2 * 2 * self.width * self.embedding_width if self.embedding_width != self.width else 0
        return 2 * self.embedding_width * self.vocab_size + between


def forward_flops(shape: Shape, context: int, num_experts: int = 1) -> int:
    """Operations per token of `num_experts` forward passes over a context of so many tokens."""
    layer = shape.projections + shape.ffn + shape.scores(context)
    return num_experts * (shape.num_layers * layer + shape.ends)


def training_flops(shape: Shape, context: int) -> int:
    """Operations per token trained on, forward and backward, where everything learns; nothing is recomputed.

    Where the shared parameters are frozen it is less: each method counts it in its own `flops`.
    """
    return 3 * forward_flops(shape, context)


def _number(config: Mapping[str, Any], names: Sequence[str], default: int = 0) -> int:
    """The first of these fields that is set; of one that differs from layer to layer the mean."""
    values = (config[name] for name in names if config.get(name))
    value: Any = next(values, default)
    return int(sum(value) / len(value)) if isinstance(value, list) else int(value)
