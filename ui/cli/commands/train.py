"""workbench train: make experts."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.job_progress import queue, run_here, submit
from ui.cli.options import How, takes
from ui.cli.output import tell
from workbench.kinds.analysis.certify_addition import CertifyAddition
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint

app = typer.Typer(no_args_is_help=True, help="Train experts: several at once, or one more beside those you have.")


Certificate = Annotated[
    bool, typer.Option("--certificate/--no-certificate", help="Certify afterwards that nothing that was there changed.")
]


@app.command("demix")
@takes(TrainJoint, "name")
def demix(spec: TrainJoint, how: How) -> None:
    """Train a DEMix model: one expert per domain, everything else shared. Or a baseline of it: see --method."""
    submit(spec, how)


@app.command("expert")
@takes(TrainExpert, "name")
def expert(spec: TrainExpert, how: How, *, certificate: Certificate = True) -> None:
    """Add an expert: copy a parent, train only the copy on a domain, change nothing else. Then certify that."""
    card = submit(spec, how)
    if certificate and spec.certificate:
        _certify(spec.certificate, how, card.id)


def _certify(wish: CertifyAddition, how: How, after: str) -> None:
    """The certificate of the addition, run as the training was; beside JSON only its sentence is told."""
    if how.json and not how.here:
        tell(f"Its certificate follows, as job {queue(wish, after=[after]).id}.")
    elif how.json:
        tell(str(run_here(wish, quiet=True).result.get("sentence")))
    else:
        submit(wish, how, after=[after])
