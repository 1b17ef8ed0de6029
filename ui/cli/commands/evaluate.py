"""Evaluation: score experts on held-out text, and analyse the stored scores."""

from __future__ import annotations

from typing import Any

from ui.cli.job_progress import submit
from ui.cli.options import RunOptions, takes
from ui.cli.output import print_rows, print_table, say, say_each
from ui.cli.questions import add_questions, prints_answer
from ui.cli.verbs import CommandGroup, read
from ui.present.charts.setting_grids import describe_grid, describe_temperature, grid_rows
from ui.present.text.measures import describe_table_measures, describe_unknown_accuracy, describe_without, in_percent
from ui.present.text.posteriors import posterior_title, stability_text
from ui.present.text.reports import not_removed, perplexity_rows
from ui.present.text.retention import (
    describe_forgetting,
    describe_left_out,
    describe_measured_text,
    describe_missing_evaluations,
    describe_retention,
    domain_rows,
    forgetting_rows,
    number_of,
    verdict_rows,
    verdict_title,
)
from ui.present.text.specialization import describe_affinity, describe_contrast
from workbench.analysis.perplexity_tables import PerplexityTable, in_domain_scores
from workbench.formatting.number_format import weight
from workbench.formatting.shell_command import evaluate_command
from workbench.kinds.analysis import Classify, Evaluate
from workbench.questions.affinity import Affinity, AffinityRequest
from workbench.questions.cluster_grid import ClusterGrid, ClusterGridRequest
from workbench.questions.forgetting import Forgetting, ForgettingRequest
from workbench.questions.perplexities import PerplexitiesRequest
from workbench.questions.posteriors import PosteriorMap, PosteriorMapRequest
from workbench.questions.removal import RemovalRequest, RemovalTable
from workbench.questions.retention import Retention, RetentionRequest
from workbench.questions.token_comparison import ContrastRequest, TokenComparison
from workbench.store.storage import get_storage

app = CommandGroup(__doc__)


app.add_job("run MIXTURE", Evaluate)


@prints_answer(app, PerplexitiesRequest, "mixture")
def show(question: PerplexitiesRequest, answer: PerplexityTable) -> None:
    """Show the perplexity and accuracy of each expert on each domain, and its ratio to the in-domain expert."""
    if not answer.domains:
        of_mixture = f" of “{question.mixture}”" if question.mixture else ""
        say(f"There are no scores{of_mixture} yet. Create them with: {_how_to_score(question)}")
        return
    _print("Perplexity (lower is better)", answer, answer.perplexity)
    say_each(describe_table_measures(answer))
    _show_intervals(question, answer)
    _show_accuracy(question.mixture, answer)
    if answer.specialization:
        say("")
        _print(
            "Ratio to the in-domain expert (above 1: worse than the in-domain expert)",
            answer,
            answer.specialization,
        )


@prints_answer(app, ClusterGridRequest, "mixture", temperatures="--temperature")
def grid(question: ClusterGridRequest, answer: ClusterGrid) -> None:
    """Evaluate a cluster gate at every temperature and top-k (C-BTM table 9), from stored scores and distances."""
    rows = grid_rows(answer, answer.perplexity) if answer.domains else []
    print_rows(rows, empty=_no_scores(question))
    if rows:
        say(describe_grid(answer, answer.perplexity))
    if answer.proposed:
        say(describe_temperature(answer.proposed))


@prints_answer(app, ForgettingRequest, "before", "after")
def forgetting(_: ForgettingRequest, answer: Forgetting) -> None:
    """Compare perplexities on each domain before and after training (DEMix table 13), from stored scores."""
    empty = "The two have no scores of the same text. Score each with: workbench evaluate run MIXTURE"
    print_rows(forgetting_rows(answer), empty=empty)
    say_each(*describe_forgetting(answer))


@prints_answer(app, RetentionRequest, "retain")
def retention(_: RetentionRequest, answer: Retention) -> None:
    """Compare learning with forgetting (MoDE table 1) for full fine-tuning, LoRA and MoDE, from stored scores."""
    if not answer.rows:
        no_scores = f"No expert has scores on {answer.retain} ({answer.split})."
        say(f"{no_scores} Score a mixture with: workbench evaluate run MIXTURE")
        return
    say(verdict_title(answer))
    print_rows(verdict_rows(answer), empty="")
    say("")
    print_rows(domain_rows(answer), empty="")
    say_each(describe_measured_text(answer), describe_left_out(answer), describe_retention(answer, number_of(answer)))
    for sentence, command in describe_missing_evaluations(answer):
        say(f"{sentence} Create it with: {command}")


