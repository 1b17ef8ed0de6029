"""Saved views: names of addresses in the studio, such as the experts of one method."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.options import naming_argument
from ui.cli.output import day
from ui.cli.verbs import NAME, Column, CommandGroup, Outcome, write

app = CommandGroup(__doc__)

ViewName = Annotated[str, naming_argument("Name of a saved view.", "view")]
_COLUMNS = (
    NAME,
    Column("Address", lambda view: view.address),
    Column("Saved", lambda view: view.updated_at, day),
)


app.add_list(
    "view", _COLUMNS, "List saved views with their addresses.", "Save one with: workbench view save NAME /experts"
)


@app.verb()
def save(
    name: ViewName,
    address: Annotated[str, typer.Argument(help="Address in the studio, such as /experts?method=lora.")],
) -> Outcome:
    """Save the address of a page with all that is chosen on it; a view of this name is replaced."""
    from workbench.registry.views import save_view

    card = write(save_view, name, address)
    return Outcome(card, f"“{card.name}” is saved: {card.address}")


@app.verb()
def delete(name: ViewName) -> Outcome:
    """Delete a saved view."""
    from workbench.registry.resources import RESOURCES

    card = write(RESOURCES["view"].delete_one, name)
    return Outcome(card, f"“{card.name}” is deleted.")
