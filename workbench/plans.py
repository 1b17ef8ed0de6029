"""What a plan is made of: jobs that are asked for in one go, each with those that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.spec_base import Spec


@dataclass(frozen=True)
class Step:
    """One job of a plan; `after` are the keys of those it needs."""

    key: str
    spec: Spec
    title: str
    after: tuple[str, ...] = ()
