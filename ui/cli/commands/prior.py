"""Priors: estimate them on held-out text, set them by hand, list, show and delete them."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.mix_options import chosen
from ui.cli.options import names_of
from ui.cli.output import day, print_json, print_table, say, shown
from ui.cli.questions import takes_question
from ui.cli.verbs import Column, Outcome, add_delete, add_list, created_column, get_card, name_column, verb, write
from workbench.answers.cards import PriorCard
from workbench.answers.posteriors import PriorSource
from workbench.questions.prior_estimate import PriorRequest
from workbench.questions.question import ask
from workbench.registry.database import transaction
from workbench.registry.experts import list_experts
from workbench.registry.priors import give_prior, keep_estimate

app = typer.Typer(no_args_is_help=True, help=__doc__)

PriorName = Annotated[str, typer.Argument(help="Name of a prior.", autocompletion=names_of("prior"))]

_COLUMNS = (
    name_column(),
    Column("Shares", lambda prior: prior.shares),
    Column("Source", lambda prior: prior.source.domain if isinstance(prior.source, PriorSource) else "set by hand"),
    created_column(day),
)


add_list(
    app,
    "prior",
    _COLUMNS,
    "List priors with the domains that they were estimated on.",
    "Estimate one with: workbench prior estimate NAME MIXTURE DOMAIN",
)


@app.command("estimate")
@takes_question(PriorRequest, "name", "mixture", "domain")
def estimate(question: PriorRequest, as_json: bool) -> None:
    """Estimate a cached prior: the mean posterior over held-out blocks of a domain, from stored scores."""
    card = write(keep_estimate, question.name, ask(question.answer))
    print_json(card) if as_json else _print(card)


@verb(app, "set")
def set_prior(
    name: PriorName,
    pairs: Annotated[
        list[str],
        typer.Argument(
            help="Experts with their weights, such as duo/python=2 duo/law=1.", autocompletion=names_of("expert")
        ),
    ],
) -> Outcome:
    """Create a prior with given weights, which need not sum to one."""
    with transaction() as session:
        members = {expert.name: expert.domain for expert in list_experts(session)}
        _, weights = chosen(members, ",".join(pairs))
        return Outcome(give_prior(session, name, weights or {}), _print)


@verb(app)
def show(name: PriorName) -> Outcome:
    """Show a prior: the share of each expert, and its source."""
    return Outcome(get_card("prior", name), _print)


add_delete(app, "prior", PriorName, "Delete a prior; the weights of mixtures stay the same.")


def _print(card: PriorCard) -> None:
    say(f"{card.name}: {shown(card.source.model_dump()) if isinstance(card.source, PriorSource) else 'set by hand'}")
    print_table(
        ["Expert", "Share"],
        sorted(card.shares.items(), key=lambda item: -item[1]),
        empty="All its experts are deleted.",
    )
