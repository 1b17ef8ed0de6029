"""Aliases: names such as law@production that mean an expert or a mixture, and can be moved to another."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.options import names_of, naming_argument
from ui.cli.output import day
from ui.cli.verbs import NAME, Column, CommandGroup, Outcome, write

app = CommandGroup(__doc__)

AliasName = Annotated[
    str, typer.Argument(help="Alias, such as law@production.", metavar="ALIAS", autocompletion=names_of("alias"))
]
Model = Annotated[str, naming_argument("Mixture, expert or alias; or seed:NAME.", "mixture", "expert", "alias")]
_COLUMNS = (
    NAME,
    Column("Model", lambda alias: alias.model),
    Column("Kind", lambda alias: alias.kind),
    Column("Set", lambda alias: alias.updated_at, day),
)


app.add_list(
    "alias",
    _COLUMNS,
    "List aliases with the models that they mean.",
    "Set one with: workbench alias set NAME@ALIAS MODEL",
)


@app.verb("set")
def set_one(alias: AliasName, model: Model) -> Outcome:
    """Set an alias of a mixture or an expert; an existing one is moved."""
    from workbench.registry.aliases import set_alias

    card = write(set_alias, alias, model)
    return Outcome(card, f"“{card.name}” means the {card.kind} “{card.model}”.")


app.add_delete("alias", AliasName, "Delete an alias; its model is kept.", "; its model is kept")
