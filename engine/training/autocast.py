"""The precision of updates and of held-out losses."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from engine.config import Precision


def autocast_for(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast for a precision on a device; for this thread only (`engine.inference.scores` enters its own)."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
