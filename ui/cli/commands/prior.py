"""Priors: estimate them on held-out text, set them by hand, list, show and delete them."""

from __future__ import annotations

from typing import Annotated

from ui.cli.mix_options import parse_experts
from ui.cli.options import naming_argument
from ui.cli.output import as_text, print_table, say
from ui.cli.questions import takes_question
from ui.cli.verbs import CREATED, NAME, Column, CommandGroup, Outcome, get_card, write
from workbench.answers.cards import PriorCard
from workbench.answers.posteriors import PriorSource
from workbench.questions.posteriors import PriorRequest
from workbench.questions.question import ask
from workbench.registry.database import transaction
from workbench.registry.experts import list_with_seeds
from workbench.registry.priors import give_prior, keep_estimate

app = CommandGroup(__doc__)

PriorName = Annotated[str, naming_argument("Name of a prior.", "prior")]

_COLUMNS = (
    NAME,
    Column("Shares", lambda prior: prior.shares),
    Column("Source", lambda prior: prior.source.domain if isinstance(prior.source, PriorSource) else "set by hand"),
    CREATED,
)


app.add_list(
    "prior",
    _COLUMNS,
    "List priors with the domains that they were estimated on.",
    "Estimate one with: workbench prior estimate NAME MIXTURE DOMAIN",
)


@app.verb()
@takes_question(PriorRequest, "name", "mixture", "domain")
def estimate(question: PriorRequest) -> Outcome:
    """Estimate a cached prior: the mean posterior over held-out blocks of a domain, from stored scores."""
    return Outcome(write(keep_estimate, question.name, ask(question.answer)), _print)


@app.verb("set")
def set_prior(
    name: PriorName,
    pairs: Annotated[
        list[str], naming_argument("Experts with their weights, such as duo/python=2 duo/law=1.", "expert")
    ],
) -> Outcome:
    """Create a prior with given weights, which need not sum to one."""
    with transaction() as session:
        members = {expert.name: expert.domain for expert in list_with_seeds(session)}
        _, weights = parse_experts(members, ",".join(pairs))
        return Outcome(give_prior(session, name, weights or {}), _print)


@app.verb()
def show(name: PriorName) -> Outcome:
    """Show a prior: the share of each expert, and its source."""
    return Outcome(get_card("prior", name), _print)


app.add_delete("prior", PriorName, "Delete a prior; the weights of mixtures stay the same.")


def _print(card: PriorCard) -> None:
    say(f"{card.name}: {as_text(card.source.model_dump()) if isinstance(card.source, PriorSource) else 'set by hand'}")
    shares = sorted(card.shares.items(), key=lambda item: -item[1])
    print_table(["Expert", "Share"], shares, empty="All its experts are deleted.")
