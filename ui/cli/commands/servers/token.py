"""workbench token: the token that programs send to the servers."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.verbs import Outcome, prints
from ui.errors import BadUsageError


@prints
def token(
    new: Annotated[bool, typer.Option("--new", help="Make another token; the old one and all logins end.")] = False,
) -> Outcome:
    """Print the token that programs send to the API: WORKBENCH_TOKEN, or the one that the home folder keeps."""
    from workbench.access.home_token import ensure_token, needs_token, renew_token
    from workbench.registry.database import require_registry
    from workbench.settings import get_settings

    settings = get_settings()
    if not needs_token(settings):
        raise BadUsageError("The servers need no token: WORKBENCH_NO_AUTH is set.", "Leave that out to have one.")
    if new and settings.token.get_secret_value():
        raise BadUsageError("The token is that of WORKBENCH_TOKEN.", "Set another one there, and restart the servers.")
    require_registry(settings)  # a token made in a home without a workbench would be nobody's
    text = renew_token(settings) if new else ensure_token(settings)
    return Outcome({"token": text}, text)
