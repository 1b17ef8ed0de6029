"""Experts: list, show, enable, disable, rename, certify and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ui.cli.commands.report import print_report
from ui.cli.job_progress import submit
from ui.cli.options import InProcess, Json, RunOptions, Wait, build, names_of, split_commas
from ui.cli.output import day, print_fields, print_note, print_table, say
from ui.cli.questions import prints_answer
from ui.cli.verbs import Column, Outcome, add_jobs, add_list, created_column, get_card, name_column, read, verb, write
from ui.present.text.formatting import pluralize, size
from ui.present.text.parents import describe_parent, proposal_rows
from workbench.analysis.changes.additions import additions_of, worse_than_before
from workbench.answers.cards import ExpertCard, ReportCard
from workbench.exports.facts import old_masks
from workbench.formatting.shell_command import shell_command
from workbench.kinds.training.exchange import ImportExpert
from workbench.questions.parent_proposal import NearestRequest, ParentProposal
from workbench.questions.removal import removal_reports
from workbench.registry import experts
from workbench.store.storage import get_storage

app = typer.Typer(no_args_is_help=True, help=__doc__)

ExpertName = Annotated[str, typer.Argument(help="Name of an expert.", autocompletion=names_of("expert"))]
ExpertNames = Annotated[list[str], typer.Argument(help="Names of experts.", autocompletion=names_of("expert"))]


def _status(expert: ExpertCard) -> str:
    stale = ", stale" if expert.stale else ""
    return f"{'enabled' if expert.enabled else 'disabled'}{stale}"


_COLUMNS = (
    name_column(),
    Column("Method", lambda expert: expert.method),
    Column("Domains", lambda expert: expert.domains),
    Column("Parents", lambda expert: expert.parents),
    Column("Parameters", lambda expert: expert.total_parameters),
    Column("Own", lambda expert: expert.num_parameters),
    Column("Mixtures", lambda expert: expert.mixtures),
    Column("Status", _status),
    created_column(day),
)


add_list(
    app,
    "expert",
    _COLUMNS,
    "List experts. A stale expert was trained on a cluster whose documents have changed.",
    "Train some with: workbench train joint NAME --seed-model S --domains A,B",
)


@verb(app)
def show(name: ExpertName) -> Outcome:
    """Show an expert with its parents and its training."""
    return Outcome(get_card("expert", name), _print)


def _print(card: ExpertCard) -> None:
    readable = {"size": size(card.size_bytes), "created": day(card.created_at)}
    print_fields(card.model_dump(exclude={"id", "base_id", "size_bytes", "created_at"}) | readable)
    if worse := worse_than_before(card.metrics):
        print_note(worse)
    if warning := read(old_masks, get_storage(), card.name):
        say(warning)


def _switch(names: list[str], enabled: bool) -> Outcome:
    write(experts.set_enabled, names, enabled)
    cards = [get_card("expert", name) for name in names]
    return Outcome(cards, f"{', '.join(names)}: {'enabled' if enabled else 'disabled'}.")


@verb(app)
def enable(names: ExpertNames) -> Outcome:
    """Enable experts that were disabled."""
    return _switch(names, True)


@verb(app)
def disable(names: ExpertNames) -> Outcome:
    """Disable experts in every mixture, without deleting them."""
    return _switch(names, False)


@verb(app)
def rename(name: ExpertName, new_name: str = typer.Argument(help="The new name.")) -> Outcome:
    """Rename an expert; its id and files stay the same."""
    card = get_card("expert", write(experts.rename, name, new_name).name)
    return Outcome(card, f"“{name}” is now called “{card.name}”.")


@verb(app)
def note(
    name: ExpertName,
    notes: str = typer.Option(None, help="Notes about the expert; they replace the old ones."),
    tags: str = typer.Option(None, help="Tags, separated by commas; they replace the old ones."),
) -> Outcome:
    """Set the notes or tags of an expert."""
    write(experts.describe, name, notes=notes, tags=None if tags is None else split_commas([tags]))
    return Outcome(get_card("expert", name), f"The notes and tags of “{name}” are saved.")


@app.command("nearest")
@prints_answer(NearestRequest, "domain")
def nearest(_: NearestRequest, answer: ParentProposal) -> None:
    """Propose the parent of a new expert: the one with the highest posterior on the domain, from stored scores."""
    print_table(["Expert", "Mean posterior", "Perplexity"], proposal_rows(answer), empty="No expert.")
    say(describe_parent(answer))


add_jobs(
    app,
    "expert",
    certify="The exit code is 1 if it fails. Show the certificate with: workbench expert additions NAME.",
    certify_removal="The exit code is 1 if it fails. Show the certificate with: workbench expert removals NAME.",
    push="It is private unless --public is given. The token is that of HF_TOKEN or of `hf auth login`.",
)


@verb(app)
def additions(name: ExpertName) -> Outcome:
    """Show the newest certificate of an expert's addition; with --json, all of them."""
    line = shell_command("expert", "certify", name, "--mixture", "MIXTURE")
    missing = f"The addition of “{name}” is not certified yet. Certify it with: {line}"
    certificates = read(additions_of, name)
    return Outcome(certificates, _print_newest if certificates else missing)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(help=ImportExpert.model_fields["source"].description)],
    seed_model: Annotated[
        str,
        typer.Option(
            "--seed-model",
            "--seed",
            show_default=False,
            help=ImportExpert.model_fields["seed_model"].description,
            autocompletion=names_of("seed"),
        ),
    ],
    name: Annotated[str, typer.Option(help=ImportExpert.model_fields["name"].description)] = "",
    method: Annotated[str, typer.Option(help=ImportExpert.model_fields["method"].description)] = "auto",
    domains: Annotated[
        list[str] | None,
        typer.Option(help=ImportExpert.model_fields["domains"].description, autocompletion=names_of("domain")),
    ] = None,
    in_process: InProcess = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Import an expert that another tool trained from a seed model: a PEFT adapter, or a fine-tuned model."""
    given: dict[str, object] = {"source": source, "seed_model": seed_model, "name": name, "method": method}
    given["domains"] = split_commas(domains or [])
    submit(build(ImportExpert, given, ("source",)), RunOptions(in_process, wait, as_json))


@verb(app)
def removals(
    name: Annotated[
        str, typer.Argument(help="Name of an expert, which may be deleted.", autocompletion=names_of("expert"))
    ],
) -> Outcome:
    """Show the newest certificate of an expert's removal; with --json, all of them."""
    missing = f"The removal of “{name}” is not certified yet. Certify it with: {_certify_line(name, 'MIXTURE')}"
    certificates = read(removal_reports, name)
    return Outcome(certificates, _print_newest if certificates else missing)


def _print_newest(certificates: Sequence[ReportCard]) -> None:
    print_report(certificates[0])
    if len(certificates) > 1:
        say(f"{pluralize(len(certificates) - 1, 'older certificate')}: --json prints them all.")


@verb(app)
def delete(name: ExpertName) -> Outcome:
    """Delete an expert with its scores; refused while an expert, a seed model, a mixture or a job uses it."""
    mixtures = get_card("expert", name).mixtures
    if mixtures and not read(removal_reports, name):
        print_note(f"The removal is not certified. To certify it before deleting: {_certify_line(name, mixtures[0])}")
    write(experts.delete_expert, name)
    return Outcome({"deleted": name}, f"“{name}” is deleted, with its weights and scores.")


def _certify_line(name: str, mixture: str) -> str:
    return shell_command("expert", "certify-removal", name, "--mixture", mixture)
