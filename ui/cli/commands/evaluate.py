"""Evaluation: score experts on held-out text, and analyse the stored scores."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from engine.config import MOST
from engine.mixing.gates.cluster import DistanceConfig
from engine.mixing.papers import PAPER_BLOCKS, PAPER_NEWEST_WEIGHT
from engine.text.split_names import HeldOutSplit
from ui.cli.commands.mixture import Blocks
from ui.cli.completion import names_of
from ui.cli.job_progress import submit
from ui.cli.mix_options import (
    EvidenceDecay,
    EvidencePower,
    GateEvidence,
    NewestWeight,
    SlowDecay,
    SlowPower,
    evidence_of,
)
from ui.cli.options import HeldOut, Json, RunOptions, split_commas, takes
from ui.cli.output import print_json, print_rows, print_table, say
from ui.errors import BadUsage
from ui.present.charts.cluster_grid import grid_rows, grid_words, temperature_words
from ui.present.text.correlations import affinity_words
from ui.present.text.forgetting import forgetting_rows, forgetting_words
from ui.present.text.measures import in_percent, table_measure_words, unknown_accuracy_words
from ui.present.text.posteriors import posterior_title, stable_words
from ui.present.text.removal import not_removed, perplexity_rows
from ui.present.text.retention import (
    domain_rows,
    left_out_words,
    missing_words,
    number_of,
    retention_words,
    text_words,
    verdict_rows,
    verdict_title,
)
from ui.present.text.token_comparison import contrast_words
from workbench.answers.perplexities import PerplexityTable
from workbench.formatting.number_format import weight
from workbench.formatting.shell_command import evaluate_command
from workbench.kinds.analysis.classify import Classify
from workbench.kinds.analysis.evaluate import Evaluate
from workbench.kinds.analysis.measure_overlap import MeasureOverlap

app = typer.Typer(no_args_is_help=True, help=__doc__)

Estimate = Literal["updating", "mean"]
Mixture = Annotated[str, typer.Argument(help="Name of a mixture.", autocompletion=names_of("mixture"))]


@app.command("run")
@takes(Evaluate, "mixture")
def run(spec: Evaluate, run_options: RunOptions) -> None:
    """Score every expert of a mixture on every domain, and store each token's log-likelihood."""
    submit(spec, run_options)


@app.command("show")
def show(
    mixture: Mixture,
    split: HeldOut = "test",
    as_json: Json = False,
) -> None:
    """Show the perplexity and accuracy of each expert on each domain, and its ratio to the in-domain expert."""
    from workbench.analysis.perplexity_tables import perplexity_table
    from workbench.registry.database import reading

    with reading() as session:
        answer = perplexity_table(session, mixture, split)
    if as_json:
        print_json(answer)
        return
    if not answer.domains:
        say(f"There are no scores of “{mixture}” yet. Create them with: {evaluate_command(mixture, split)}")
        return
    _print("Perplexity (lower is better)", answer, answer.perplexity)
    if words := table_measure_words(answer):
        say(words)
    _show_accuracy(mixture, answer)
    if answer.specialization:
        say("")
        _print(
            "Ratio to the in-domain expert (above 1: worse than the in-domain expert)",
            answer,
            answer.specialization,
        )


