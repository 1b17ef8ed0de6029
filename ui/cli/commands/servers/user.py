"""Users of a team, each with a role and a token: viewers read and generate, editors also train and change."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ui.cli.output import day
from ui.cli.verbs import CREATED, NAME, Column, CommandGroup, Outcome, lists, read
from workbench.access import users
from workbench.access.actor import Role
from workbench.answers.cards import UserCard
from workbench.formatting.number_format import DASH
from workbench.registry.database import transaction

app = CommandGroup(__doc__)

RoleName = Literal["viewer", "editor", "admin"]
UserName = Annotated[str, typer.Argument(help="Name of a user.")]
_COLUMNS = (
    NAME,
    Column("Role", lambda user: user.role),
    CREATED,
    Column("Revoked", lambda user: user.revoked_at, lambda at: day(at) if at else DASH),
)


@app.command("list")
@lists(_COLUMNS, empty="There is no user yet. Add one with: workbench user add NAME --role editor", noun="user")
def list_all() -> list[UserCard]:
    """List users with their roles; the tokens themselves are not stored."""
    return read(users.list_users)


@app.verb()
def add(name: UserName, role: Annotated[RoleName, typer.Option(help="What the user may do.")] = "viewer") -> Outcome:
    """Add a user, and print the user's token, which is shown this one time."""
    with transaction(needs=Role.ADMIN) as session:
        new = users.add_user(session, name, role)
    sentence = f"“{new.card.name}” has the role {role}. The token is shown this one time:\n{new.token}"
    return Outcome({**new.card.model_dump(), "token": new.token}, sentence)


@app.verb()
def revoke(name: UserName) -> Outcome:
    """Revoke a user: the token and all logins end at once."""
    with transaction(needs=Role.ADMIN) as session:
        card = users.revoke_user(session, name)
    return Outcome(card, f"“{card.name}” is revoked.")
