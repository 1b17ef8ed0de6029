"""workbench up: all servers of a workbench, started and stopped together."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from ui.cli.options import Json
from ui.cli.output import print_json, say
from ui.errors import BadUsageError
from workbench.formatting.shell_command import shell_command


def up(
    size: Annotated[
        Literal["small"] | None,
        typer.Argument(help="After --demo: train a tiny model from random weights, not adapters of a pretrained one."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Submit the demo's jobs if the registry is empty.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the addresses; open no browser.")] = False,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Require no token or login; only for servers on loopback.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start the studio, the API with the playground, a worker and the scheduler. Ctrl-C stops them all."""
    from ui.serving import up as servers
    from workbench.settings import get_settings

    if size and not demo:
        raise BadUsageError(f"“{size}” is a size of the demo.", f"Write: {shell_command('up', '--demo', size)}")
    settings = get_settings()
    if no_auth:
        settings = servers.without_auth(settings)
    servers.check(settings)
    print_json(servers.addresses(settings)) if as_json else say(servers.greeting(settings))
    output = sys.stderr if as_json else sys.stdout
    wanted = (size or "real") if demo else None
    raise typer.Exit(servers.run(settings, demo=wanted, browse=not no_browser, output=output))
