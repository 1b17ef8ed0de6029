"""Training: train experts of several domains jointly, one expert, an expert of MoDE, or a model of each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ui.cli.job_progress import print_forecast, queue, report, run_in_process, show_progress, submit
from ui.cli.options import Forecast, RunOptions, takes
from ui.cli.output import print_json, print_note, print_table, say
from ui.cli.verbs import CommandGroup, get_card
from ui.present.text.formatting import pluralize
from workbench.formatting.number_format import share
from workbench.kinds.analysis import CertifyAddition, Evaluate
from workbench.kinds.training.mode import TrainMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.schema.job_states import UNSUCCESSFUL
from workbench.specs.requests import TrainClusters

if TYPE_CHECKING:
    from jobs.plans.clusterings import ClusterModel

app = CommandGroup(__doc__)

Certificate = Annotated[
    bool, typer.Option("--certificate/--no-certificate", help="Certify afterwards that no other file has changed.")
]


app.add_job("joint NAME", TrainJoint)


@app.command("expert")
@takes(TrainExpert, "name")
def expert(spec: TrainExpert, run_options: RunOptions, *, certificate: Certificate = True) -> None:
    """Train one more expert: copy a parent, train only the copy on a domain, then certify that nothing else changed."""
    card = submit(spec, run_options)
    if certificate and spec.certificate:
        _certify(spec.certificate, run_options, card.id)


app.add_job("mode NAME", TrainMode)


@app.command("clusters")
@takes(TrainClusters, "clustering", "name")
def clusters(
    spec: TrainClusters,
    run_options: RunOptions,
    *,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what each model would start from; queue nothing.")
    ] = False,
    forecast: Forecast = False,
) -> None:
    """Train a model on each cluster (C-BTM), each as a job of its own, and make a mixture of them.

    Run again, the command continues: existing models are kept, models of changed clusters are retrained. It prints
    what it will train, and what each model starts from, before it queues any job.
    """
    from jobs.plans.clusterings import forecast_training, plan_training, submit_training
    from jobs.queue.tasks import cards_of
    from ui.cli.questions import say_temperature

    if forecast:
        print_forecast(forecast_training(spec), TrainClusters, run_options.json)
        return
    branches = plan_training(spec)
    if plan and run_options.json:
        print_json(branches)
        return
    if not run_options.json:
        print_branches(branches, spec)
    if plan:
        return
    ids = submit_training(spec, branches=branches)
    if not run_options.in_process:
        scoring = queue(Evaluate(mixture=spec.name), after=ids[-1:])
        print_note(f"Its experts are scored afterwards, by job {scoring.id}.")
    if run_options.in_process or run_options.wait:
        show_progress(ids, run_options.in_process, quiet=run_options.json)
    cards = cards_of(ids)
    for card in cards:
        if card.state in UNSUCCESSFUL:
            report(card, run_options.json)
    if run_options.json:
        print_json({"name": spec.name, "jobs": ids, "state": cards[-1].state, "result": cards[-1].result})
        return
    done = sum(card.state == "done" for card in cards)
    say(f"{spec.name}: {done} of {pluralize(len(cards), 'job')} done.")
    if cards[-1].state == "done":
        say_temperature(get_card("mixture", spec.name))
    else:
        say("The others wait for a worker (`workbench up`). Run the same command again to see the progress.")


def print_branches(branches: Sequence[ClusterModel], spec: TrainClusters) -> None:
    """Prints a row for each cluster: its existing model, or what a new one starts from and its number of steps."""
    rows = [
        (
            one.cluster,
            one.num_documents,
            one.expert,
            *(
                ("exists", "")
                if one.is_there
                else (_start(one, spec), share(one.shares[one.parent]) if one.parent else "")
            ),
            one.num_steps,
        )
        for one in branches
    ]
    columns = ["Cluster", "Documents", "Model", "Starts from", "Parent trained on", "Steps"]
    print_table(columns, rows, empty="The clustering has no clusters.")
    existing, new = ([branch.num_steps for branch in branches if branch.is_there is exists] for exists in (True, False))
    if existing and new:
        say(f"Existing models were trained for {_span(existing)} steps each; new ones will be for {_span(new)}:")
        say(f"{spec.training.max_steps} steps are divided among {pluralize(len(branches), 'cluster')}.")


def _span(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _start(branch: ClusterModel, spec: TrainClusters) -> str:
    return branch.parent or spec.seed_model or f"the nearest of {spec.branch_from}, by its posterior"


def _certify(spec: CertifyAddition, run_options: RunOptions, after: str) -> None:
    """Certifies the addition, in the queue or in this process; with --json its sentence goes to stderr."""
    if run_options.json and not run_options.in_process:
        print_note(f"Its certificate follows, as job {queue(spec, after=[after]).id}.")
    elif run_options.json:
        print_note(str(run_in_process(spec, quiet=True).result.get("sentence")))
    else:
        submit(spec, run_options, after=[after])
