"""MoDE: compose trained experts beside a frozen backbone, and show how their training went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ui.cli.completion import names_of
from ui.cli.job_progress import submit
from ui.cli.options import Json, RunOptions, takes
from ui.cli.output import print_json, print_table
from workbench.analysis.training_curves import TrainingHistory
from workbench.formatting.number_format import number, weight
from workbench.kinds.training.compose_mode import ComposeMode

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.command("compose")
@takes(ComposeMode, "name")
def compose(spec: ComposeMode, run_options: RunOptions) -> None:
    """Compose trained experts and train their gates together; or add experts to a composition, or remove some.

    Without --domains nothing is trained. The experts themselves stay unchanged.
    """
    submit(spec, run_options)


@app.command("history")
def history(
    experts: Annotated[
        list[str],
        typer.Argument(
            help="Experts of any method, which may still be in training.", autocompletion=names_of("expert")
        ),
    ],
    as_json: Json = False,
) -> None:
    """Show held-out losses and mean gate weights during training: every evaluation of one expert.

    Of several experts, only the first and the last evaluation are shown.
    """
    from workbench.analysis.training_curves import training_history
    from workbench.registry.database import reading

    with reading() as session:
        histories = [training_history(session, name) for name in experts]
    if as_json:
        print_json(histories)
        return
    rows = [row for history in histories for row in _rows(history, step_by_step=len(histories) == 1)]
    print_table(
        ["Expert", "Domain", "", "Step", "Held-out loss", "Mean gate weights"],
        rows,
        empty="There is no evaluation yet.",
    )


def _rows(history: TrainingHistory, step_by_step: bool) -> Iterator[tuple[Any, ...]]:
    for one in history.domains:
        evaluations = list(zip(one.steps, one.losses, one.gates, strict=True))
        shown = evaluations if step_by_step or len(evaluations) == 1 else (evaluations[0], evaluations[-1])
        for step, loss, gates in shown:
            weights = ", ".join(f"{name} {weight(value)}" for name, value in gates.items())
            yield history.expert, one.domain, "retained" if one.retained else "", step, number(loss, 2), weights
