"""workbench up, workbench migrate: the whole house, and the ground it stands on."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ui.verbs.options import Json
from ui.verbs.output import print_json, say


def migrate(as_json: Json = False) -> None:
    """Create the registry, or bring an older one to this version."""
    from workbench import database
    from workbench.settings import get_settings

    settings = get_settings()
    database.migrate(settings)
    if as_json:
        print_json({"home": settings.root, "version": database.VERSION})
    else:
        say(f"The registry in {settings.root} is of version {database.VERSION}.")


def up(
    demo: Annotated[bool, typer.Option("--demo", help="Submit the demo's jobs if the registry is empty.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the addresses.")] = False,
    as_json: Json = False,
) -> None:
    """Start everything: studio, API with the playground, worker and clock. Ctrl-C stops all of it."""
    from ui import up as house
    from workbench.settings import get_settings

    settings = get_settings()
    house.check(settings)
    if as_json:
        print_json(house.addresses(settings))
    else:
        say(house.greeting(settings))
    sys.stdout.flush()
    output = sys.stderr if as_json else sys.stdout
    raise typer.Exit(house.run(settings, demo=demo, browse=not no_browser, output=output))
