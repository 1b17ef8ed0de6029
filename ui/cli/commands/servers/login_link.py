"""workbench login-link: a link that logs one browser in to the studio."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.verbs import Outcome, prints, read
from ui.errors import BadUsageError


@prints
def login_link(
    user: Annotated[str, typer.Option(help="Name of the user that it logs in; empty: the owner.")] = "",
) -> Outcome:
    """Print a login link for the studio. It works once, within ten minutes."""
    from ui.addresses import studio_address
    from ui.server_proof import PASSED_ON
    from ui.serving import login
    from ui.serving.browser import another_answers
    from workbench.access.actor import OWNER
    from workbench.access.home_token import needs_token
    from workbench.access.users import user_id_of
    from workbench.registry.database import require_registry
    from workbench.settings import get_settings

    settings = get_settings()
    if not needs_token(settings):
        raise BadUsageError("The studio needs no login: WORKBENCH_NO_AUTH is set.", f"Open {studio_address(settings)}.")
    require_registry(settings)  # a link made in a home without a workbench would open nothing
    if not settings.public_url and another_answers(settings):
        raise BadUsageError(
            f"Another program listens at {studio_address(settings)}: whoever opens the link there gives it the login.",
            f"Stop it, or set WORKBENCH_STUDIO_PORT to another port and start with `workbench up`. {PASSED_ON}",
        )
    user_id = read(user_id_of, user) if user else OWNER
    link = login.login_link(settings, user_id)
    return Outcome({"login": link, "seconds": login.LINK_SECONDS}, link)
