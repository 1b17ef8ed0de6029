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
from ui.cli.mix_options import (
    NO_CHANGES,
    Experts,
    GateOptions,
    Off,
    Prior,
    members_of,
    mix_request,
    number,
    parse_weight,
    takes_gate,
)
from ui.cli.options import HeldOut, naming_argument, split_commas
from ui.cli.output import as_text, print_rows, print_table, say, say_each
from ui.cli.questions import prints_answer, say_temperature
from ui.cli.verbs import CREATED, NAME, Column, CommandGroup, Outcome, get_card, read, write
from ui.generation.model_host import find_member, with_clustering_id
from ui.present.jobs.throughput import counting_note, describe_costs
from ui.present.text.inference_modes import (
    describe_missing_modes,
    describe_training_domains,
    legend,
    means,
    mode_title,
    shown_modes,
)
from ui.present.text.measures import (
    describe_left_out,
    describe_measures,
    describe_missing_scores,
    describe_unrouted,
    describe_without,
)
from ui.present.text.posteriors import (
    SINGLE_EXPERT,
    describe_calibration,
    describe_fitted_text,
    describe_inner_gates,
    describe_proposal,
    describe_verdict,
    how_to_read,
    surface_rows,
)
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import EvidenceCalibration
from workbench.exports.serve_config import SCRIPT, write_serve_config
from workbench.formatting.shell_command import evaluate_command, shell_command
from workbench.kinds.kind import parse_as
from workbench.kinds.training.mixtures import AverageExperts, JoinExperts
from workbench.questions.calibration import CalibrationRequest, NewMixture, make_mixture, names_evidence
from workbench.questions.costs import CostRequest, MixtureCosts
from workbench.questions.inference_modes import INFERENCE_MODES, InferenceModeComparison, InferenceModesRequest
from workbench.questions.perplexities import MixedScores, mix_scores
from workbench.questions.question import ask
from workbench.questions.smallest_set import SmallestSet, SmallestSetRequest, describe_smallest_set
from workbench.registry import mixtures
from workbench.registry.clusters.cluster_routing import clustering_names
from workbench.registry.database import transaction
from workbench.specs.gates import changed_gate, load_gate
from workbench.specs.requests import MixtureSpec
from workbench.store.storage import get_storage

app = CommandGroup(__doc__)

MixtureName = Annotated[str, naming_argument("Name of a mixture.", "mixture")]
Member = Annotated[str, naming_argument("An expert of the mixture, by its name or its domain's.", "expert")]
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
    NAME,
    Column("Active experts", lambda mixture: [member.expert for member in mixture.members if member.active]),
    Column("Gate", lambda mixture: mixture.gate["kind"]),
    CREATED,
)


def _sentence(field: str) -> str:
    return MixtureSpec.model_fields[field].description or ""


app.add_list(
    "mixture",
    _COLUMNS,
    "List mixtures.",
    "Train one with: workbench train joint NAME --seed-model S --domains A,B",
)


@app.verb()
def show(name: MixtureName) -> Outcome:
    """Show a mixture: its experts, their weights and its gate."""
    return Outcome(get_card("mixture", name), _print_with_version)


@app.verb()
@takes_gate
def create(
    name: Annotated[str, typer.Argument(help=_sentence("name"))],
    experts: Annotated[list[str], typer.Option(help=_sentence("experts"))],
    weights: Annotated[str, typer.Option(help=_sentence("weights"))] = "",
    gate: GateOptions = NO_CHANGES,
    calibrate: Annotated[
        bool | None,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Accept the evidence that is fitted on stored dev scores, or fit none. Default: it is proposed.",
            show_default=False,
        ),
    ] = None,
) -> Outcome:
    """Create a mixture of experts that have the same tokenizer; where dev text is scored, evidence is proposed."""
    given = {"name": name, "experts": split_commas(experts), "gate": with_clustering_id(gate)}
    spec = parse_as(MixtureSpec, {**given, "weights": [number(comma) for comma in split_commas([weights])] or None})
    return Outcome(make_mixture(spec, calibrate=calibrate, has_evidence=names_evidence(gate)), _print_new)


def _print_new(made: NewMixture) -> None:
    _print_members(made)
    say_temperature(made)
    say_each(describe_proposal(made))


@app.verb("gate")
@takes_gate
def change_gate(name: MixtureName, gate: GateOptions = NO_CHANGES, if_version: IfVersion = "") -> Outcome:
    """Change a mixture's gate settings; settings that are not given stay the same."""
    changes = with_clustering_id(gate)
    with _changing(name, if_version) as session:
        before = load_gate(mixtures.get_mixture(session, name).gate)
        return Outcome(mixtures.set_gate(session, name, changed_gate(before, changes)), _print_with_temperature)


@app.verb()
def add(
    name: MixtureName,
    expert: Annotated[str, naming_argument("Name of an expert with the same tokenizer.", "expert")],
    weight: Annotated[float | None, typer.Option(help="Its weight. Default: the mean weight of the others.")] = None,
    if_version: IfVersion = "",
) -> Outcome:
    """Add an expert to a mixture."""
    with _changing(name, if_version) as session:
        return Outcome(mixtures.add_member(session, name, expert, weight), _print)


