"""Chat templates as models are published with them, for folders made in tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from engine.text.chat.answers import Message
from engine.text.chat.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.tokenizer_shapes import byte_level

# tokenizer_config.json of HuggingFaceTB/SmolLM2-135M-Instruct, without its default system message
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# tokenizer_config.json of Qwen/Qwen2.5-0.5B-Instruct, without its tools
QWEN = (
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n"
    "{%- else %}\n"
    "    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\\n' }}\n"
    "{%- endif %}\n"
    "{%- for message in messages %}\n"
    '    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or '
    '(message.role == "assistant" and not message.tool_calls) %}\n'
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n"
)
# chat_template.jinja of Qwen/Qwen3-0.6B, without its tools: only the last answer has thoughts
QWEN_3 = (
    "{%- set ns = namespace(last=-1) %}\n"
    "{%- for message in messages %}{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}"
    "{%- endfor %}\n"
    "{%- for message in messages %}\n"
    "    {%- if message.role == 'assistant' and loop.index0 > ns.last %}\n"
    "        {{- '<|im_start|>assistant\\n<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' + "
    "message.content + '<|im_end|>\\n' }}\n"
    "    {%- else %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "    {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n"
)
# tokenizer_config.json of meta-llama/Meta-Llama-3-8B-Instruct
LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# tokenizer_config.json of google/gemma-2-2b-it
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}"
    "{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
# tokenizer_config.json of mistralai/Mistral-7B-Instruct-v0.1
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
# tokenizer_config.json of microsoft/Phi-3-mini-4k-instruct: an end of the text after the end of the turn
PHI_3 = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + "
    "'<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
# tokenizer_config.json of HuggingFaceTB/SmolLM3-3B marks its answers in this way
MARKED = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{% else %}"
    "{{ message.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# template, special tokens (the first are BOS and EOS, maybe none), the token that ends a turn
CHATS: dict[str, tuple[str, tuple[str | None, str], tuple[str, ...], str]] = {
    "chatml": (
        CHATML,
        ("<|endoftext|>", "<|im_end|>"),
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
    ),
    "qwen": (QWEN, (None, "<|im_end|>"), ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>"),
    "qwen 3": (QWEN_3, (None, "<|im_end|>"), ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>"),
    "llama 3": (
        LLAMA_3,
        ("<|begin_of_text|>", "<|end_of_text|>"),
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
    ),
    "gemma": (
        GEMMA,
        ("<bos>", "<eos>"),
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>",
    ),
    "mistral": (MISTRAL, ("<s>", "</s>"), ("<s>", "</s>"), "</s>"),
    "phi 3": (
        PHI_3,
        ("<s>", "<|endoftext|>"),
        ("<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
        "<|end|>",
    ),
    "marked": (MARKED, (None, "<|im_end|>"), ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>"),
}


def chat_folder(folder: Path, name: str = "chatml", *, has_template: bool = True) -> Path:
    """A tokenizer's folder with one of these templates, or with its special tokens alone."""
    template, (bos, eos), special, _ = CHATS[name]
    folder.mkdir(parents=True, exist_ok=True)
    byte_level(*special).save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        **({"chat_template": template} if has_template else {}),
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def qwen_model(folder: Path) -> Path:
    """Few and random weights, but the configuration of Qwen/Qwen2.5-0.5B-Instruct: its heads, biases and files."""
    chat_folder(folder, "qwen")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=264,  # more than the tokenizer has, as Qwen's
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        rope_theta=1e6,
        tie_word_embeddings=True,
        bos_token_id=256,
        eos_token_id=258,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    ends = {"bos_token_id": 256, "eos_token_id": [258, 256], "pad_token_id": 256, "do_sample": True, "top_k": 20}
    (folder / "generation_config.json").write_text(json.dumps(ends, indent=7))
    return folder


def ids_of(template: ChatTemplate, tokenizer: Tokenizer, talk: Sequence[Message], *, opens: bool = False) -> list[int]:
    """The ids of a conversation; with `opens` up to where the answer begins."""
    *_, tokens = template._encode(tokenizer, talk, opens)
    return [token.id for token in tokens]
