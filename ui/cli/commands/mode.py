"""MoDE: compose trained experts next to a frozen backbone, and show how their training went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from ui.cli.options import naming_argument
from ui.cli.output import print_table
from ui.cli.verbs import CommandGroup, Outcome, read
from workbench.analysis.training_curves import TrainingHistory, training_history
from workbench.formatting.number_format import number, weight
from workbench.kinds.training.mode import ComposeMode

app = CommandGroup(__doc__)


app.add_job(
    "compose NAME",
    ComposeMode,
    "Compose trained experts and train their gates together; or add experts to a composition, or remove some.\n\n"
    "Without --domains nothing is trained. The experts themselves stay unchanged.",
)


@app.verb()
def history(
    experts: Annotated[list[str], naming_argument("Experts of any method, which may still be in training.", "expert")],
) -> Outcome:
    """Show held-out losses and mean gate weights during training: every evaluation of one expert.

    Of several experts, only the first and the last evaluation are shown.
    """
    return Outcome([read(training_history, name) for name in experts], _print)


def _print(histories: Sequence[TrainingHistory]) -> None:
    rows = [row for history in histories for row in _rows(history, step_by_step=len(histories) == 1)]
    columns = ["Expert", "Domain", "", "Step", "Held-out loss", "Mean gate weights"]
    print_table(columns, rows, empty="There is no evaluation yet.")


def _rows(history: TrainingHistory, step_by_step: bool) -> Iterator[tuple[Any, ...]]:
    for domain in history.domains:
        evaluations = list(zip(domain.steps, domain.losses, domain.gates, strict=True))
        shown = evaluations if step_by_step or len(evaluations) == 1 else (evaluations[0], evaluations[-1])
        for step, loss, gates in shown:
            weights = ", ".join(f"{name} {weight(value)}" for name, value in gates.items())
            yield history.expert, domain.domain, "retained" if domain.retained else "", step, number(loss, 2), weights
