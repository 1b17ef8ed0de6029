"""What files of row methods say is looked up here: which method, which placement, which limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.errors import DamagedFileError, ModelError
from engine.files import ArtifactRef
from engine.methods.base_card import stored_placement
from engine.methods.multi_expert_files import load_experts, read_card
from engine.methods.registry import methods
from engine.methods.rows import RowMethod
from engine.models.context_length import Limits
from engine.models.families import longest_context, read_config
from engine.models.multi_expert import MultiExpertModel, Placement


def row_method(experts_in: str) -> RowMethod:
    """The method whose files have this placement; raises ModelError if it is not installed."""
    of_rows = [method for method in methods().values() if isinstance(method, RowMethod)]
    matches = [method for method in of_rows if method.experts_in == experts_in]
    if not matches:
        raise ModelError(f"No method is installed that reads experts in “{experts_in}”.", "Install its package.")
    return min(matches, key=lambda method: bool(method.method_of_copy))


def new_placement(experts_in: str = "ffn") -> Placement:
    """The placement of a new model's experts."""
    return row_method(experts_in).new_placement()


def load_multi_expert(base: ArtifactRef, experts: Mapping[str, ArtifactRef]) -> MultiExpertModel:
    """The model of a base folder with these experts (by key), by whatever row method; every byte is checked."""
    if not experts:
        raise ModelError("No expert was given to load.", "Choose an expert.")
    base.check()
    first = next(iter(experts.values()))
    first.check()
    return load_experts(base, experts, new_placement(stored_placement(read_card(first.folder), base.folder)))


def read_limits(base: Path) -> Limits:
    """The limits of a base, without its tensors; raises DamagedFileError where they cannot be read."""
    try:
        config = read_config(base)
        longest = longest_context(config) - row_method(stored_placement({}, base)).extra_positions
        return Limits(longest, int(config.vocab_size))
    except Exception as error:  # transformers fails in many ways on a folder that is gone, or changed
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedFileError(
            f"{base} has no valid base of a model ({reason}).", "Restore it from a copy, or train it again."
        ) from None
