"""Words about folders for other tools."""

from __future__ import annotations

LOADED_BY = {
    "hf": "AutoModelForCausalLM.from_pretrained",
    "moe": "AutoModelForCausalLM.from_pretrained",
    "peft": "PeftModel.from_pretrained",
    "gguf": "llama-cli -m",
}
