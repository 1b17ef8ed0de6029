"""Check the engine's laws."""

from __future__ import annotations

from typing import Literal

from workbench.formatting.number_format import listed
from workbench.kinds.kind import Kind, Result, ResultLink, no_path, nothing
from workbench.specs.base import Spec as Spec


class SelfCheck(Spec):
    """Check the engine's laws on a tiny model, with the worker's machine and library versions."""

    kind: Literal["selfcheck"] = "selfcheck"


def summary(findings: Result) -> str:
    """Whether all laws hold, or which do not."""
    total, failed = len(findings["laws"]), findings["failed"]
    if not failed:
        return f"All {total} laws hold on this machine."
    verb = "does" if len(failed) == 1 else "do"
    return f"{len(failed)} of {total} laws {verb} not hold on this machine: {listed(failed)}."


KIND = Kind(
    spec=SelfCheck,
    title="Self-check",
    creates=nothing,
    requires=nothing,
    reads=no_path,
    uses_gpu=True,
    command="selfcheck",
    sentence=summary,
    link=ResultLink("selfcheck", "See the laws"),
)
