"""workbench mode: experts of transformer layers beside a frozen backbone (MoDE)."""

from __future__ import annotations

import typer

from ui.verbs.following import submit
from ui.verbs.options import How, takes
from workbench.mode_specs import ComposeMode, TrainMode

app = typer.Typer(no_args_is_help=True, help="MoDE: experts of layers beside a frozen model, trained and put together.")


@app.command("train")
@takes(TrainMode, "name")
def train(spec: TrainMode, how: How) -> None:
    """Train an expert of transformer layers beside a frozen seed model; the seed stays as it is (stage 1)."""
    submit(spec, how)


@app.command("compose")
@takes(ComposeMode, "name")
def compose(spec: ComposeMode, how: How) -> None:
    """Put trained experts side by side and let their gates learn together; or add to a composition, or take from it.

    Without --domains nothing is trained. The experts that it is made of stay as they are.
    """
    submit(spec, how)
