"""Folders of tokenizers with a chat template, as transformers saves them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.engine.tokenizer_shapes import byte_level

# As in Qwen2.5's and SmolLM2's tokenizer_config.json, without their default system message.
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
    "+ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# The same with the marks that TRL's training templates have.
MARKED = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat_folder(folder: Path, template: str = CHATML) -> Path:
    """Writes a byte-level tokenizer with ChatML's control tokens and a template."""
    folder.mkdir(parents=True, exist_ok=True)
    byte_level("<|endoftext|>", "<|im_start|>", "<|im_end|>").save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if template:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder
