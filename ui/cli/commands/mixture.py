"""Mixtures: create one of experts, change its experts, weights and gate, evaluate and delete it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.text.split_names import HeldOutSplit
from ui.cli.completion import names_of
from ui.cli.job_progress import submit
from ui.cli.listing import Column, created_column, name_column
from ui.cli.mix_options import (
    NO_CHANGES,
    Experts,
    GateOptions,
    Off,
    Prior,
    members_of,
    mix_request,
    number,
    takes_gate,
    weight_of,
)
from ui.cli.options import HeldOut, Json, RunOptions, split_commas, takes
from ui.cli.output import day, print_done, print_json, print_rows, print_table, say, shown
from ui.cli.printing.clustering import say_temperature
from ui.cli.questions import prints_answer
from ui.cli.things import add_list, get_card
from ui.generation.mix_names import find_member, with_clustering_id
from ui.present.jobs.throughput import cost_words, counted_as
from ui.present.text.calibration import how_to_read, proposal_words, surface_rows, text_words, verdict_words
from ui.present.text.inference_modes import legend, means, missing_words, mode_title, shown_modes, trained_words
from ui.present.text.measures import measure_words
from ui.present.text.mixtures import SINGLE_EXPERT, calibration_words, inside_words
from workbench.answers.cards import MixtureCard
from workbench.formatting.shell_command import evaluate_command, shell_command
from workbench.kinds.training.exchange import ExportMixture
from workbench.kinds.training.mixtures import AverageExperts
from workbench.questions.calibration import CalibrationRequest
from workbench.questions.costs import CostRequest, MixtureCosts
from workbench.questions.inference_modes import INFERENCE_MODES, InferenceModeComparison, InferenceModesRequest
from workbench.questions.perplexities import MixedScores, mix_scores
from workbench.questions.question import ask
from workbench.specs.base import Spec
from workbench.specs.requests import MixtureSpec

app = typer.Typer(no_args_is_help=True, help=__doc__)

MixtureName = Annotated[str, typer.Argument(help="Name of a mixture.", autocompletion=names_of("mixture"))]
Member = Annotated[
    str,
    typer.Argument(help="An expert of the mixture, by its name or its domain's.", autocompletion=names_of("expert")),
]
IfVersion = Annotated[
    str,
    typer.Option(
        "--if-version",
        help="Change it only if it is still at this version, which `mixture show` prints.",
        show_default=False,
    ),
]
NO_SCORES = "There are no stored scores yet. Create them with: workbench evaluate run MIXTURE"
_COLUMNS = (
    name_column(),
    Column("Active experts", lambda mixture: [member.expert for member in mixture.members if member.active]),
    Column("Gate", lambda mixture: mixture.gate["kind"]),
    created_column(day),
)


def _sentence(spec: type[Spec], field: str) -> str:
    return spec.model_fields[field].description or ""


add_list(
    app,
    "mixture",
    _COLUMNS,
    noun="mixture",
    help="List mixtures.",
    empty="There is no mixture yet. Train one with: workbench train joint NAME --seed-model S --domains A,B",
)


@app.command("show")
def show(name: MixtureName, as_json: Json = False) -> None:
    """Show a mixture: its experts, their weights and its gate."""
    card = get_card("mixture", name)
    _print(card, as_json)
    if not as_json:
        say_temperature(card)
        say(f"Version {card.version}.")


@app.command("create")
@takes_gate
def create(
    name: Annotated[str, typer.Argument(help=_sentence(MixtureSpec, "name"))],
    experts: Annotated[list[str], typer.Option(help=_sentence(MixtureSpec, "experts"))],
    weights: Annotated[str, typer.Option(help=_sentence(MixtureSpec, "weights"))] = "",
    gate: GateOptions = NO_CHANGES,
    calibrate: Annotated[
        bool | None,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Accept the evidence that is fitted on stored dev scores, or fit none. Default: it is proposed.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a mixture of experts that have the same tokenizer; where dev text is scored, evidence is proposed."""
    from ui.cli.options import parse_mixture
    from workbench.questions.calibration import make_mixture, names_evidence

    numbers = [number(one) for one in split_commas([weights])] or None
    spec = parse_mixture(name=name, experts=split_commas(experts), weights=numbers, gate=with_clustering_id(gate))
    made = make_mixture(spec, calibrate=calibrate, has_evidence=names_evidence(gate))
    if as_json:
        print_json(made)
        return
    _print_members(made)
    say_temperature(made)
    if words := proposal_words(made):
        say(words)


@app.command("gate")
@takes_gate
def change_gate(
    name: MixtureName,
    gate: GateOptions = NO_CHANGES,
    if_version: IfVersion = "",
    as_json: Json = False,
) -> None:
    """Change a mixture's gate settings; settings that are not given stay the same."""
    from workbench.registry.mixtures import get_mixture, set_gate
    from workbench.specs.gates import changed_gate, load_gate

    changes = with_clustering_id(gate)
    with _changing(name, if_version) as session:
        before = load_gate(get_mixture(session, name).gate)
        card = set_gate(session, name, changed_gate(before, changes))
    _print(card, as_json)
    if not as_json:
        say_temperature(card)


@app.command("add")
def add(
    name: MixtureName,
    expert: Annotated[
        str, typer.Argument(help="Name of an expert with the same tokenizer.", autocompletion=names_of("expert"))
    ],
    weight: Annotated[float | None, typer.Option(help="Its weight. Default: the mean weight of the others.")] = None,
    if_version: IfVersion = "",
    as_json: Json = False,
) -> None:
    """Add an expert to a mixture."""
    from workbench.registry.mixtures import add_member

    with _changing(name, if_version) as session:
        card = add_member(session, name, expert, weight)
    _print(card, as_json)


@app.command("remove")
def remove(name: MixtureName, expert: Member, if_version: IfVersion = "", as_json: Json = False) -> None:
    """Remove an expert from a mixture; the expert itself is kept."""
    from workbench.registry import mixtures

    with _changing(name, if_version) as session:
        members = {one.expert: one.domain for one in mixtures.get_mixture(session, name).members}
        card = mixtures.remove_member(session, name, find_member(members, expert))
    _print(card, as_json)


@app.command("toggle")
def toggle(
    name: MixtureName,
    expert: Member,
    on: Annotated[
        bool | None,
        typer.Option("--on/--off", help="On or off. Default: the opposite of now.", show_default=False),
    ] = None,
    if_version: IfVersion = "",
    as_json: Json = False,
) -> None:
    """Enable or disable an expert of a mixture."""
    from workbench.registry import mixtures

    with _changing(name, if_version) as session:
        before = {one.expert: one for one in mixtures.get_mixture(session, name).members}
        expert_name = find_member({one.expert: one.domain for one in before.values()}, expert)
        mixtures.set_active(session, name, expert_name, not before[expert_name].active if on is None else on)
        card = mixtures.get_mixture(session, name)
    _print(card, as_json)


@app.command("weights")
def weights(
    name: MixtureName,
    pairs: Annotated[list[str], typer.Argument(help="New weights, such as python=2 headers=1.")],
    if_version: IfVersion = "",
    as_json: Json = False,
) -> None:
    """Set the prior (or fixed) weights of a mixture's experts."""
    from workbench.registry import mixtures

    new_weights = [weight_of(pair) for pair in split_commas(pairs)]
    with _changing(name, if_version) as session:
        members = {one.expert: one.domain for one in mixtures.get_mixture(session, name).members}
        for expert, weight in new_weights:
            mixtures.set_weight(session, name, find_member(members, expert), weight)
        card = mixtures.get_mixture(session, name)
    _print(card, as_json)


@app.command("perplexity")
@takes_gate
def perplexity(
    name: MixtureName,
    experts: Experts = "",
    off: Off = [],  # noqa: B006 (Typer reads the default and never changes it)
    gate: GateOptions = NO_CHANGES,
    prior: Prior = None,
    split: HeldOut = "test",
    as_json: Json = False,
) -> None:
    """Compute a mixture's perplexity on every domain from stored scores, without a forward pass."""
    members = members_of(name)
    request = mix_request(name, members, experts, off, gate, prior)
    answer = ask(partial(mix_scores, request=request, split=split))
    print_json(answer) if as_json else _print_scores(answer, name, request.active or members.active, split)


@app.command("inference-modes")
@prints_answer(InferenceModesRequest, "mixture")
def inference_modes(question: InferenceModesRequest, answer: InferenceModeComparison) -> None:
    """Compare perplexities under each inference mode of the paper, under the saved gate, and of the oracle.

    These are naive, label, average, uniform, updating and cached. The oracle uses the best expert of each block.
    """
    modes = [mode for mode in INFERENCE_MODES if mode in shown_modes(answer)]
    rows = [(row.domain, row.num_tokens, *(row.by_mode()[mode] for mode in modes)) for row in answer.domains]
    rows += [(mean.title, None, *(mean.by_mode[mode] for mode in modes)) for mean in means(answer)]
    columns = ["Domain", "Tokens", *(mode_title(mode).capitalize() for mode in modes)]
    print_table(columns, rows, empty=NO_SCORES)
    for sentence in [*legend(modes), trained_words(answer)] if rows else []:
        say(sentence)
    if len(answer.experts) == 1:
        say(SINGLE_EXPERT)
    if words := missing_words(answer, question.num_blocks):
        say(words)


@app.command("calibrate")
def calibrate(
    name: MixtureName,
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="Save the fitted evidence in the mixture if it lowers perplexity.")
    ] = True,
    if_version: IfVersion = "",
    as_json: Json = False,
) -> None:
    """Fit how much evidence counts in a mixture's posterior, its decay and power, from stored scores.

    It reads dev text of the training domains alone, each with all experts and without its own, as if it were novel.
    """
    from workbench.registry.mixtures import save_calibration

    answer = ask(CalibrationRequest(mixture=name).answer)
    if save:
        with _changing(name, if_version) as session:
            save_calibration(session, answer)
    if as_json:
        print_json(answer)
        return
    print_rows(surface_rows(answer), empty="")
    for sentence in (how_to_read(answer), text_words(answer), verdict_words(answer)):
        say(sentence)
    if not answer.keeps:
        command = shell_command("mixture", "calibrate", name)
        say(f"Saved in “{name}”." if save else f"Not saved: {command} saves it.")


@app.command("cost")
@prints_answer(CostRequest, "mixture")
def cost(_: CostRequest, answer: MixtureCosts) -> None:
    """Compute floating-point operations per token, of one expert, of the mixture and of its training."""
    say(cost_words(answer))
    say(counted_as(answer))


@app.command("average")
@takes(AverageExperts, "name")
def average(spec: AverageExperts, run_options: RunOptions) -> None:
    """Average the parameters of several experts, with weights, into one model."""
    submit(spec, run_options)


@app.command("export")
@takes(ExportMixture, "mixture", "folder")
def export(spec: ExportMixture, run_options: RunOptions) -> None:
    """Export the experts of a mixture as one model: their average (hf, gguf), or a mixture of experts (moe)."""
    submit(spec, run_options)


@app.command("serve-config")
def serve_config(
    name: MixtureName,
    folder: Annotated[Path, typer.Argument(help="Folder to write; it must not exist yet.")],
    as_json: Json = False,
) -> None:
    """Write what vLLM needs to serve the experts of a mixture one by one: a script that exports and starts; JSON."""
    from workbench.exports.serve_config import SCRIPT, write_serve_config
    from workbench.registry.database import transaction
    from workbench.store.storage import get_storage

    with transaction() as session:
        config = write_serve_config(session, get_storage(), name, folder)
    if as_json:
        print_json(config)
        return
    for server in config.servers:
        say(f"Port {server.port}: {', '.join([server.model, *(one.name for one in server.adapters)])}")
    for one in config.left_out:
        say(f"Left out: {one.expert} {one.because}.")
    say(f"{config.lost} Start them: sh {shlex.quote(str(folder / SCRIPT))}")


@app.command("copy")
def copy(
    name: MixtureName,
    new_name: Annotated[str, typer.Argument(help="Name of the copy; left out: the next free one, as in NAME.2.")] = "",
    as_json: Json = False,
) -> None:
    """Copy a mixture as it is now: its experts, weights, switches and gate."""
    from workbench.registry.database import transaction
    from workbench.registry.mixtures import copy_mixture

    with transaction() as session:
        card = copy_mixture(session, name, new_name)
    print_done(card, f"“{card.name}” is a copy of “{name}”.", as_json)


@app.command("delete")
def delete(name: MixtureName, if_version: IfVersion = "", as_json: Json = False) -> None:
    """Delete a mixture; its experts are kept."""
    from workbench.registry.mixtures import delete_mixture

    with _changing(name, if_version) as session:
        delete_mixture(session, name)
    print_done({"deleted": name}, f"“{name}” is deleted; its experts are kept.", as_json)


@contextmanager
def _changing(name: str, version: str) -> Iterator[Any]:
    """A transaction that changes a mixture. Raises ChangedMeanwhileError if a version is given and is not its own."""
    from workbench.registry.database import transaction
    from workbench.registry.mixtures import require_version

    with transaction() as session:
        if version:
            require_version(session, name, [version])
        yield session


def _print(card: MixtureCard, as_json: bool) -> None:
    if as_json:
        print_json(card)
        return
    _print_members(card)
    if words := calibration_words(card):
        say(words)


def _named_settings(card: MixtureCard) -> dict[str, Any]:
    """The settings of its gate, with the name of the clustering that the gate knows by its id."""
    settings = {name: value for name, value in card.gate.items() if name != "kind" and value is not None}
    if "clustering" in settings:
        from workbench.registry.clusters.cluster_routing import clustering_names
        from workbench.registry.database import reading

        with reading() as session:
            settings["clustering"] = clustering_names(session).get(settings["clustering"], settings["clustering"])
    return settings


def _print_members(card: MixtureCard) -> None:
    settings = _named_settings(card)
    say(", ".join([f"{card.name}: gate {card.gate['kind']}", *([shown(settings)] if settings else [])]))
    rows = [(one.expert, one.domains, one.weight, one.active, one.enabled) for one in card.members]
    print_table(["Expert", "Domains", "Weight", "Active", "Enabled"], rows, empty="It has no experts.")
    if words := inside_words(card):
        say(words)


def _print_scores(answer: MixedScores, mixture: str, experts: Sequence[str], split: HeldOutSplit) -> None:
    from ui.present.missing_scores import gap_words

    if not answer.domains:
        say(f"{gap_words(experts, split)} Create them with: {evaluate_command(mixture, split)}")
        return
    rows = [
        (row.domain, row.num_tokens, row.perplexity, row.best_expert, row.perplexity_by_expert[row.best_expert])
        for row in answer.domains
    ]
    columns = ["Domain", "Tokens", "Mixture perplexity", "Best single expert", "Its perplexity"]
    print_table(columns, rows, empty="")
    say(measure_words(answer.domains))
