"""workbench migrate: the registry of a home folder, in the version that this program needs."""

from __future__ import annotations

from ui.cli.options import Json
from ui.cli.output import print_json, say


def migrate(as_json: Json = False) -> None:
    """Create the registry, or upgrade an older one to this version."""
    from workbench.registry import database
    from workbench.settings import get_settings

    settings = get_settings()
    database.migrate(settings)
    if as_json:
        print_json({"home": settings.root, "version": database.VERSION})
    else:
        say(f"The registry in {database.place_of(settings)} is at version {database.VERSION}.")
