"""workbench up, login-link and migrate: the whole house, the way in, and the ground it stands on."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ui.cli.options import Json
from ui.cli.output import print_json, say
from ui.errors import BadUsage


def migrate(as_json: Json = False) -> None:
    """Create the registry, or bring an older one to this version."""
    from workbench.registry import database
    from workbench.settings import get_settings

    settings = get_settings()
    database.migrate(settings)
    if as_json:
        print_json({"home": settings.root, "version": database.VERSION})
    else:
        say(f"The registry in {settings.root} is of version {database.VERSION}.")


def login_link(as_json: Json = False) -> None:
    """Print a link that logs one browser in to the studio: it works once, within ten minutes."""
    from ui.serving import login
    from ui.serving.addresses import studio_address
    from workbench.registry.database import require_registry
    from workbench.settings import get_settings

    settings = get_settings()
    if not settings.token.get_secret_value():
        problem = "The studio asks for no login here: WORKBENCH_TOKEN is not set."
        raise BadUsage(problem, f"Open {studio_address(settings)}, or set the token that `workbench up` was given.")
    require_registry(settings)  # a link made in a home without a workbench would open nothing
    link = login.login_link(settings)
    if as_json:
        print_json({"login": link, "seconds": login.LINK_SECONDS})
    else:
        say(link)


def up(
    demo: Annotated[bool, typer.Option("--demo", help="Submit the demo's jobs if the registry is empty.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the addresses.")] = False,
    as_json: Json = False,
) -> None:
    """Start everything: studio, API with the playground, worker and clock. Ctrl-C stops all of it."""
    from ui.serving import up as house
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
