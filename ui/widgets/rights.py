"""What the user of a page may do: what changes something is drawn disabled for those who may only look."""

from __future__ import annotations

from workbench.access.actor import Role, may


def cannot_change() -> bool:
    """Whether every change of this user would be refused, as it is for a viewer."""
    return not may(Role.EDITOR)
