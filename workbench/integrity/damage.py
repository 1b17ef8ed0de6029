"""Says whose files are damaged, and how the rest of a mixture goes on.

A mixture with a damaged expert is refused by name: the others under the same name would give other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engine.errors import DamagedFileError, Problem
from workbench.answers.integrity import Dependent
from workbench.formatting.shell_command import shell_command
from workbench.integrity.check import dependents
from workbench.registry.database import reading
from workbench.settings import Settings

_ID = re.compile(r"[0-9a-f]{32}")
_OWNERS = ("expert", "evaluation", "domain", "seed model", "clustering", "report")  # the nearest to a request first


@contextmanager
def naming_damage(settings: Settings) -> Iterator[None]:
    """Adds the names of what needs a damaged file to the DamagedFileError of the block."""
    try:
        yield
    except DamagedFileError as damaged:
        raise with_names(settings, damaged) from damaged


def with_names(settings: Settings, damaged: DamagedFileError) -> DamagedFileError:
    """The same error with what is damaged by name; unchanged where the registry does not know it."""
    needed_by: list[Dependent] = []
    with suppress(Problem), reading(settings) as session:
        for id in _ID.findall(damaged.problem):
            needed_by = needed_by or list(dependents(session, id))
    thing = next((thing for thing in _OWNERS if _names(needed_by, thing)), "")
    if not thing:
        return damaged
    names = _names(needed_by, thing)
    listed = " and ".join(f"“{name}”" for name in names[:3]) + (" and others" if len(names) > 3 else "")
    verb = "is" if len(names) == 1 else "are"
    problem = f"The {thing}{'s' if len(names) > 1 else ''} {listed} {verb} damaged: {damaged.problem}"
    return DamagedFileError(problem, f"{_without(thing, names)}{damaged.next_step}")


def _without(thing: str, names: list[str]) -> str:
    """How the other experts of a mixture go on; nothing where several are damaged, as with their base."""
    if thing != "expert" or len(names) > 1:
        return ""
    return f"To use mixtures without it, switch it off: `{shell_command('expert', 'disable', names[0])}`. "


def _names(needed_by: list[Dependent], thing: str) -> list[str]:
    return sorted(one.name for one in needed_by if one.thing == thing)
