"""Tiny GGUF files of the family llama, written by the library that llama.cpp's own converter uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel

WIDTH, LAYERS, HEADS, FFN, CONTEXT = 64, 2, 2, 96, 128
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), "th", "the", "12"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
Change = Callable[[gguf.GGUFWriter], None]


def write_gguf(
    path: Path,
    quantization: str = "Q8_0",
    *,
    architecture: str = "llama",
    split: str = "smollm",
    template: str = TEMPLATE,
    change: Change | None = None,
    round_to: torch.dtype = torch.float32,
) -> Path:
    """Writes a model of random weights; matrices are quantized, vectors are in float32 as llama.cpp leaves them."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quantization}" if quantization != "F32" else "ALL_F32"])
    writer.add_name("Tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    _add_tokenizer(writer, split, template)
    rng = np.random.default_rng(0)
    kind = gguf.GGMLQuantizationType[quantization]
    for name, shape in _shapes():
        drawn = torch.tensor(rng.normal(0, 0.1, shape) + (len(shape) == 1))
        numbers = drawn.to(round_to).float().numpy()
        stored = gguf.GGMLQuantizationType.F32 if len(shape) == 1 else kind
        writer.add_tensor(name, gguf.quantize(numbers, stored), raw_dtype=stored)
    if change is not None:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, split: str, template: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in TOKENS])
    writer.add_token_merges(["t h", "th e", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    if template:
        writer.add_chat_template(template)


def _shapes() -> list[tuple[str, tuple[int, ...]]]:
    of_layer = {
        "attn_norm": (WIDTH,),
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH // HEADS, WIDTH),
        "attn_v": (WIDTH // HEADS, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_norm": (WIDTH,),
        "ffn_gate": (FFN, WIDTH),
        "ffn_up": (FFN, WIDTH),
        "ffn_down": (WIDTH, FFN),
    }
    layers = [(f"blk.{i}.{name}.weight", shape) for i in range(LAYERS) for name, shape in of_layer.items()]
    return [("token_embd.weight", (len(TOKENS), WIDTH)), ("output_norm.weight", (WIDTH,)), *layers]