@prints_answer(app, RemovalRequest, "mixture")
def removal(_: RemovalRequest, answer: RemovalTable) -> None:
    """Compute what removing each expert costs on its own domain (DEMix table 7), from stored scores."""
    print_rows(perplexity_rows(answer.rows), empty="No rows.")
    for row in answer.rows:
        if row.why:
            say(f"{row.domain}: {row.why}")
    if any(row.why for row in answer.rows):
        options = f"--split dev --max-tokens of at least {answer.num_blocks} x the block size"
        say(f"Score what is missing with: {evaluate_command(answer.mixture)}, and for the priors with {options}.")
    say_each(*not_removed(answer.rows))


@app.command("classify")
@takes(Classify, "mixture", "path")
def classify(spec: Classify, run_options: RunOptions) -> None:
    """Run few-shot classification on a folder of tasks, under each routing of experts (C-BTM tables 1, 10 and 11)."""
    card = submit(spec, run_options)
    if card.state == "done" and not run_options.json:
        say(f"Show the numbers with: workbench report show {card.result['report'][:8]}")


app.add_jobs("evaluate")


@prints_answer(app, AffinityRequest, "mixture")
def affinity(question: AffinityRequest, answer: Affinity) -> None:
    """Correlate the experts' perplexity ratios on other domains with the bigram overlap of the domains."""
    rows = [(cell.expert, cell.domain, cell.ratio, cell.overlap) for cell in answer.cells]
    columns = ["Expert", "Domain", "Ratio to the in-domain expert", "Bigram overlap"]
    print_table(columns, rows, empty=_no_scores(question))
    say("")
    say_each(*describe_affinity(answer))


@prints_answer(app, PosteriorMapRequest, "mixture")
def posteriors(question: PosteriorMapRequest, answer: PosteriorMap) -> None:
    """Show each domain's posterior over experts, from stored scores; with --json, block by block."""
    say(posterior_title(answer))
    rows = [
        (row.domain, row.is_trained, stability_text(row), *(weight(share) for share in row.posterior))
        for row in answer.domains
    ]
    columns = ["Domain", "Trained its experts", "Stable", *answer.experts]
    print_table(columns, rows, empty=_no_scores(question))
    say_each(describe_without(answer.without, answer.split))


@prints_answer(app, ContrastRequest, "domain", "expert", "rival")
def contrast(_: ContrastRequest, answer: TokenComparison) -> None:
    """Show the passages of a domain on which an expert is worst and best against another, from stored scores."""
    say(describe_contrast(answer))
    rows = [
        (
            title,
            passage.document + 1,
            passage.num_tokens,
            passage.mean,
            " ".join("".join(passage.tokens).split())[:80],
        )
        for title, passages in (("worst", answer.worst), ("best", answer.best))
        for passage in passages
    ]
    print_table(["", "Document", "Tokens", "Gain in nats per token", "Text"], rows, empty="There are no scores.")
    say(f"A gain above 0: {answer.expert} predicts the passage better than {answer.rival}.")


add_questions(app)


def _no_scores(question: Any) -> str:
    return f"There are no scores yet. Create them with: {_how_to_score(question)}"


def _how_to_score(question: Any) -> str:
    return evaluate_command(question.mixture or "MIXTURE", question.split)


def _show_intervals(question: PerplexitiesRequest, answer: PerplexityTable) -> None:
    """Each expert's number on its own domain with its interval, as its card in the studio shows it."""
    from workbench.analysis.perplexity_intervals import intervals_of

    own = read(in_domain_scores, question.split)
    scores = [own[expert] for expert in answer.experts if expert in own]
    bounds = read(intervals_of, get_storage(), scores)
    rows = [
        (one.expert, one.domain, one.num_counted or one.num_tokens, one.perplexity, *bounds[one.expert, one.domain])
        for one in scores
        if (one.expert, one.domain) in bounds
    ]
    if rows:
        say("")
        say("In-domain perplexity, with the 95 % interval that other text of the same kind would give")
        print_table(["Expert", "Domain", "Tokens", "Perplexity", "Low", "High"], rows, empty="")


def _show_accuracy(mixture: str | None, answer: PerplexityTable) -> None:
    """The accuracy table, and how to measure what is missing."""
    if any(value is not None for row in answer.accuracy for value in row):
        say("")
        shares = [[*map(in_percent, row)] for row in answer.accuracy]
        _print("Accuracy: % of tokens that were the most probable one (higher is better)", answer, shares)
    say_each(describe_unknown_accuracy(answer, mixture or "MIXTURE"))


def _print(title: str, answer: PerplexityTable, values: list[list[float | None]]) -> None:
    say(title)
    rows = [[expert, *row] for expert, row in zip(answer.experts, values, strict=True)]
    print_table(["Expert \\ domain", *answer.domains], rows, empty="")
