"""Whether blocks of text fit the context of the model that a training starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.schema.tables import SeedModel

_LONGEST = ("max_position_embeddings", "n_positions")  # in a model's config.json, by family


def too_long_blocks(seed: SeedModel | None, block_size: int) -> list[str]:
    """A complaint where blocks exceed the context; none where the seed model is not there yet, or names no context."""
    longest = next((int(seed.config[name]) for name in _LONGEST if name in seed.config), None) if seed else None
    if seed is None or longest is None or block_size <= longest:
        return []
    return [
        f"Block size (--block-size) must be at most {longest:,}, the context of “{seed.name}” in tokens, not "
        f"{block_size:,}: choose a smaller one."
    ]
