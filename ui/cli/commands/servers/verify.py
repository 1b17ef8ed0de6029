"""workbench verify: checks all stored files, or makes a stored answer or the last steps of an expert again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.device import prepare_process
from ui.cli.job_progress import Draw, progress_bar
from ui.cli.options import Json, names_of
from ui.cli.output import print_note, say
from ui.cli.verbs import Outcome, prints
from ui.generation.model_host import ModelHost
from ui.present.text.formatting import duration, pluralize, size

if TYPE_CHECKING:
    from workbench.answers.integrity import FaultyArtifact, PlannedReplay, Replay, StoreCheck
    from workbench.requests.verification import Verification
    from workbench.settings import Settings

_MOST_IDS = 8


@prints
def verify(
    answer: Annotated[
        Path | None, typer.Argument(help="File with an answer of the API, made with return_token_ids.")
    ] = None,
    expert: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="EXPERT",
            help="Expert whose last training steps are made again, from its last kept checkpoint, and compared.",
            autocompletion=names_of("expert"),
        ),
    ] = None,
    as_json: Json = False,
) -> Outcome:
    """Hash every stored file again and name what is damaged and what depends on it; or check an answer or an expert.

    Without an argument the whole workbench is checked, also while it runs. With the file of an answer, the answer is
    generated again by its manifest, and the tokens are compared. With --replay the last steps of one expert are trained
    again in a temporary folder, and its weights and losses are compared to the bit. The exit code is 0 only if nothing
    is damaged or differs.
    """
    from workbench.settings import get_settings

    if answer is not None and expert is not None:
        raise typer.BadParameter("give a file of an answer or --replay, not both")
    if expert is not None:
        return _verify_training(get_settings(), expert, as_json)
    return _verify_store(get_settings(), as_json) if answer is None else _verify_answer(get_settings(), answer)


# the workbench ------------------------------------------------------------------------------------------


def _verify_store(settings: Settings, as_json: bool) -> Outcome:
    from workbench.integrity.check import check_store

    with progress_bar(as_json) as draw:
        result = check_store(settings, store_progress(draw))
    return Outcome(result, print_store_check, result.ok)


def store_progress(draw: Draw, verb: str = "checked") -> Callable[[int, int, int, int], None]:
    """Shows how many artifacts and bytes are done, and how long the rest takes at the pace so far."""
    started_at = time.monotonic()

    def see(number: int, num_artifacts: int, num_bytes: int, total: int) -> None:
        share = num_bytes / total if total else 1.0
        left = (time.monotonic() - started_at) * (1 - share) / share if share else 0.0
        words = f"{number:,} of {pluralize(num_artifacts, 'artifact')}, {size(num_bytes)} of {size(total)} {verb}"
        draw(words + (f", about {duration(left, to_minutes=True)} left" if 0 < share < 1 else ""), share)

    return see


def print_store_check(result: StoreCheck) -> None:
    """Every fault with what depends on it and what to do, then what was checked."""
    for artifact in result.faulty:
        print_faulty(artifact)
    for fault in result.registry_faults:
        say(f"The registry is damaged: {fault} Restore a backup: docs/how_to/backups_and_trash.md.")
    if result.lost_rows:
        say(f"Without a row: {_few(result.lost_rows)}. Run `workbench registry rebuild`.")
    if result.leftovers:
        say(f"Needed by no row, which is not a fault: {_few(result.leftovers)}. Garbage collection removes them.")
    faults = len(result.faulty) + len(result.registry_faults) + len(result.lost_rows)
    verdict = pluralize(faults, "fault") if faults else "Everything is as it was written"
    say(
        f"{verdict}: {pluralize(result.num_artifacts, 'artifact')}, {size(result.num_bytes)},"
        f" checked in {duration(result.seconds)}."
    )


def print_faulty(artifact: FaultyArtifact) -> None:
    """One fault, what depends on it, and what to do."""
    say(f"{artifact.state.capitalize()}: {artifact.kind} {artifact.id}")
    for fault in artifact.faults:
        say(f"  {fault}")
    for thing in artifact.needed_by:
        say(f"  needed by the {thing.thing} “{thing.name}”")
    if artifact.needed_by:
        say("  Restore the folder from a backup, or run the job that made it again.")
    else:
        say("  Nothing in the registry needs it by name.")


def _few(ids: list[str]) -> str:
    more = len(ids) - _MOST_IDS
    return ", ".join(ids[:_MOST_IDS]) + (f" and {more:,} more" if more > 0 else "")


# an answer ----------------------------------------------------------------------------------------------


def _verify_answer(settings: Settings, answer: Path) -> Outcome:
    from workbench.requests.verification import read_answer
    from workbench.requests.verification import verify as compare

    stored, generations = read_answer(answer), ModelHost(settings)
    prepare_process(settings.threads)
    result = compare(stored, generations.plan(stored.request()), generations.stream)
    return Outcome(result, print_verification, result.agrees)


def print_verification(result: Verification) -> None:
    """What changed since, and the first token of each choice that differs."""
    for change in result.changed:
        say(f"Changed since: {change}.")
    for choice in result.choices:
        if choice.first_difference is None:
            say(f"Choice {choice.index}: all {choice.num_tokens} tokens are the same.")
        else:
            say(f"Choice {choice.index}: token {choice.first_difference + 1} of {choice.num_tokens} differs.")


# a training ---------------------------------------------------------------------------------------------


def _verify_training(settings: Settings, expert: str, as_json: bool) -> Outcome:
    prepare_process(settings.threads)
    from jobs.replay.replay import find_training, plan_replay, replay

    training = find_training(settings, expert)
    plan = plan_replay(settings, training)
    print_note(_describe_plan(plan))
    for change in plan.environment_changes:
        print_note(f"Not as in the training: {change}.")
    with progress_bar(as_json) as draw:

        def see(step: int, first: int, last: int) -> None:
            draw(f"step {step:,} of {last:,}", (step - first) / max(last - first, 1))

        result = replay(settings, training, see)
    return Outcome(result, print_replay, result.verdict == "equal")


def _describe_plan(plan: PlannedReplay) -> str:
    steps = f"steps {plan.from_step + 1:,} to {plan.to_step:,}" if plan.from_step else f"all {plan.to_step:,} steps"
    why = "" if plan.from_step else ", since no checkpoint is kept"
    time_needed = "" if plan.seconds is None else f": about {duration(plan.seconds, to_minutes=True)}"
    return f"Training {steps} of “{plan.expert}” again{why}{time_needed}."


def print_replay(result: Replay) -> None:
    """Whether the expert is what its training makes, and what differs or prevents the answer."""
    name = result.plan.expert
    if result.verdict == "equal":
        say(
            f"“{name}” is what its training makes: {pluralize(result.num_tensors, 'tensor')} and"
            f" {pluralize(result.num_points, 'point')} of its curves are the same to the bit"
            f" ({duration(result.seconds)})."
        )
    else:
        same = "is not what its training makes" if result.verdict == "differs" else "could not be verified"
        say(f"“{name}” {same}.")
    for reason in result.reasons:
        say(reason)
    for tensor in result.tensors[:_MOST_IDS]:
        say(f"  {tensor.thing}, {tensor.tensor}: " + (tensor.problem or f"differs by up to {tensor.largest:.3g}"))
    for loss in result.losses[:_MOST_IDS]:
        say(f"  {loss.metric} at step {loss.step:,}: stored {loss.stored!r}, now {loss.replayed!r}")
    more = max(0, len(result.tensors) - _MOST_IDS) + max(0, len(result.losses) - _MOST_IDS)
    if more:
        say(f"  and {more:,} more (--json shows all)")
