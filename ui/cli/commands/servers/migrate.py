"""workbench migrate: the registry of a home folder, in the version that this program needs."""

from __future__ import annotations

from ui.cli.verbs import Outcome, prints


@prints
def migrate() -> Outcome:
    """Create the registry, or upgrade an older one to this version."""
    from workbench.registry import database
    from workbench.settings import get_settings

    settings = get_settings()
    database.migrate(settings)
    sentence = f"The registry in {database.place_of(settings)} is at version {database.VERSION}."
    return Outcome({"home": settings.root, "version": database.VERSION}, sentence)
