"""The families that the tests of surgery, files and MoDE try in depth; `test_all_families` tries all others."""

FAMILIES = ("gpt2", "gpt_neox", "llama", "mistral", "mixtral", "opt", "qwen2")
