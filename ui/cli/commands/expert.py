"""Experts: list, show, enable, disable, rename, certify and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from engine.methods.registry import method_of
from ui.cli.commands.report import print_report
from ui.cli.options import (
    naming_argument,
    split_commas,
)
from ui.cli.output import day, print_fields, print_note, print_table, say, say_each
from ui.cli.questions import prints_answer
from ui.cli.verbs import CREATED, NAME, Column, CommandGroup, Outcome, get_card, read, write
from ui.present.text.formatting import pluralize, size
from ui.present.text.parents import describe_parent, proposal_rows
from workbench.analysis.changes.additions import additions_of, worse_than_before
from workbench.analysis.routers import describe_routers, facts_of
from workbench.answers.cards import ExpertCard, ReportCard
from workbench.exports.facts import old_masks
from workbench.formatting.shell_command import shell_command
from workbench.kinds.training.exchange import ImportExpert
from workbench.questions.parent_proposal import NearestRequest, ParentProposal
from workbench.questions.removal import removal_reports
from workbench.registry import experts
from workbench.store.storage import get_storage

app = CommandGroup(__doc__)

ExpertName = Annotated[str, naming_argument("Name of an expert.", "expert")]
ExpertNames = Annotated[list[str], naming_argument("Names of experts.", "expert")]


_COLUMNS = (
    NAME,
    Column("Method", lambda expert: method_of(expert.method).title),
    Column("Domains", lambda expert: expert.domains),
    Column("Parents", lambda expert: expert.parents),
    Column("Parameters", lambda expert: expert.total_parameters),
    Column("Own", lambda expert: expert.num_parameters),
    Column("Mixtures", lambda expert: expert.mixtures),
    Column(
        "Status", lambda expert: f"{'enabled' if expert.enabled else 'disabled'}{', stale' if expert.stale else ''}"
    ),
    CREATED,
)


app.add_list(
    "expert",
    _COLUMNS,
    "List experts. A stale expert was trained on a cluster whose documents have changed.",
    "Train some with: workbench train joint NAME --seed-model S --domains A,B",
)


@app.verb()
def show(name: ExpertName) -> Outcome:
    """Show an expert with its parents and its training."""
    return Outcome(get_card("expert", name), _print)


def _print(card: ExpertCard) -> None:
    readable = {"size": size(card.size_bytes), "created": day(card.created_at)}
    print_fields(card.model_dump(exclude={"id", "base_id", "size_bytes", "created_at"}) | readable)
    if worse := worse_than_before(card.metrics):
        print_note(worse)
    if facts := facts_of(card):
        say_each(*describe_routers(facts))
    say_each(read(old_masks, get_storage(), card.name))


def _switch(names: list[str], enabled: bool) -> Outcome:
    write(experts.set_enabled, names, enabled)
    cards = [get_card("expert", name) for name in names]
    return Outcome(cards, f"{', '.join(names)}: {'enabled' if enabled else 'disabled'}.")


@app.verb()
def enable(names: ExpertNames) -> Outcome:
    """Enable experts that were disabled."""
    return _switch(names, True)


@app.verb()
def disable(names: ExpertNames) -> Outcome:
    """Disable experts in every mixture, without deleting them."""
    return _switch(names, False)


@app.verb()
def rename(name: ExpertName, new_name: str = typer.Argument(help="The new name.")) -> Outcome:
    """Rename an expert; its id and files stay the same."""
    card = get_card("expert", write(experts.rename, name, new_name).name)
    return Outcome(card, f"“{name}” is now called “{card.name}”.")


@app.verb()
def note(
    name: ExpertName,
    notes: str = typer.Option(None, help="Notes about the expert; they replace the old ones."),
    tags: str = typer.Option(None, help="Tags, separated by commas; they replace the old ones."),
) -> Outcome:
    """Set the notes or tags of an expert."""
    write(experts.describe, name, notes=notes, tags=None if tags is None else split_commas([tags]))
    return Outcome(get_card("expert", name), f"The notes and tags of “{name}” are saved.")


@prints_answer(app, NearestRequest, "domain")
def nearest(_: NearestRequest, answer: ParentProposal) -> None:
    """Propose the parent of a new expert: the one with the highest posterior on the domain, from stored scores."""
    print_table(["Expert", "Mean posterior", "Perplexity"], proposal_rows(answer), empty="No expert.")
    say(describe_parent(answer))


app.add_job("import SOURCE", ImportExpert, also=("seed_model", "--seed"))
app.add_jobs(
    "expert",
    certify="The exit code is 1 if it fails. Show the certificate with: workbench expert additions NAME.",
    certify_removal="The exit code is 1 if it fails. Show the certificate with: workbench expert removals NAME.",
    push="It is private unless --public is given. The token is that of HF_TOKEN or of `hf auth login`.",
)


@app.verb()
def additions(name: ExpertName) -> Outcome:
    """Show the newest certificate of an expert's addition; with --json, all of them."""
    line = shell_command("expert", "certify", name, "--mixture", "MIXTURE")
    missing = f"The addition of “{name}” is not certified yet. Certify it with: {line}"
    certificates = read(additions_of, name)
    return Outcome(certificates, _print_newest if certificates else missing)


@app.verb()
def removals(
    name: Annotated[str, naming_argument("Name of an expert, which may be deleted.", "expert")],
) -> Outcome:
    """Show the newest certificate of an expert's removal; with --json, all of them."""
    missing = f"The removal of “{name}” is not certified yet. Certify it with: {_certify_line(name, 'MIXTURE')}"
    certificates = read(removal_reports, name)
    return Outcome(certificates, _print_newest if certificates else missing)


def _print_newest(certificates: Sequence[ReportCard]) -> None:
    print_report(certificates[0])
    if len(certificates) > 1:
        say(f"{pluralize(len(certificates) - 1, 'older certificate')}: --json prints them all.")


@app.verb()
def delete(name: ExpertName) -> Outcome:
    """Delete an expert with its scores; refused while an expert, a seed model, a mixture or a job uses it."""
    mixtures = get_card("expert", name).mixtures
    if mixtures and not read(removal_reports, name):
        print_note(f"The removal is not certified. To certify it before deleting: {_certify_line(name, mixtures[0])}")
    write(experts.delete_expert, name)
    return Outcome({"deleted": name}, f"“{name}” is deleted, with its weights and scores.")


def _certify_line(name: str, mixture: str) -> str:
    return shell_command("expert", "certify-removal", name, "--mixture", mixture)