@app.verb()
def remove(name: MixtureName, expert: Member, if_version: IfVersion = "") -> Outcome:
    """Remove an expert from a mixture; the expert itself is kept."""
    with _changing(name, if_version) as session:
        member = find_member(_domains(mixtures.get_mixture(session, name)), expert)
        return Outcome(mixtures.remove_member(session, name, member), _print)


@app.verb()
def toggle(
    name: MixtureName,
    expert: Member,
    on: Annotated[
        bool | None,
        typer.Option("--on/--off", help="On or off. Default: the opposite of now.", show_default=False),
    ] = None,
    if_version: IfVersion = "",
) -> Outcome:
    """Enable or disable an expert of a mixture."""
    with _changing(name, if_version) as session:
        before = mixtures.get_mixture(session, name)
        expert_name = find_member(_domains(before), expert)
        is_active = any(member.active for member in before.members if member.expert == expert_name)
        mixtures.set_active(session, name, expert_name, not is_active if on is None else on)
        return Outcome(mixtures.get_mixture(session, name), _print)


@app.verb()
def weights(
    name: MixtureName,
    pairs: Annotated[list[str], typer.Argument(help="New weights, such as python=2 headers=1.")],
    if_version: IfVersion = "",
) -> Outcome:
    """Set the prior (or fixed) weights of a mixture's experts."""
    new_weights = [parse_weight(pair) for pair in split_commas(pairs)]
    with _changing(name, if_version) as session:
        members = _domains(mixtures.get_mixture(session, name))
        for expert, weight in new_weights:
            mixtures.set_weight(session, name, find_member(members, expert), weight)
        return Outcome(mixtures.get_mixture(session, name), _print)


@app.verb()
@takes_gate
def perplexity(
    name: MixtureName,
    experts: Experts = "",
    off: Off = [],  # noqa: B006 (Typer reads the default and never changes it)
    gate: GateOptions = NO_CHANGES,
    prior: Prior = None,
    split: HeldOut = "test",
) -> Outcome:
    """Compute a mixture's perplexity on every domain from stored scores, without a forward pass."""
    members = members_of(name)
    request = mix_request(name, members, experts, off, gate, prior)
    answer = ask(partial(mix_scores, request=request, split=split))
    return Outcome(answer, lambda _: _print_scores(answer, name, request.active or members.active, split))


@prints_answer(app, InferenceModesRequest, "mixture")
def inference_modes(question: InferenceModesRequest, answer: InferenceModeComparison) -> None:
    """Compare perplexities under each inference mode of the paper, under the saved gate, and of the oracle.

    These are naive, label, average, uniform, updating and cached. The oracle uses the best expert of each block.
    """
    modes = [mode for mode in INFERENCE_MODES if mode in shown_modes(answer)]
    rows = [(row.domain, row.num_tokens, *(row.by_mode()[mode] for mode in modes)) for row in answer.domains]
    rows += [(mean.title, None, *(mean.by_mode[mode] for mode in modes)) for mean in means(answer)]
    columns = ["Domain", "Tokens", *(mode_title(mode).capitalize() for mode in modes)]
    print_table(columns, rows, empty=NO_SCORES)
    if rows:
        say_each(*legend(modes), describe_training_domains(answer))
    if len(answer.experts) == 1:
        say(SINGLE_EXPERT)
    say_each(
        describe_missing_modes(answer, question.num_blocks),
        describe_without(answer.without, question.split),
        _how_to_route(answer.unrouted, question.mixture, question.split),
    )


@prints_answer(app, SmallestSetRequest, "mixture", "domain")
def smallest_set(_: SmallestSetRequest, answer: SmallestSet) -> None:
    """The fewest experts of a mixture that are within some percent of all of them on a domain, from stored scores.

    Dev text chooses, test text judges. Each mixture has the saved gate and the saved weights of its experts.
    """
    rows = [(one.size, ", ".join(one.experts), one.dev_percent, one.test_percent) for one in answer.sets]
    print_table(["Experts", "The best of so many", "Worse on dev (%)", "Worse on test (%)"], rows, empty=NO_SCORES)
    say_each(*describe_smallest_set(answer))


@app.verb()
def calibrate(
    name: MixtureName,
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="Save the fitted evidence in the mixture if it lowers perplexity.")
    ] = True,
    if_version: IfVersion = "",
) -> Outcome:
    """Fit how much evidence counts in a mixture's posterior, its decay and power, from stored scores.

    It reads only dev text of the training domains, each with all experts and without its own, as if it were novel.
    """
    answer = ask(CalibrationRequest(mixture=name).answer)
    if save:
        with _changing(name, if_version) as session:
            mixtures.save_calibration(session, answer)
    return Outcome(answer, partial(_print_calibration, name=name, save=save))


