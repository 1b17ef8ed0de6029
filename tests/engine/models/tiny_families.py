"""A tiny random model of every causal LM family of the installed transformers, made from the default configuration.

Every whole number that is a size is replaced by a small one, by its name; nothing else of a family is known here.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.models.model_files import is_family

VOCAB, WIDTH, LAYERS = 64, 32, 2
FAMILIES = sorted(filter(is_family, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
COMMON = ("gpt2", "gpt_neox", "llama", "mistral", "mixtral", "opt", "qwen2")  # tried in depth
_KINDS = ("layer_types", "layers_block_type", "block_types", "_block_types", "mlp_layer_types")
_SMALL = (  # the first pattern that a name matches gives its number
    (r"(.*_)?vocab_size(_per_layer_input|_base)?|n_langs", VOCAB),
    (r"(type|task_type|segment)_vocab_size|.*_types", 2),
    (r"num_hidden_layers|n_layers?|num_layers|(encoder|decoder)_layers|num_(encoder|decoder)_layers", LAYERS),
    (r"num_blocks|num_dense_layers|num_layers_per_stack|n_layers_per_attn_res_block", LAYERS),
    (r"first_k_dense_replace|num_kv_shared_layers|num_nextn_predict_layers|moe_layer_start_index", 0),
    (r"(.*_)?(num_key_value_heads|num_kv_heads|num_query_groups|n_groups?|num_expert_group|topk_group|ngroups)", 1),
    (r".*(attention|query|mamba|linear|key|value|index)_(n_)?heads|(.*_)?(n_heads?|num_heads)|num_.*_heads", 2),
    (r"qk_rope_head_dim|qk_nope_head_dim|rotary_dim", 8),
    (r"(.*_)?(head_dim|dim_head|d_head|kv_channels|v_head_dim|headdim|attention_head_size)", 16),
    (r"(.*_)?(kv_lora_rank|q_lora_rank|o_lora_rank|rank|time_step_rank|dt_rank)", 8),
    (r"(.*_)?(num_local|num_routed|n_routed|num|n)_experts|moe_num_experts", 4),
    (r"(.*_)?(experts_per_tok(en)?|moe_topk|moe_k|top_k_experts)", 2),
    (r".*shared_experts|zero_expert_num", 1),
    (
        r"(.*_)?(n_positions|n_ctx|max_(position_embeddings|seq_len|length|.*_positions)|model_max_length|context_length)",
        64,
    ),
    (r"sliding_window(_size)?|attention_window_size|window_size|local_attention|attention_chunk_size", 32),
    (
        r"(.*_)?(hidden_size|n_embd|d_model|dim_model|emb_dim|embedding_dim|embedding_size|lru_width|word_embed_proj_dim)",
        WIDTH,
    ),
    (r"(.*_)?hidden_size_per_layer_input", 8),
    (
        r"(.*_)?(intermediate_size(_mlp)?|ffn_dim|ffn_hidden_size|ffn_hidden|n_inner|dim_ff|dff|d_inner|feed_forward_size)",
        64,
    ),
    (r"mamba_d_ssm", WIDTH),
    (r"(.*_)?(d_state|state_size)", 8),
    (r"(.*_)?chunk_size", 8),
)


_ALSO: dict[str, dict[str, Any]] = {  # what the sizes of a family must satisfy among each other
    "axk2": {"index_n_heads": 2},
    "bamba": {"mamba_n_heads": 4, "attn_layer_indices": [1]},
    "codegen": {"n_head": 4, "rotary_dim": 4},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_theta": 1e4, "rope_type": "default"}}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2},
    "falcon_h1": {"mlp_multipliers": [1.0, 1.0], "ssm_multipliers": [1.0] * 5},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"mamba_n_heads": 4, "layer_types": ["linear_attention", "full_attention"]},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 4, "n_groups": 1},
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "num_hidden_layers": 3,
        "num_mem_blocks": 1,
    },
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_config(family: str) -> Any:
    """The configuration of a model of two layers, or of one layer of each kind that the family mixes."""
    return CONFIG_MAPPING[family](**{**_small(CONFIG_MAPPING[family]()), **_ALSO.get(family, {})})


def tiny_model(family: str) -> Any:
    """A random model, in evaluation mode, whose every weight says something."""
    config = tiny_config(family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        lm = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]._from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in lm.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return lm.eval()


def _small(config: Any) -> dict[str, Any]:
    names = {*inspect.get_annotations(type(config))}
    values = config.to_dict()
    small: dict[str, Any] = {name: _number(name) for name, value in values.items() if is_size(name, value)}
    for name in [*small]:
        if name not in names and name not in type(config).attribute_map:
            del small[name]
    for name in getattr(config, "sub_configs", {}):
        if getattr(config, name, None) is not None and name in values:
            part = getattr(config, name)
            small[name] = {**_small(part), **({"model_type": part.model_type} if part.model_type else {})}
    small |= _one_of_each_kind(values, names)
    small |= {name: 0 for name, value in values.items() if name.endswith("token_id") and value is not None}
    small |= {"is_decoder": True} if "is_decoder" in names else {}
    small |= {"num_key_value_heads": 2} if small.get("num_key_value_heads") else {}
    return small


def _one_of_each_kind(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    kinds = {name: list(dict.fromkeys(values[name])) for name in _KINDS if isinstance(values.get(name), list)}
    size = max([LAYERS, *map(len, kinds.values())])
    small: dict[str, Any] = {name: (some * size)[:size] for name, some in kinds.items() if name in names}
    if small:
        small |= {name: size for name in ("num_hidden_layers",) if name in values}
    return small


def is_size(name: str, value: Any) -> bool:
    return type(value) is int and not isinstance(value, bool) and _number(name) is not None


def _number(name: str) -> int | None:
    return next((number for pattern, number in _SMALL if re.fullmatch(pattern, name)), None)
