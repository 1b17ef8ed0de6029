"""The result sentence of a training of MoDE experts."""

from __future__ import annotations

from ui.present.text.formatting import listed
from workbench.kinds.kind import Result


def mode_sentence(result: Result) -> str:
    """Its parts, their size and its mixture."""
    parts, size = listed(result["parts"]), f"{result['num_parameters']:,}"
    return f"{parts} beside the backbone, {size} parameters of their own, in the mixture {result['mixture']}."
