"""The steps of a plan: jobs that are submitted together, each with its dependencies."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.specs.base import Spec


@dataclass(frozen=True)
class Step:
    """One job of a plan; `after` holds the keys of the jobs it waits for."""

    key: str
    spec: Spec
    title: str
    after: tuple[str, ...] = ()
