"""workbench mode: experts of transformer layers beside a frozen backbone (MoDE)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ui.cli.job_progress import submit
from ui.cli.options import How, Json, takes
from ui.cli.output import print_json, print_table
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode

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


@app.command("watch")
def watch(
    experts: Annotated[list[str], typer.Argument(help="Experts of any method; they may still be in training.")],
    as_json: Json = False,
) -> None:
    """How trainings went: held-out losses, what was retained, and whom the gates chose; of one expert step by step.

    Of several experts the first and the last evaluation are shown.
    """
    from workbench.analysis.training_history import training_history
    from workbench.registry.database import reading

    with reading() as session:
        courses = [training_history(session, name) for name in experts]
    if as_json:
        print_json(courses)
        return
    rows = [row for course in courses for row in _rows(course, step_by_step=len(courses) == 1)]
    print_table(
        ["Expert", "Domain", "", "Step", "Held-out loss", "Mean gates"],
        rows,
        empty="Nothing was evaluated yet.",
    )


def _rows(course: dict[str, Any], step_by_step: bool) -> Iterator[tuple[Any, ...]]:
    for one in course["domains"]:
        looks = list(zip(one["steps"], one["losses"], one["gates"], strict=True))
        for step, loss, gates in looks if step_by_step or len(looks) == 1 else (looks[0], looks[-1]):
            told = ", ".join(f"{name} {weight:.3f}" for name, weight in gates.items())
            yield course["expert"], one["domain"], "retained" if one["retained"] else "", step, f"{loss:.3f}", told