def _print_calibration(answer: EvidenceCalibration, name: str, save: bool) -> None:
    print_rows(surface_rows(answer), empty="")
    say_each(how_to_read(answer), describe_fitted_text(answer), describe_verdict(answer))
    if not answer.keeps:
        command = shell_command("mixture", "calibrate", name)
        say(f"Saved in “{name}”." if save else f"Not saved: {command} saves it.")


@prints_answer(app, CostRequest, "mixture")
def cost(_: CostRequest, answer: MixtureCosts) -> None:
    """Compute floating-point operations per token, of one expert, of the mixture and of its training."""
    say(describe_costs(answer))
    say(counting_note(answer))


app.add_job("average NAME", AverageExperts)
app.add_job("join NAME", JoinExperts)
app.add_jobs("mixture")


@app.verb()
def serve_config(
    name: MixtureName, folder: Annotated[Path, typer.Argument(help="Folder to write; it must not exist yet.")]
) -> Outcome:
    """Write what vLLM needs to serve the experts of a mixture one by one: a script that exports and starts; JSON."""
    config = read(write_serve_config, get_storage(), name, folder)
    names = {server.port: [server.model, *(adapter.name for adapter in server.adapters)] for server in config.servers}
    lines = [f"Port {port}: {', '.join(served)}" for port, served in names.items()]
    lines += [f"Left out: {member.expert} {member.because}." for member in config.left_out]
    return Outcome(config, "\n".join([*lines, f"{config.lost} Start them: sh {shlex.quote(str(folder / SCRIPT))}"]))


@app.verb()
def copy(
    name: MixtureName,
    new_name: Annotated[str, typer.Argument(help="Name of the copy; left out: the next free one, as in NAME.2.")] = "",
) -> Outcome:
    """Copy a mixture as it is now: its experts, weights, switches and gate."""
    card = write(mixtures.copy_mixture, name, new_name)
    return Outcome(card, f"“{card.name}” is a copy of “{name}”.")


@app.verb()
def delete(name: MixtureName, if_version: IfVersion = "") -> Outcome:
    """Delete a mixture; its experts are kept."""
    with _changing(name, if_version) as session:
        mixtures.delete_mixture(session, name)
    return Outcome({"deleted": name}, f"“{name}” is deleted; its experts are kept.")


@contextmanager
def _changing(name: str, version: str) -> Iterator[Any]:
    """A transaction that changes a mixture. Raises ChangedMeanwhileError if a version is given and is not its own."""
    with transaction() as session:
        if version:
            mixtures.require_version(session, name, [version])
        yield session


def _domains(card: MixtureCard) -> dict[str, str]:
    """The domain of each of its experts."""
    return {member.expert: member.domain for member in card.members}


def _print(card: MixtureCard) -> None:
    _print_members(card)
    say_each(describe_calibration(card))


def _print_with_temperature(card: MixtureCard) -> None:
    _print(card)
    say_temperature(card)


def _print_with_version(card: MixtureCard) -> None:
    _print_with_temperature(card)
    say(f"Version {card.version}.")


def _gate_settings(card: MixtureCard) -> dict[str, Any]:
    """The settings of its gate, with the name of the clustering that the gate knows by its id."""
    settings = {name: value for name, value in card.gate.items() if name != "kind" and value is not None}
    if "clustering" in settings:
        settings["clustering"] = read(clustering_names).get(settings["clustering"], settings["clustering"])
    return settings


def _print_members(card: MixtureCard) -> None:
    settings = _gate_settings(card)
    say(", ".join([f"{card.name}: gate {card.gate['kind']}", *([as_text(settings)] if settings else [])]))
    rows = [(one.expert, one.domains, one.weight, one.active, one.enabled) for one in card.members]
    print_table(["Expert", "Domains", "Weight", "Active", "Enabled"], rows, empty="It has no experts.")
    say_each(describe_inner_gates(card))


def _print_scores(answer: MixedScores, mixture: str, experts: Sequence[str], split: HeldOutSplit) -> None:
    if not answer.domains:
        say(f"{describe_missing_scores(experts, split)} Create them with: {evaluate_command(mixture, split)}")
        return
    rows = [
        (row.domain, row.num_tokens, row.perplexity, row.best_expert, row.perplexity_by_expert[row.best_expert])
        for row in answer.domains
    ]
    print_table(["Domain", "Tokens", "Mixture perplexity", "Best single expert", "Its perplexity"], rows, empty="")
    say(describe_measures(answer.domains))
    if why := describe_left_out(answer.domains, split):
        say(f"{why} Score them with: {evaluate_command(mixture, split)}")
    say_each(_how_to_route(answer.unrouted, mixture, split))


def _how_to_route(domains: Sequence[str], mixture: str, split: HeldOutSplit) -> str:
    """Which domains lack distances to the gate's clusters, and the command that measures them."""
    why = describe_unrouted(domains)
    return f"{why} Measure them with: {evaluate_command(mixture, split)}" if why else ""