@app.command("grid")
def grid(
    mixture: Mixture,
    split: HeldOut = "test",
    temperatures: Annotated[
        list[float],
        typer.Option("--temperature", help="Temperature; may be repeated. Default: a standard grid."),
    ] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Evaluate a cluster gate at every temperature and top-k (C-BTM table 9), from stored scores and distances."""
    for temperature in temperatures:
        DistanceConfig("", temperature=temperature)  # refuses values that no gate accepts
    from workbench.analysis.cluster_grid import cluster_grid
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        answer = cluster_grid(session, get_storage(), mixture, split=split, temperatures=temperatures)
    if as_json:
        print_json(answer)
        return
    rows = grid_rows(answer, answer.perplexity) if answer.domains else []
    print_rows(rows, empty=_no_scores(mixture, split))
    if rows:
        say(grid_words(answer, answer.perplexity))
    if answer.proposed:
        say(temperature_words(answer.proposed))


@app.command("forgetting")
def forgetting(
    before: Annotated[
        str,
        typer.Argument(
            help="The mixture or expert before training.", autocompletion=names_of("mixture", "expert", "alias")
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            help="The mixture or expert after training.", autocompletion=names_of("mixture", "expert", "alias")
        ),
    ],
    split: HeldOut = "test",
    as_json: Json = False,
) -> None:
    """Compare perplexities on each domain before and after training (DEMix table 13), from stored scores."""
    from workbench.analysis.changes.forgetting import forgetting as compare
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        answer = compare(session, get_storage(), before, after, split=split)
    if as_json:
        print_json(answer)
        return
    empty = "The two have no scores of the same text. Score each with: workbench evaluate run MIXTURE"
    print_rows(forgetting_rows(answer), empty=empty)
    for sentence in forgetting_words(answer):
        say(sentence)


@app.command("retention")
def retention(
    retain: Annotated[str, typer.Argument(help="Domain to retain.", autocompletion=names_of("domain"))],
    targets: Annotated[
        list[str],
        typer.Option(
            help="Target domains. Default: those that trained the experts.", autocompletion=names_of("domain")
        ),
    ] = [],  # noqa: B006
    experts: Annotated[
        list[str],
        typer.Option(
            help="Experts to compare. Default: all with scores on the domain.", autocompletion=names_of("expert")
        ),
    ] = [],  # noqa: B006
    split: HeldOut = "test",
    as_json: Json = False,
) -> None:
    """Compare learning with forgetting (MoDE table 1) for full fine-tuning, LoRA and MoDE, from stored scores."""
    from workbench.analysis.changes.retention import retention as compare
    from workbench.registry.database import reading

    with reading() as session:
        answer = compare(session, retain, targets=split_commas(targets), experts=split_commas(experts), split=split)
    if as_json:
        print_json(answer)
        return
    if not answer.rows:
        say(f"No expert has scores on {retain} ({split}). Score a mixture with: workbench evaluate run MIXTURE")
        return
    say(verdict_title(answer))
    print_rows(verdict_rows(answer), empty="")
    say("")
    print_rows(domain_rows(answer), empty="")
    for sentence in (text_words(answer), left_out_words(answer), retention_words(answer, number_of(answer))):
        if sentence:
            say(sentence)
    for sentence, command in missing_words(answer):
        say(f"{sentence} Create it with: {command}")


@app.command("removal")
def removal(
    mixture: Mixture,
    retrained: Annotated[
        list[str], typer.Option(help="Mixture trained without a domain, such as law=seven; may be repeated.")
    ] = [],  # noqa: B006 (Typer reads the default and never changes it)
    blocks: Blocks = PAPER_BLOCKS,
    evidence: GateEvidence = None,
    evidence_decay: EvidenceDecay = None,
    evidence_power: EvidencePower = None,
    evidence_slow_decay: SlowDecay = None,
    evidence_slow_power: SlowPower = None,
    split: HeldOut = "test",
    as_json: Json = False,
) -> None:
    """Compute what removing each expert costs on its own domain (DEMix table 7), from stored scores."""
    from workbench.analysis.changes.removal import removal_table
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        answer = removal_table(
            session,
            get_storage(),
            mixture,
            retrained=dict(map(_retrained, split_commas(retrained))),
            split=split,
            evidence=evidence_of(evidence, evidence_decay, evidence_power, evidence_slow_decay, evidence_slow_power),
            num_blocks=blocks,
        )
    if as_json:
        print_json(answer)
        return
    print_rows(perplexity_rows(answer.rows), empty="No rows.")
    for row in answer.rows:
        if row.why:
            say(f"{row.domain}: {row.why}")
    if any(row.why for row in answer.rows):
        options = f"--split dev --max-tokens of at least {blocks} x the block size"
        say(f"Score what is missing with: {evaluate_command(mixture)}, and for the priors with {options}.")
    for sentence in not_removed(answer.rows):
        say(sentence)


def _retrained(pair: str) -> tuple[str, str]:
    """The domain and the mixture in `law=seven`."""
    domain, _, name = pair.rpartition("=")
    if not domain.strip() or not name.strip():
        raise BadUsage(f"“{pair}” is not DOMAIN=MIXTURE.", "Write it as in law=seven.")
    return domain.strip(), name.strip()


@app.command("overlap")
@takes(MeasureOverlap)
def overlap(spec: MeasureOverlap, run_options: RunOptions) -> None:
    """Measure the bigram overlap of every two domains."""
    submit(spec, run_options)


@app.command("classify")
@takes(Classify, "mixture", "path")
def classify(spec: Classify, run_options: RunOptions) -> None:
    """Run few-shot classification on a folder of tasks, under each routing of experts (C-BTM tables 1, 10 and 11)."""
    card = submit(spec, run_options)
    if card.state == "done" and not run_options.json:
        say(f"Show the numbers with: workbench report show {card.result['report'][:8]}")


@app.command("affinity")
def affinity(mixture: Mixture, split: HeldOut = "test", as_json: Json = False) -> None:
    """Correlate the experts' perplexity ratios on other domains with the bigram overlap of the domains."""
    from workbench.analysis.affinity import affinity as find
    from workbench.registry.database import reading

    with reading() as session:
        answer = find(session, mixture, split)
    if as_json:
        print_json(answer)
        return
    rows = [(one.expert, one.domain, one.ratio, one.overlap) for one in answer.cells]
    columns = ["Expert", "Domain", "Ratio to the in-domain expert", "Bigram overlap"]
    print_table(columns, rows, empty=_no_scores(mixture, split))
    say("")
    for sentence in affinity_words(answer):
        say(sentence)


@app.command("posteriors")
def posteriors(
    mixture: Mixture,
    split: HeldOut = "dev",
    blocks: Annotated[
        int, typer.Option("--blocks", min=1, max=MOST, help="Maximum number of blocks of each domain (paper: 100).")
    ] = PAPER_BLOCKS,
    evidence: GateEvidence = None,
    evidence_decay: EvidenceDecay = None,
    evidence_power: EvidencePower = None,
    evidence_slow_decay: SlowDecay = None,
    evidence_slow_power: SlowPower = None,
    newest_weight: NewestWeight = PAPER_NEWEST_WEIGHT,
    estimate: Annotated[
        Estimate,
        typer.Option(help="updating: the updated prior (paper, figure 4); mean: the mean posterior of the blocks."),
    ] = "updating",
    as_json: Json = False,
) -> None:
    """Show each domain's posterior over experts, from stored scores; with --json, block by block."""
    from workbench.analysis.posteriors import posterior_map
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        answer = posterior_map(
            session,
            get_storage(),
            mixture,
            split=split,
            num_blocks=blocks,
            evidence=evidence_of(evidence, evidence_decay, evidence_power, evidence_slow_decay, evidence_slow_power),
            newest_weight=newest_weight,
            estimate=estimate,
        )
    if as_json:
        print_json(answer)
        return
    say(posterior_title(answer))
    rows = [
        (row.domain, row.is_trained, stable_words(row), *(weight(share) for share in row.posterior))
        for row in answer.domains
    ]
    columns = ["Domain", "Trained its experts", "Stable", *answer.experts]
    print_table(columns, rows, empty=_no_scores(mixture, split))


@app.command("contrast")
def contrast(
    domain: Annotated[str, typer.Argument(help="Name of a domain.", autocompletion=names_of("domain"))],
    expert: Annotated[str, typer.Argument(help="Name of an expert.", autocompletion=names_of("expert"))],
    rival: Annotated[
        str,
        typer.Argument(
            help="Name of the expert to compare with, such as the in-domain expert.", autocompletion=names_of("expert")
        ),
    ],
    split: HeldOut = "test",
    as_json: Json = False,
) -> None:
    """Show the passages of a domain on which an expert is worst and best against another, from stored scores."""
    from workbench.analysis.token_comparison import compare_tokens as find
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    with reading() as session:
        answer = find(session, get_storage(), domain, expert, rival, split=split)
    if as_json:
        print_json(answer)
        return
    say(contrast_words(answer))
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
    say(f"A gain above 0: {expert} predicts the passage better than {rival}.")


def _no_scores(mixture: str, split: HeldOutSplit) -> str:
    return f"There are no scores yet. Create them with: {evaluate_command(mixture, split)}"


def _show_accuracy(mixture: str, answer: PerplexityTable) -> None:
    """The accuracy table, and how to measure what is missing."""
    if any(value is not None for row in answer.accuracy for value in row):
        say("")
        shares = [[*map(in_percent, row)] for row in answer.accuracy]
        _print("Accuracy: % of tokens that were the most probable one (higher is better)", answer, shares)
    if words := unknown_accuracy_words(answer, mixture):
        say(words)


def _print(title: str, answer: PerplexityTable, values: list[list[float | None]]) -> None:
    say(title)
    rows = [[expert, *row] for expert, row in zip(answer.experts, values, strict=True)]
    print_table(["Expert \\ domain", *answer.domains], rows, empty="")
