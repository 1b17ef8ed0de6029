"""Users of a team, each with a role and a token: viewers read and generate, editors also train and change."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ui.cli.listing import Column, created_column, lists, name_column
from ui.cli.options import Json
from ui.cli.output import day, print_done, print_json, say
from workbench.answers.cards import UserCard
from workbench.formatting.number_format import DASH

app = typer.Typer(no_args_is_help=True, help=__doc__)

UserName = Annotated[str, typer.Argument(help="Name of a user.")]
_COLUMNS = (
    name_column(),
    Column("Role", lambda user: user.role),
    created_column(day),
    Column("Revoked", lambda user: user.revoked_at, lambda at: day(at) if at else DASH),
)


class RoleName(StrEnum):
    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"


@app.command("list")
@lists(_COLUMNS, empty="There is no user yet. Add one with: workbench user add NAME --role editor", noun="user")
def list_all() -> list[UserCard]:
    """List users with their roles; the tokens themselves are not stored."""
    from workbench.access.users import list_users
    from workbench.registry.database import reading

    with reading() as session:
        return list_users(session)


@app.command("add")
def add(
    name: UserName,
    role: Annotated[RoleName, typer.Option(help="What the user may do.")] = RoleName.VIEWER,
    as_json: Json = False,
) -> None:
    """Add a user, and print the user's token, which is shown this one time."""
    from workbench.access.actor import Role
    from workbench.access.users import add_user
    from workbench.registry.database import transaction

    with transaction(needs=Role.ADMIN) as session:
        new = add_user(session, name, role.value)
    if as_json:
        print_json({**new.card.model_dump(), "token": new.token})
    else:
        say(f"“{new.card.name}” has the role {role.value}. The token is shown this one time:")
        say(new.token)


@app.command("revoke")
def revoke(name: UserName, as_json: Json = False) -> None:
    """Revoke a user: the token and all logins end at once."""
    from workbench.access.actor import Role
    from workbench.access.users import revoke_user
    from workbench.registry.database import transaction

    with transaction(needs=Role.ADMIN) as session:
        card = revoke_user(session, name)
    print_done(card, f"“{card.name}” is revoked.", as_json)
