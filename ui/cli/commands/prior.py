"""workbench prior: beliefs in experts before any text."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.commands.mix import Blocks, MixtureName
from ui.cli.mix_options import GateEvidence
from ui.cli.options import Json
from ui.cli.output import print_done, print_json, print_table, say, shown
from workbench.registry.cards import PriorCard

app = typer.Typer(no_args_is_help=True, help="Priors: estimate them on held-out text, give them by hand, list them.")

PriorName = Annotated[str, typer.Argument(help="Name of a prior.")]


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """Every prior."""
    from workbench.registry.database import reading
    from workbench.registry.priors import list_priors

    with reading() as session:
        cards = list_priors(session)
    if as_json:
        print_json(cards)
        return
    rows = [(one.name, shown(one.shares), one.source.get("domain", "by hand")) for one in cards]
    empty = "There is no prior yet. Estimate one with: workbench prior estimate NAME MIXTURE DOMAIN"
    print_table(["Prior", "Shares", "Estimated on"], rows, empty=empty)


@app.command("estimate")
def estimate(
    name: PriorName,
    mixture: MixtureName,
    domain: Annotated[str, typer.Argument(help="Domain whose scored held-out text it is estimated on.")],
    blocks: Blocks = 100,
    evidence: GateEvidence = None,
    split: Annotated[str, typer.Option("--split", help="Which held-out part: dev or test.")] = "dev",
    as_json: Json = False,
) -> None:
    """The cached prior: the mean posterior on exactly so many blocks of held-out text, from stored scores."""
    from workbench.analysis.scores import estimate_shares
    from workbench.registry.database import reading, transaction
    from workbench.registry.priors import keep_estimate
    from workbench.store.storage import get_storage

    with reading() as session:
        shares = estimate_shares(
            session, get_storage(), mixture, domain, split=split, num_blocks=blocks, evidence=evidence or "prefix"
        )
    with transaction() as session:
        card = keep_estimate(session, name, shares)
    _print(card, as_json)


@app.command("give")
def give(
    name: PriorName,
    pairs: Annotated[list[str], typer.Argument(help="Experts with their weights, as in duo/python=2 duo/law=1.")],
    as_json: Json = False,
) -> None:
    """A prior by hand: weights in any scale."""
    from ui.cli.mix_options import chosen
    from workbench.registry.database import transaction
    from workbench.registry.experts import list_experts
    from workbench.registry.priors import give_prior

    with transaction() as session:
        members = {one.name: one.domain for one in list_experts(session)}
        _, weights = chosen(members, ",".join(pairs))
        card = give_prior(session, name, weights or {})
    _print(card, as_json)


@app.command("show")
def show(name: PriorName, as_json: Json = False) -> None:
    """One prior: the share of each expert, and where it comes from."""
    from workbench.registry.database import reading
    from workbench.registry.priors import get_prior

    with reading() as session:
        _print(get_prior(session, name), as_json)


@app.command("delete")
def delete(name: PriorName, as_json: Json = False) -> None:
    """Delete a prior; mixtures keep the weights they have."""
    from workbench.registry.database import transaction
    from workbench.registry.priors import delete_prior

    with transaction() as session:
        delete_prior(session, name)
    print_done({"deleted": name}, f"“{name}” is deleted.", as_json)


def _print(card: PriorCard, as_json: bool) -> None:
    if as_json:
        print_json(card)
        return
    say(f"{card.name}: {shown(card.source) if card.source else 'given by hand'}")
    print_table(["Expert", "Share"], sorted(card.shares.items(), key=lambda item: -item[1]), empty="No expert is left.")
