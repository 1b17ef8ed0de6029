"""Exact mixtures of LoRA experts inside vLLM: a logits processor, and a scheduler that keeps a group in one step."""
