"""Compared answers: make, list, show, verify and delete them, vote on them, and rate models by the votes."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from engine.config import SamplingConfig
from engine.events import Done, Token
from ui.cli.completion import names_of
from ui.cli.listing import Column, created_column, lists
from ui.cli.mix_options import MaxTokens, Seed, Temperature, TopP
from ui.cli.options import Json
from ui.cli.output import day, print_done, print_json, print_note, print_table, say
from ui.generation import model_host
from ui.generation.model_host import ModelHost
from ui.present.text.formatting import pluralize
from ui.present.text.ratings import interval_text, rating_text
from workbench.answers.history import ComparisonCard, ComparisonHead, NewAnswer, NewComparison, VoteCard
from workbench.answers.posteriors import Manifest

if TYPE_CHECKING:
    from workbench.analysis.ratings import RatingTable

app = typer.Typer(no_args_is_help=True, help=__doc__)

NEWEST = 50
_EXCERPT = 60  # characters of a prompt in a list


class Better(StrEnum):
    """The outcome of a vote."""

    A = "a"
    B = "b"
    TIE = "tie"
    BOTH_BAD = "both-bad"


class AnswerLetter(StrEnum):
    """The answers of a comparison."""

    A = "A"
    B = "B"
    C = "C"
    D = "D"


ComparisonId = Annotated[
    str, typer.Argument(help="Id of a comparison, or its first digits.", autocompletion=names_of("comparison"))
]
PromptDomain = Annotated[
    str,
    typer.Option(
        "--domain", help="The prompt's domain; left out: that of the posterior.", autocompletion=names_of("domain")
    ),
]
FirstAnswer = Annotated[
    AnswerLetter, typer.Option("--first", help="The answer that is called a.", case_sensitive=False)
]
SecondAnswer = Annotated[
    AnswerLetter, typer.Option("--second", help="The answer that is called b.", case_sensitive=False)
]

_COLUMNS = (
    Column("ID", lambda one: one.id, lambda id: id[:8]),
    Column("Prompt", lambda one: one.prompt, lambda text: " ".join(text.split())[:_EXCERPT]),
    Column("Models", lambda one: ", ".join(one.models)),
    Column("Domain", lambda one: one.domain),
    Column("Votes", lambda one: ", ".join(_vote_words(vote) for vote in one.votes)),
    created_column(day),
)


@app.command("list")
@lists(
    _COLUMNS,
    empty="There is no stored comparison. Make one with: workbench comparison create PROMPT MODEL MODEL",
    noun="comparison",
    limit=NEWEST,
)
def list_all(
    search: Annotated[str, typer.Option(help="Words that must stand in the prompt or in an answer.")] = "",
    model: Annotated[
        str,
        typer.Option(help="Only comparisons with this model.", autocompletion=names_of("mixture", "expert", "alias")),
    ] = "",
    domain: Annotated[str, typer.Option(help="Only prompts of this domain.", autocompletion=names_of("domain"))] = "",
) -> list[ComparisonHead]:
    """List compared answers, the newest first."""
    from workbench.registry.comparisons import list_comparisons
    from workbench.registry.database import reading
    from workbench.settings import get_settings

    days = get_settings().history_days
    heads: list[ComparisonHead] = []
    with reading() as session:
        while page := list_comparisons(
            session, search=search, model=model, domain=domain, limit=1000, offset=len(heads), history_days=days
        ).data:
            heads += page
    return heads


@app.command("create")
def create(
    prompt: Annotated[str, typer.Argument(help="Text to continue.")],
    models: Annotated[
        list[str],
        typer.Argument(help="Two to four mixtures or experts.", autocompletion=names_of("mixture", "expert", "alias")),
    ],
    domain: PromptDomain = "",
    max_tokens: MaxTokens = SamplingConfig.max_tokens,
    temperature: Temperature = SamplingConfig.temperature,
    top_p: TopP = SamplingConfig.top_p,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Continue a prompt with several models, and store the answers side by side."""
    from engine.device import prepare_process
    from workbench.registry.comparisons import require_letters, store_comparison
    from workbench.registry.database import transaction
    from workbench.settings import get_settings

    require_letters(len(models))
    settings = get_settings()
    prepare_process(settings.threads)
    sampling = SamplingConfig(max_tokens, temperature, top_p, model_host.new_seed() if seed is None else seed)
    host = ModelHost(settings)
    new = NewComparison(
        prompt=prompt, answers=[_answer(host, name, prompt, sampling) for name in models], domain=domain
    )
    with transaction() as session:
        card = store_comparison(session, new, settings.history_days)
    if not card.has_text:
        print_note("The history is off (WORKBENCH_HISTORY_DAYS=0): prompt and answers are not stored.")
        for model, answer in zip(card.models, new.answers, strict=True):
            print_note(f"{model}: {answer.text}")
    _print(card, as_json)


