"""Experts: list, show, enable, disable, rename, certify and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ui.cli.completion import names_of
from ui.cli.job_progress import submit
from ui.cli.listing import Column, created_column, name_column
from ui.cli.options import InProcess, Json, RunOptions, Wait, build, split_commas, takes
from ui.cli.output import day, print_done, print_fields, print_json, print_note, print_table, say
from ui.cli.printing.report import print_report
from ui.cli.questions import prints_answer
from ui.cli.things import add_list
from ui.present.text.formatting import pluralize, size
from ui.present.text.parents import proposal_rows, proposal_words
from workbench.answers.cards import ExpertCard, ReportCard
from workbench.formatting.shell_command import shell_command
from workbench.kinds.analysis import CertifyAddition, CertifyRemoval
from workbench.kinds.training.exchange import ExportExpert, ImportExpert, PackExpert, PushExpert, UnpackExpert
from workbench.questions.parent_proposal import NearestRequest, ParentProposal

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
    noun="expert",
    help="List experts. A stale expert was trained on a cluster whose documents have changed.",
    empty="There is no expert yet. Train some with: workbench train joint NAME --seed-model S --domains A,B",
)


@app.command("show")
def show(name: ExpertName, as_json: Json = False) -> None:
    """Show an expert with its parents and its training."""
    from workbench.analysis.changes.training_outcome import worse_than_before
    from workbench.exports.old_masks import old_masks
    from workbench.registry.database import reading
    from workbench.registry.experts import get_expert
    from workbench.settings import get_settings
    from workbench.store.storage import get_storage

    with reading() as session:
        card = get_expert(session, name)
        warning = "" if as_json else old_masks(session, get_storage(get_settings()), name)
    if as_json:
        print_json(card)
    else:
        readable = {"size": size(card.size_bytes), "created": day(card.created_at)}
        print_fields(card.model_dump(exclude={"id", "base_id", "size_bytes", "created_at"}) | readable)
        if worse := worse_than_before(card.metrics):
            print_note(worse)
        if warning:
            say(warning)


@app.command("enable")
def enable(names: ExpertNames, as_json: Json = False) -> None:
    """Enable experts that were disabled."""
    _switch(names, True, as_json)


@app.command("disable")
def disable(names: ExpertNames, as_json: Json = False) -> None:
    """Disable experts in every mixture, without deleting them."""
    _switch(names, False, as_json)


@app.command("rename")
def rename(name: ExpertName, new_name: str = typer.Argument(help="The new name."), as_json: Json = False) -> None:
    """Rename an expert; its id and files stay the same."""
    from workbench.registry import experts
    from workbench.registry.database import transaction

    with transaction() as session:
        experts.rename(session, name, new_name)
        card = experts.get_expert(session, new_name)
    print_done(card, f"“{name}” is now called “{card.name}”.", as_json)


@app.command("note")
def note(
    name: ExpertName,
    notes: str = typer.Option(None, help="Notes about the expert; they replace the old ones."),
    tags: str = typer.Option(None, help="Tags, separated by commas; they replace the old ones."),
    as_json: Json = False,
) -> None:
    """Set the notes or tags of an expert."""
    from ui.cli.options import split_commas
    from workbench.registry import experts
    from workbench.registry.database import transaction

    with transaction() as session:
        experts.describe(session, name, notes=notes, tags=None if tags is None else split_commas([tags]))
        card = experts.get_expert(session, name)
    print_done(card, f"The notes and tags of “{name}” are saved.", as_json)


@app.command("nearest")
@prints_answer(NearestRequest, "domain")
def nearest(_: NearestRequest, answer: ParentProposal) -> None:
    """Propose the parent of a new expert: the one with the highest posterior on the domain, from stored scores."""
    print_table(["Expert", "Mean posterior", "Perplexity"], proposal_rows(answer), empty="No expert.")
    say(proposal_words(answer))


@app.command("certify")
@takes(CertifyAddition, "expert")
def certify(spec: CertifyAddition, run_options: RunOptions) -> None:
    """Certify that adding an expert changed no other file, and measure each domain's gain; exit code 1 if it fails.

    Show the certificate with: workbench expert additions NAME.
    """
    submit(spec, run_options)


@app.command("additions")
def additions(name: ExpertName, as_json: Json = False) -> None:
    """Show the newest certificate of an expert's addition; with --json, all of them."""
    from workbench.analysis.changes.additions import additions_of
    from workbench.registry.database import reading

    with reading() as session:
        certificates = additions_of(session, name)
    if as_json:
        print_json(certificates)
    elif certificates:
        _print_newest(certificates)
    else:
        line = shell_command("expert", "certify", name, "--mixture", "MIXTURE")
        say(f"The addition of “{name}” is not certified yet. Certify it with: {line}")


