"""Check the engine's laws."""

from __future__ import annotations

from typing import Literal

from workbench.kinds.kind import Kind, no_path, nothing
from workbench.spec_base import Spec as Spec


class SelfCheck(Spec):
    """Check the engine's laws on a tiny model, with the worker's machine and library versions."""

    kind: Literal["selfcheck"] = "selfcheck"


KIND = Kind(
    spec=SelfCheck,
    title="Self-check",
    creates=nothing,
    requires=nothing,
    reads=no_path,
    uses_gpu=True,
)