def _answer(generations: ModelHost, name: str, prompt: str, sampling: SamplingConfig) -> NewAnswer:
    from workbench.answers.mixture_request import MixtureRequest

    plan = generations.plan(MixtureRequest(name))
    ids: list[int] = []
    weights: list[dict[str, float]] = []
    text, reason = "", None
    with closing(generations.stream(plan, prompt, sampling)) as stream:
        for one in stream:
            text += one.text
            if isinstance(one, Token):
                ids.append(one.id)
                weights.append(dict(one.weights))
            elif isinstance(one, Done):
                reason = one.reason
    return NewAnswer(
        manifest=Manifest.of(plan, sampling),
        text=text,
        token_ids=ids,
        prompt_token_ids=generations.host.prompt_ids(plan, prompt),
        expert_weights=weights,
        finish_reason=reason,
    )


@app.command("show")
def show(
    comparison: ComparisonId,
    answer: Annotated[
        AnswerLetter | None,
        typer.Option(help="Only this answer; with --json as `workbench verify` reads it.", case_sensitive=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a comparison: prompt, answers, seeds and votes."""
    card = _card(comparison)
    if answer is None:
        _print(card, as_json)
        return
    from workbench.registry.comparisons import answer_of

    chosen = answer_of(card, answer.value)
    if as_json:
        print_json(chosen)
    else:
        say(chosen.text)


@app.command("link")
def link(comparison: ComparisonId, as_json: Json = False) -> None:
    """Show the link to a comparison, and what makes its texts that differs today."""
    from ui.addresses import playground_address
    from workbench.requests.verification import linked_comparison
    from workbench.settings import get_settings

    settings = get_settings()
    opened = linked_comparison(_card(comparison), ModelHost(settings).plan)
    if as_json:
        print_json(opened)
        return
    say(f"{playground_address(settings)}?r={opened.comparison.id}")
    for one in opened.answers:
        changes = f"Changed since: {', '.join(one.changed)}." if one.changed else "Nothing has changed."
        say(f"Answer {one.letter}: {one.problem or changes}")


@app.command("verify")
def verify(comparison: ComparisonId, as_json: Json = False) -> None:
    """Generate the answers of a comparison again, and compare the tokens."""
    from engine.device import prepare_process
    from ui.cli.commands.servers.verify import print_verification
    from workbench.registry.comparisons import replayable
    from workbench.requests.verification import verify_comparison
    from workbench.settings import get_settings

    settings, stored = get_settings(), replayable(_card(comparison))
    prepare_process(settings.threads)
    host = ModelHost(settings)
    result = verify_comparison(stored, host.plan, host.stream)
    if as_json:
        print_json(result)
    else:
        for one in result.answers:
            say(f"Answer {one.letter}:")
            print_verification(one)
    raise typer.Exit(0 if result.agrees else 1)


@app.command("vote")
def vote(
    comparison: ComparisonId,
    choice: Annotated[Better, typer.Argument(help="Which answer is better.", case_sensitive=False)],
    first: FirstAnswer = AnswerLetter.A,
    second: SecondAnswer = AnswerLetter.B,
    blind: Annotated[bool, typer.Option("--blind", help="The names were hidden until the vote.")] = False,
    domain: PromptDomain = "",
    as_json: Json = False,
) -> None:
    """Record which of two answers is better; another vote on the same two replaces it."""
    from workbench.answers.history import NewVote
    from workbench.registry import comparisons
    from workbench.registry.database import transaction

    fields = {"choice": choice.replace("-", "_"), "a": first, "b": second, "is_blind": blind, "domain": domain}
    with transaction() as session:
        card = comparisons.vote(session, comparison, NewVote.model_validate(fields))
    print_done(card, f"{_vote_words(card.votes[-1])}.", as_json)


@app.command("withdraw")
def withdraw(
    comparison: ComparisonId,
    first: FirstAnswer = AnswerLetter.A,
    second: SecondAnswer = AnswerLetter.B,
    as_json: Json = False,
) -> None:
    """Withdraw the vote on two answers."""
    from workbench.registry.comparisons import withdraw_vote
    from workbench.registry.database import transaction

    with transaction() as session:
        card = withdraw_vote(session, comparison, first.value, second.value)
    print_done(card, f"The vote on {first} and {second} is withdrawn.", as_json)


@app.command("delete")
def delete(comparison: ComparisonId, as_json: Json = False) -> None:
    """Delete a comparison with its votes."""
    from workbench.registry.comparisons import delete_comparison
    from workbench.registry.database import transaction

    with transaction() as session:
        deleted = delete_comparison(session, comparison)
    print_done(deleted, f"The comparison is deleted, with {pluralize(deleted.num_votes, 'vote')}.", as_json)


@app.command("clear")
def clear(
    older_than: Annotated[float, typer.Option("--older-than", min=0, help="Only what is older than so many days.")] = 0,
    with_votes: Annotated[
        bool, typer.Option("--with-votes", help="Delete votes, too; else they stay without any text.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete the prompts and answers of the history."""
    from workbench.registry.comparisons import delete_history
    from workbench.registry.database import transaction

    with transaction() as session:
        deleted = delete_history(session, older_than_days=older_than, with_votes=with_votes)
    number = pluralize(deleted.num_comparisons, "comparison")
    print_done(deleted, f"Deleted: the text of {number}, and {pluralize(deleted.num_votes, 'vote')}.", as_json)


@app.command("rating")
def rating(
    domain: Annotated[str, typer.Option(help="Only prompts of this domain.", autocompletion=names_of("domain"))] = "",
    blind: Annotated[bool, typer.Option("--blind", help="Only votes before which the names were hidden.")] = False,
    by_name: Annotated[
        bool, typer.Option("--by-name", help="Count all setups that had one name as one model.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the result as CSV on stdout.")] = False,
    as_json: Json = False,
) -> None:
    """Rate models by the votes (Bradley-Terry, 95 % intervals), on all prompts and by domain."""
    from ui.present.ratings_csv import ratings_csv
    from workbench.analysis.ratings import rating_tables
    from workbench.registry.database import reading

    with reading() as session:
        answer = rating_tables(session, domain=domain, blind_only=blind, by_name=by_name)
    if as_json:
        print_json(answer)
    elif as_csv:
        say(ratings_csv(answer).rstrip("\n"))
    else:
        for table in answer.tables:
            _print_table(table)


def _print_table(table: RatingTable) -> None:
    blind = f", {table.num_blind} blind" if table.num_blind else ""
    say(f"{table.domain or 'All prompts'} ({pluralize(table.num_votes, 'vote')}{blind}): {table.sentence.rstrip('.')}.")
    rows = [
        [row.label, rating_text(row), interval_text(row), row.num_votes, row.wins, row.losses, row.ties, row.why]
        for row in table.rows
    ]
    print_table(["Model", "Rating", "95 % interval", "Votes", "Won", "Lost", "Ties", "Why"], rows, empty="")


def _card(comparison: str) -> ComparisonCard:
    from workbench.registry.comparisons import get_comparison
    from workbench.registry.database import reading
    from workbench.settings import get_settings

    with reading() as session:
        return get_comparison(session, comparison, get_settings().history_days)


def _print(card: ComparisonCard, as_json: bool) -> None:
    if as_json:
        print_json(card)
        return
    domain = f", {card.domain} (by the {card.domain_source})" if card.domain else ""
    say(f"Comparison {card.id[:8]} ({day(card.created_at)}{domain})")
    say(card.prompt if card.has_text else "Its text is not stored.")
    for answer, model in zip(card.answers, card.models, strict=True):
        seed = (answer.manifest.sampling or {}).get("seed")
        say(f"\n{answer.letter}: {model}, seed {seed}, {pluralize(answer.num_tokens, 'token')}\n{answer.text}")
    for one in card.votes:
        say(f"\n{_vote_words(one)}{' (blind)' if one.is_blind else ''}.")


def _vote_words(card: VoteCard) -> str:
    better = {"a": f"{card.a} is better than {card.b}", "b": f"{card.b} is better than {card.a}"}
    pair = f"{card.a} and {card.b}"
    return {**better, "tie": f"{pair} are equally good", "both_bad": f"{pair} are both bad"}[card.choice]