@app.command("export")
@takes(ExportExpert, "expert", "folder")
def export(spec: ExportExpert, run_options: RunOptions) -> None:
    """Export an expert with a model card as a new folder, for transformers (hf), PEFT (peft) or llama.cpp (gguf)."""
    submit(spec, run_options)


@app.command("push")
@takes(PushExpert, "expert", "repository")
def push(spec: PushExpert, run_options: RunOptions) -> None:
    """Upload an expert with a model card to a repository of the Hugging Face hub, private unless --public is given.

    The token is that of HF_TOKEN or of `hf auth login`.
    """
    submit(spec, run_options)


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


@app.command("pack")
@takes(PackExpert, "expert", "file")
def pack(spec: PackExpert, run_options: RunOptions) -> None:
    """Pack an expert into one verified file for another workbench."""
    submit(spec, run_options)


@app.command("unpack")
@takes(UnpackExpert, "file")
def unpack(spec: UnpackExpert, run_options: RunOptions) -> None:
    """Unpack the file of an expert that another workbench packed."""
    submit(spec, run_options)


@app.command("certify-removal")
@takes(CertifyRemoval, "expert")
def certify_removal(spec: CertifyRemoval, run_options: RunOptions) -> None:
    """Certify a mixture without an expert, and try to extract its training text; exit code 1 if it fails.

    Show the certificate with: workbench expert removals NAME.
    """
    submit(spec, run_options)


@app.command("removals")
def removals(
    name: Annotated[
        str, typer.Argument(help="Name of an expert, which may be deleted.", autocompletion=names_of("expert"))
    ],
    as_json: Json = False,
) -> None:
    """Show the newest certificate of an expert's removal; with --json, all of them."""
    from workbench.questions.removal import removal_reports
    from workbench.registry.database import reading

    with reading() as session:
        certificates = removal_reports(session, name)
    if as_json:
        print_json(certificates)
        return
    if not certificates:
        say(f"The removal of “{name}” is not certified yet. Certify it with: {_certify_line(name, 'MIXTURE')}")
        return
    _print_newest(certificates)


def _print_newest(certificates: Sequence[ReportCard]) -> None:
    print_report(certificates[0])
    if len(certificates) > 1:
        say(f"{pluralize(len(certificates) - 1, 'older certificate')}: --json prints them all.")


@app.command("delete")
def delete(name: ExpertName, as_json: Json = False) -> None:
    """Delete an expert with its scores; refused while an expert, a seed model, a mixture or a job uses it."""
    from workbench.questions.removal import removal_reports
    from workbench.registry.database import transaction
    from workbench.registry.experts import delete_expert, get_expert

    with transaction() as session:
        mixtures = get_expert(session, name).mixtures
        if mixtures and not removal_reports(session, name):
            print_note(
                f"The removal is not certified. To certify it before deleting: {_certify_line(name, mixtures[0])}"
            )
        delete_expert(session, name)
    print_done({"deleted": name}, f"“{name}” is deleted, with its weights and scores.", as_json)


def _certify_line(name: str, mixture: str) -> str:
    return shell_command("expert", "certify-removal", name, "--mixture", mixture)


def _switch(names: list[str], enabled: bool, as_json: bool) -> None:
    from workbench.registry import experts
    from workbench.registry.database import transaction

    with transaction() as session:
        experts.set_enabled(session, names, enabled)
        cards = [experts.get_expert(session, name) for name in names]
    print_done(cards, f"{', '.join(names)}: {'enabled' if enabled else 'disabled'}.", as_json)
