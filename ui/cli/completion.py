"""Shell completion of names: experts, mixtures, jobs and the like, read from the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.registry.things import ThingKind

Completer = Callable[[str], list[str]]

# What the fields of job specs and the arguments of commands hold, by their names.
_KINDS: dict[str, tuple[ThingKind, ...]] = {
    "mixture": ("mixture",),
    "branch_from": ("mixture",),
    "clustering": ("clustering",),
    "expert": ("expert",),
    "experts": ("expert",),
    "parent": ("expert",),
    "rival": ("expert",),
    "before": ("mixture", "expert", "alias"),
    "after": ("mixture", "expert", "alias"),
    "seed_model": ("seed",),
    "prior": ("prior",),
    "domain": ("domain",),
    "domains": ("domain",),
    "targets": ("domain",),
    "retain": ("domain",),
}


def names_of(*kinds: ThingKind) -> Completer:
    """Completes names of these kinds; nothing where there is no registry."""

    def complete(incomplete: str) -> list[str]:
        from engine.errors import Problem
        from workbench.registry.database import reading
        from workbench.registry.things import names_from

        before, comma, start = incomplete.rpartition(",")  # of `a,b`, which some options take
        try:
            with reading() as session:
                return [f"{before}{comma}{name}" for kind in kinds for name in names_from(session, kind, start)]
        except Problem:
            return []

    return complete


def names_for(field: str) -> Completer | None:
    """Completes the value of an option or argument of this name; None where names do not help."""
    kinds = _KINDS.get(field)
    return names_of(*kinds) if kinds else None
