"""Few-shot classification by experts (C-BTM §5 and A.7): tasks, prompts, option scores, and routings over them."""
