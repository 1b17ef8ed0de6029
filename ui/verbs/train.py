"""workbench train: make experts."""

from __future__ import annotations

import typer

from ui.verbs.following import submit
from ui.verbs.options import How, takes
from workbench.specs import TrainDemix, TrainExpert

app = typer.Typer(no_args_is_help=True, help="Train experts: several at once, or one more beside those you have.")


@app.command("demix")
@takes(TrainDemix, "name")
def demix(spec: TrainDemix, how: How) -> None:
    """Train a DEMix model: one expert per domain, everything else shared. Or a baseline of it: see --method."""
    submit(spec, how)


@app.command("expert")
@takes(TrainExpert, "name")
def expert(spec: TrainExpert, how: How) -> None:
    """Add an expert: copy a parent, train only the copy on a domain, change nothing else."""
    submit(spec, how)
