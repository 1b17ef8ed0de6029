"""Compared answers: make, list, show, verify and delete them, vote on them, and rate models by the votes."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any, Literal

import typer

from engine.config import SamplingConfig
from engine.device import prepare_process
from engine.events import Done, Token
from ui.addresses import playground_address
from ui.cli.commands.servers.verify import print_verification
from ui.cli.mix_options import MaxTokens, Seed, Temperature, TopP
from ui.cli.options import naming_argument, naming_option
from ui.cli.output import day, print_note, print_table, say
from ui.cli.verbs import CREATED, Column, CommandGroup, Outcome, lists, read, write
from ui.generation import model_host
from ui.generation.model_host import ModelHost
from ui.present.text.formatting import pluralize
from ui.present.text.ratings import interval_text, rating_text, ratings_csv
from workbench.analysis.ratings import RatingTables, rating_tables
from workbench.answers.history import (
    ComparisonCard,
    ComparisonHead,
    Letter,
    NewAnswer,
    NewComparison,
    NewVote,
    VoteCard,
)
from workbench.answers.posteriors import Manifest
from workbench.registry import comparisons
from workbench.registry.database import reading
from workbench.requests.verification import ComparisonVerification, linked_comparison, verify_comparison
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest

app = CommandGroup(__doc__)

NEWEST = 50
_EXCERPT = 60  # characters of a prompt in a list


Better = Literal["a", "b", "tie", "both-bad"]
ComparisonId = Annotated[str, naming_argument("Id of a comparison, or its first digits.", "comparison")]
PromptDomain = Annotated[
    str, naming_option("The prompt's domain; left out: that of the posterior.", "domain", flag="--domain")
]
FirstAnswer = Annotated[Letter, typer.Option("--first", help="The answer that is called a.", case_sensitive=False)]
SecondAnswer = Annotated[Letter, typer.Option("--second", help="The answer that is called b.", case_sensitive=False)]

_COLUMNS = (
    Column("ID", lambda one: one.id, lambda id: id[:8]),
    Column("Prompt", lambda one: one.prompt, lambda text: " ".join(text.split())[:_EXCERPT]),
    Column("Models", lambda one: ", ".join(one.models)),
    Column("Domain", lambda one: one.domain),
    Column("Votes", lambda one: ", ".join(_describe_vote(vote) for vote in one.votes)),
    CREATED,
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
    model: Annotated[str, naming_option("Only comparisons with this model.", "mixture", "expert", "alias")] = "",
    domain: Annotated[str, naming_option("Only prompts of this domain.", "domain")] = "",
) -> list[ComparisonHead]:
    """List compared answers, the newest first."""
    wanted: dict[str, Any] = {
        "search": search,
        "model": model,
        "domain": domain,
        "history_days": get_settings().history_days,
    }
    heads: list[ComparisonHead] = []
    with reading() as session:
        while page := comparisons.list_comparisons(session, **wanted, limit=1000, offset=len(heads)).data:
            heads += page
    return heads


@app.verb()
def create(
    prompt: Annotated[str, typer.Argument(help="Text to continue.")],
    models: Annotated[list[str], naming_argument("Two to four models.", "mixture", "expert", "alias")],
    domain: PromptDomain = "",
    max_tokens: MaxTokens = SamplingConfig.max_tokens,
    temperature: Temperature = SamplingConfig.temperature,
    top_p: TopP = SamplingConfig.top_p,
    seed: Seed = None,
) -> Outcome:
    """Continue a prompt with several models, and store the answers side by side."""
    comparisons.require_letters(len(models))
    settings = get_settings()
    prepare_process(settings.threads)
    sampling = SamplingConfig(max_tokens, temperature, top_p, model_host.new_seed() if seed is None else seed)
    host = ModelHost(settings)
    answers = [_answer(host, name, prompt, sampling) for name in models]
    new = NewComparison(prompt=prompt, answers=answers, domain=domain)
    card = write(comparisons.store_comparison, new, settings.history_days)
    if not card.has_text:
        print_note("The history is off (WORKBENCH_HISTORY_DAYS=0): prompt and answers are not stored.")
        for model, answer in zip(card.models, new.answers, strict=True):
            print_note(f"{model}: {answer.text}")
    return Outcome(card, _print)


def _answer(generations: ModelHost, name: str, prompt: str, sampling: SamplingConfig) -> NewAnswer:
    plan = generations.plan(MixtureRequest(name))
    ids: list[int] = []
    weights: list[dict[str, float]] = []
    text, reason = "", None
    with closing(generations.stream(plan, prompt, sampling)) as stream:
        for event in stream:
            text += event.text
            if isinstance(event, Token):
                ids.append(event.id)
                weights.append(dict(event.weights))
            elif isinstance(event, Done):
                reason = event.reason
    return NewAnswer(
        manifest=Manifest.of(plan, sampling),
        text=text,
        token_ids=ids,
        prompt_token_ids=generations.host.prompt_ids(plan, prompt),
        expert_weights=weights,
        finish_reason=reason,
    )


@app.verb()
def show(
    comparison: ComparisonId,
    answer: Annotated[
        Letter | None,
        typer.Option(help="Only this answer; with --json as `workbench verify` reads it.", case_sensitive=False),
    ] = None,
) -> Outcome:
    """Show a comparison: prompt, answers, seeds and votes."""
    card = _card(comparison)
    if answer is None:
        return Outcome(card, _print)
    chosen = comparisons.answer_of(card, answer)
    return Outcome(chosen, chosen.text)


@app.verb()
def link(comparison: ComparisonId) -> Outcome:
    """Show the link to a comparison, and what makes its texts that differs today."""
    settings = get_settings()
    opened = linked_comparison(_card(comparison), ModelHost(settings).plan)
    lines = [f"{playground_address(settings)}?r={opened.comparison.id}"]
    for answer in opened.answers:
        changes = f"Changed since: {', '.join(answer.changed)}." if answer.changed else "Nothing has changed."
        lines.append(f"Answer {answer.letter}: {answer.problem or changes}")
    return Outcome(opened, "\n".join(lines))


@app.verb()
def verify(comparison: ComparisonId) -> Outcome:
    """Generate the answers of a comparison again, and compare the tokens."""
    settings, stored = get_settings(), comparisons.replayable(_card(comparison))
    prepare_process(settings.threads)
    host = ModelHost(settings)
    result = verify_comparison(stored, host.plan, host.stream)
    return Outcome(result, _print_verifications, result.agrees)


def _print_verifications(result: ComparisonVerification) -> None:
    for answer in result.answers:
        say(f"Answer {answer.letter}:")
        print_verification(answer)


@app.verb()
def vote(
    comparison: ComparisonId,
    choice: Annotated[Better, typer.Argument(help="Which answer is better.", case_sensitive=False)],
    first: FirstAnswer = "A",
    second: SecondAnswer = "B",
    blind: Annotated[bool, typer.Option("--blind", help="The names were hidden until the vote.")] = False,
    domain: PromptDomain = "",
) -> Outcome:
    """Record which of two answers is better; another vote on the same two replaces it."""
    fields = {"choice": choice.replace("-", "_"), "a": first, "b": second, "is_blind": blind, "domain": domain}
    card = write(comparisons.vote, comparison, NewVote.model_validate(fields))
    return Outcome(card, f"{_describe_vote(card.votes[-1])}.")


@app.verb()
def withdraw(comparison: ComparisonId, first: FirstAnswer = "A", second: SecondAnswer = "B") -> Outcome:
    """Withdraw the vote on two answers."""
    card = write(comparisons.withdraw_vote, comparison, first, second)
    return Outcome(card, f"The vote on {first} and {second} is withdrawn.")


@app.verb()
def delete(comparison: ComparisonId) -> Outcome:
    """Delete a comparison with its votes."""
    deleted = write(comparisons.delete_comparison, comparison)
    return Outcome(deleted, f"The comparison is deleted, with {pluralize(deleted.num_votes, 'vote')}.")


@app.verb()
def clear(
    older_than: Annotated[float, typer.Option("--older-than", min=0, help="Only what is older than so many days.")] = 0,
    with_votes: Annotated[
        bool, typer.Option("--with-votes", help="Also delete votes; else they stay without any text.")
    ] = False,
) -> Outcome:
    """Delete the prompts and answers of the history."""
    deleted = write(comparisons.delete_history, older_than_days=older_than, with_votes=with_votes)
    number = pluralize(deleted.num_comparisons, "comparison")
    return Outcome(deleted, f"Deleted: the text of {number}, and {pluralize(deleted.num_votes, 'vote')}.")


@app.verb()
def rating(
    domain: Annotated[str, naming_option("Only prompts of this domain.", "domain")] = "",
    blind: Annotated[bool, typer.Option("--blind", help="Only votes before which the names were hidden.")] = False,
    by_name: Annotated[
        bool, typer.Option("--by-name", help="Count all setups that had one name as one model.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the result as CSV on stdout.")] = False,
) -> Outcome:
    """Rate models by the votes (Bradley-Terry, 95 % intervals), on all prompts and by domain."""
    answer = read(rating_tables, domain=domain, blind_only=blind, by_name=by_name)
    return Outcome(answer, ratings_csv(answer).rstrip("\n") if as_csv else _print_ratings)


def _print_ratings(answer: RatingTables) -> None:
    for table in answer.tables:
        blind = f", {table.num_blind} blind" if table.num_blind else ""
        votes = f"{pluralize(table.num_votes, 'vote')}{blind}"
        say(f"{table.domain or 'All prompts'} ({votes}): {table.sentence.rstrip('.')}.")
        rows = [
            [row.label, rating_text(row), interval_text(row), row.num_votes, row.wins, row.losses, row.ties, row.why]
            for row in table.rows
        ]
        print_table(["Model", "Rating", "95 % interval", "Votes", "Won", "Lost", "Ties", "Why"], rows, empty="")


def _card(comparison: str) -> ComparisonCard:
    return read(comparisons.get_comparison, comparison, get_settings().history_days)


def _print(card: ComparisonCard) -> None:
    domain = f", {card.domain} (by the {card.domain_source})" if card.domain else ""
    say(f"Comparison {card.id[:8]} ({day(card.created_at)}{domain})")
    say(card.prompt if card.has_text else "Its text is not stored.")
    for answer, model in zip(card.answers, card.models, strict=True):
        seed = (answer.manifest.sampling or {}).get("seed")
        say(f"\n{answer.letter}: {model}, seed {seed}, {pluralize(answer.num_tokens, 'token')}\n{answer.text}")
    for vote in card.votes:
        say(f"\n{_describe_vote(vote)}{' (blind)' if vote.is_blind else ''}.")


def _describe_vote(card: VoteCard) -> str:
    better = {"a": f"{card.a} is better than {card.b}", "b": f"{card.b} is better than {card.a}"}
    pair = f"{card.a} and {card.b}"
    return {**better, "tie": f"{pair} are equally good", "both_bad": f"{pair} are both bad"}[card.choice]
