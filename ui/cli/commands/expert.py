"""workbench expert: the registry of experts."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from engine.config import MOST
from ui.cli.job_progress import submit
from ui.cli.options import How, Json, takes
from ui.cli.output import day, print_done, print_fields, print_json, print_table, say, tell
from ui.cli.printing.addition import print_addition
from ui.cli.printing.removal import print_certificate
from ui.present.text.formatting import size
from ui.present.text.parents import proposal_words
from workbench.kinds.analysis.certify_addition import CertifyAddition
from workbench.kinds.analysis.certify_removal import CertifyRemoval

app = typer.Typer(no_args_is_help=True, help="Experts: list, look at, switch on and off, rename, certify, delete.")

ExpertName = Annotated[str, typer.Argument(help="Name of an expert.")]
ExpertNames = Annotated[list[str], typer.Argument(help="Names of experts.")]


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """Every expert."""
    from workbench.registry.database import reading
    from workbench.registry.experts import list_experts

    with reading() as session:
        cards = list_experts(session)
    if as_json:
        print_json(cards)
    else:
        rows = [
            (
                one.name,
                one.method,
                one.domains,
                one.parents,
                one.num_parameters,
                one.enabled,
                one.mixtures,
                "stale" if one.stale else "",
            )
            for one in cards
        ]
        print_table(
            ["Expert", "Method", "Domains", "Parents", "Parameters", "Enabled", "In mixtures", ""],
            rows,
            empty="There is no expert yet. Train some with: workbench train demix NAME --seed-model S --domains A,B",
        )


@app.command("show")
def show(name: ExpertName, as_json: Json = False) -> None:
    """One expert, with where it came from."""
    from workbench.registry.database import reading
    from workbench.registry.experts import get_expert

    with reading() as session:
        card = get_expert(session, name)
    if as_json:
        print_json(card)
    else:
        told = {"size": size(card.size_bytes), "made": day(card.created_at)}
        print_fields(card.model_dump(exclude={"id", "base_id", "size_bytes", "created_at"}) | told)


@app.command("enable")
def enable(names: ExpertNames, as_json: Json = False) -> None:
    """Let experts take part again."""
    _switch(names, True, as_json)


@app.command("disable")
def disable(names: ExpertNames, as_json: Json = False) -> None:
    """Keep experts out of every mixture, without deleting them."""
    _switch(names, False, as_json)


@app.command("rename")
def rename(name: ExpertName, new_name: str = typer.Argument(help="The new name."), as_json: Json = False) -> None:
    """Give an expert another name; its id and files stay."""
    from workbench.registry import experts
    from workbench.registry.database import transaction

    with transaction() as session:
        experts.rename(session, name, new_name)
        card = experts.get_expert(session, new_name)
    print_done(card, f"“{name}” is now called “{card.name}”.", as_json)


@app.command("note")
def note(
    name: ExpertName,
    notes: str = typer.Option(None, help="Free text about the expert; replaces what was there."),
    tags: str = typer.Option(None, help="Tags, separated by commas; replace those that were there."),
    as_json: Json = False,
) -> None:
    """Write down what you know about an expert."""
    from ui.cli.options import split_commas
    from workbench.registry import experts
    from workbench.registry.database import transaction

    with transaction() as session:
        experts.describe(session, name, notes=notes, tags=None if tags is None else split_commas([tags]))
        card = experts.get_expert(session, name)
    print_done(card, f"Noted on “{name}”.", as_json)


@app.command("nearest")
def nearest(
    domain: Annotated[str, typer.Argument(help="Domain that a new expert is to learn.")],
    mixture: Annotated[str, typer.Option(show_default=False, help="Mixture whose experts are the possible parents.")],
    blocks: Annotated[int, typer.Option(min=1, max=MOST, help="Scored blocks at most (paper: 100).")] = 100,
    split: Annotated[str, typer.Option(help="Which held-out part: dev or test.")] = "dev",
    as_json: Json = False,
) -> None:
    """Propose the parent of a new expert: whom the domain's held-out text is taken for, from stored scores."""
    from workbench.analysis.parent_proposal import nearest as find
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        found = find(session, get_storage(), mixture, domain, split=split, num_blocks=blocks)
    if as_json:
        print_json(found)
        return
    ranked = sorted(found["posterior"].items(), key=lambda pair: -pair[1])
    print_table(["Expert", "Mean posterior"], [(name, f"{share:.3f}") for name, share in ranked], empty="No expert.")
    say(proposal_words(found))


@app.command("certify")
@takes(CertifyAddition, "expert")
def certify(spec: CertifyAddition, how: How) -> None:
    """Certify an addition: nothing that was there changed, and what each domain gained; code 1 where it does not hold.

    Read it with: workbench expert additions NAME.
    """
    submit(spec, how)


@app.command("additions")
def additions(name: ExpertName, as_json: Json = False) -> None:
    """The certificates of an expert's addition: the newest with its numbers. With --json, all of them."""
    from workbench.analysis.additions import additions_of
    from workbench.registry.database import reading

    with reading() as session:
        found = additions_of(session, name)
    if as_json:
        print_json(found)
    elif found:
        print_addition(found[0], len(found) - 1)
    else:
        line = f"workbench expert certify {shlex.quote(name)} --mixture MIXTURE"
        say(f"No addition of “{name}” has been certified. Do it with: {line}")


@app.command("certify-removal")
@takes(CertifyRemoval, "expert")
def certify_removal(spec: CertifyRemoval, how: How) -> None:
    """Certify what a mixture is without an expert, and try to extract its training text; code 1 where it does not hold.

    Read it with: workbench expert removals NAME.
    """
    submit(spec, how)


@app.command("removals")
def removals(
    name: Annotated[str, typer.Argument(help="Name of an expert, or the one it had before it was deleted.")],
    as_json: Json = False,
) -> None:
    """The certificates of an expert's removal: the newest with its numbers. With --json, all of them."""
    from workbench.analysis.removal import removal_reports
    from workbench.registry.database import reading

    with reading() as session:
        found = removal_reports(session, name)
    if as_json:
        print_json(found)
        return
    if not found:
        say(f"No removal of “{name}” has been certified. Do it with: {_certify_line(name, 'MIXTURE')}")
        return
    print_certificate(found[0])
    if len(found) > 1:
        say(f"There are {len(found) - 1} older ones: --json prints them all.")


@app.command("delete")
def delete(name: ExpertName, as_json: Json = False) -> None:
    """Delete an expert with its scores; refused while an expert, a seed model, a mixture or a job depends on it."""
    from workbench.analysis.removal import removal_reports
    from workbench.registry.database import transaction
    from workbench.registry.experts import delete_expert, get_expert

    with transaction() as session:
        mixtures = get_expert(session, name).mixtures
        if mixtures and not removal_reports(session, name):
            tell(f"Before it goes, its removal can be certified: {_certify_line(name, mixtures[0])}")
        delete_expert(session, name)
    print_done({"deleted": name}, f"“{name}” is deleted, with its weights and scores.", as_json)


def _certify_line(name: str, mixture: str) -> str:
    return f"workbench expert certify-removal {shlex.quote(name)} --mixture {shlex.quote(mixture)}"


def _switch(names: list[str], enabled: bool, as_json: bool) -> None:
    from workbench.registry import experts
    from workbench.registry.database import transaction

    with transaction() as session:
        experts.set_enabled(session, names, enabled)
        cards = [experts.get_expert(session, name) for name in names]
    print_done(cards, f"{', '.join(names)}: {'enabled' if enabled else 'disabled'}.", as_json)
