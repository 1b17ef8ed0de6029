"""workbench generate: text from a mixture, each word coloured by its leading expert."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.config import SamplingConfig
from engine.events import BACKBONE, GateWeights
from ui.cli.mix_options import (
    NO_CHANGES,
    DrawExpert,
    Experts,
    GateOptions,
    MaxTokens,
    Off,
    Parts,
    Prior,
    Seed,
    Speculate,
    Temperature,
    TopP,
    members_of,
    mix_request,
    takes_gate,
)
from ui.cli.options import Json, naming_argument
from ui.cli.output import print_json, print_note, print_painted, print_painted_note
from ui.errors import ServerDownError, ServerRefusedError
from ui.generation import model_host
from ui.generation.model_host import ModelHost
from ui.present.charts.colours import Looks, read_looks, with_mark
from ui.present.terminal import harmless
from ui.present.text.mode_gates import means, parts_inside, rows_inside
from workbench.answers.server import ChunkChoice
from workbench.formatting.number_format import share
from workbench.specs.requests import MixtureRequest

if TYPE_CHECKING:
    from ui.client import Client


@dataclass(frozen=True)
class PrintedPiece:
    """Some text with the weights of experts behind it, and the gate weights inside experts with parts."""

    text: str
    weights: dict[str, float]
    gates: Mapping[str, GateWeights] = field(default_factory=dict)


@dataclass
class Generated:
    """The text so far, with the weights behind it; once it has ended also why, and which files made it."""

    pieces: list[PrintedPiece] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    def mean_weights(self) -> dict[str, float]:
        """The mean weight of each expert over all tokens, the greatest first."""
        weighed = [piece.weights for piece in self.pieces if piece.weights]
        names = {name for weights in weighed for name in weights}
        means = {name: sum(weights.get(name, 0.0) for weights in weighed) / len(weighed) for name in names}
        return dict(sorted(means.items(), key=lambda pair: -pair[1]))

    def mean_gates(self) -> dict[str, dict[str, Any]]:
        """The mean weights of the backbone and of each part inside experts, over all tokens and blocks."""
        gates = [piece.gates for piece in self.pieces]
        by_expert = {}
        for expert, parts in parts_inside(gates).items():
            backbone, *others = means(rows_inside(gates, expert, parts))
            by_expert[expert] = {"backbone": backbone, "parts": dict(zip(parts, others, strict=True))}
        return by_expert


_MODEL = "Name of a mixture or an expert; seed:NAME is a seed model as it is."


@takes_gate
def generate(
    model: Annotated[str, naming_argument(_MODEL, "mixture", "expert", "alias")],
    prompt: Annotated[str, typer.Argument(help="Text to continue, or with --chat what a user says.")],
    is_chat: Annotated[bool, typer.Option("--chat", help="Answer by the seed model's chat template.")] = False,
    experts: Experts = "",
    off: Off = [],  # noqa: B006 (Typer reads the default and never changes it)
    gate: GateOptions = NO_CHANGES,
    prior: Prior = None,
    parts: Parts = [],  # noqa: B006 (Typer reads the default and never changes it)
    max_tokens: MaxTokens = SamplingConfig.max_tokens,
    temperature: Temperature = SamplingConfig.temperature,
    top_p: TopP = SamplingConfig.top_p,
    seed: Seed = None,
    speculate: Speculate = SamplingConfig.speculate,
    draw_expert: DrawExpert = SamplingConfig.draw_expert,
    as_json: Json = False,
) -> None:
    """Continue a prompt, or answer it (--chat). Each word has the colour of the expert with the greatest weight."""
    request = mix_request(model, members_of(model), experts, off, gate, prior, parts)
    drawn = model_host.new_seed() if seed is None else seed
    sampling = SamplingConfig(max_tokens, temperature, top_p, drawn, speculate=speculate, draw_expert=draw_expert)
    generated, palette = Generated(), Palette(read_looks(), plain=not sys.stdout.isatty())
    content = {"messages": [{"role": "user", "content": prompt}]} if is_chat else {"prompt": prompt}
    with closing(_pieces(request, content, sampling, generated)) as pieces:
        for piece in pieces:
            generated.pieces.append(piece)
            if not as_json:
                print_painted(palette.paint(piece))
    _finish(generated, palette, as_json)


def _finish(generated: Generated, palette: Palette, as_json: bool) -> None:
    if as_json:
        tokens = [asdict(piece) for piece in generated.pieces]
        text = "".join(piece.text for piece in generated.pieces)
        average = {"mean_weights": generated.mean_weights(), "mean_gates": generated.mean_gates()}
        print_json({"text": text, "tokens": tokens, **average, **generated.end})
        return
    print_painted("\n")
    legend = ", ".join(f"{palette.name(name)} {share(mean)}" for name, mean in generated.mean_weights().items())
    print_painted_note(
        f"Mean weights: {legend}." if legend else "The model ended the document at once, without any text."
    )
    for expert, gates in generated.mean_gates().items():
        inside = ", ".join(
            f"{name} {share(mean)}" for name, mean in [(BACKBONE, gates["backbone"]), *gates["parts"].items()]
        )
        print_note(f"Inside {expert}: {inside}.")


def _pieces(
    request: MixtureRequest, content: Mapping[str, Any], sampling: SamplingConfig, generated: Generated
) -> Generator[PrintedPiece, None, None]:
    from ui.client import Client
    from workbench.settings import get_settings

    settings = get_settings()
    with Client(settings) as client:
        try:
            client.health()
        except ServerDownError:
            print_note(
                "The API server is not running: loading the model in this process. `workbench up` keeps models loaded."
            )
        except ServerRefusedError as refusal:
            print_note(f"{refusal.problem} Loading the model in this process.")
        else:
            yield from _from_server(client, request, content, sampling, generated)
            return
    yield from _from_host(ModelHost(settings), request, content, sampling, generated)


def _from_server(
    client: Client, request: MixtureRequest, content: Mapping[str, Any], sampling: SamplingConfig, generated: Generated
) -> Generator[PrintedPiece, None, None]:
    options = asdict(sampling)
    del options["num_candidates"]  # the API's is `logprobs`
    send = client.converse if "messages" in content else client.stream
    with closing(send(**content, **options, **request_of(request))) as chunks:
        for chunk in chunks:
            for choice in chunk.choices:
                text = choice.text if isinstance(choice, ChunkChoice) else choice.delta.content
                yield PrintedPiece(text, choice.expert_weights or {}, choice.gate_weights or {})
                if choice.finish_reason:
                    generated.end = {"finish_reason": choice.finish_reason, "manifest": chunk.manifest}
                    precision = chunk.manifest.precision if chunk.manifest else "stored"
                    if precision != "stored":
                        reason = "its WORKBENCH_SERVE_PRECISION decides"
                        print_note(f"The server holds these weights in {precision}: {reason}.")


def _from_host(
    generations: ModelHost,
    request: MixtureRequest,
    content: Mapping[str, Any],
    sampling: SamplingConfig,
    generated: Generated,
) -> Generator[PrintedPiece, None, None]:
    from engine.device import prepare_process
    from engine.events import Token
    from workbench.answers.posteriors import Manifest

    prepare_process(generations.settings.threads)
    plan = generations.plan(request)
    prompt = content.get("prompt", "")
    if "messages" in content:
        plan, prompt = generations.conversation(plan, content["messages"])
    with closing(generations.stream(plan, prompt, sampling)) as stream:
        for event in stream:
            if isinstance(event, Token):
                yield PrintedPiece(event.text, dict(event.weights), event.gates)
            else:
                manifest = Manifest.of(plan, sampling).after([event.drafting])
                generated.end = {"finish_reason": event.reason, "manifest": manifest}
                yield PrintedPiece(event.text, {})


def request_of(request: MixtureRequest) -> dict[str, Any]:
    """The API's extra fields for a request."""
    body: dict[str, Any] = {"model": request.model}
    if request.weights is not None:
        names = request.active if request.active is not None else list(request.weights)
        body["experts"] = [{"id": name, "weight": request.weights.get(name, 1.0)} for name in names]
    elif request.active is not None:
        body["active"] = list(request.active)
    if "experts" in body:
        for expert in body["experts"]:
            if expert["id"] in request.parts:
                expert["parts"] = list(request.parts[expert["id"]])
    elif request.parts:
        body["parts"] = {expert: list(names) for expert, names in request.parts.items()}
    if request.prior is not None:
        body["prior"] = request.prior
    if request.gate:
        body["gate"] = dict(request.gate)
    return body


class Palette:
    """The colours of experts, on a terminal of 256 colours."""

    def __init__(self, looks: Looks, plain: bool) -> None:
        self._looks = looks
        self._plain = plain
        self.off = "" if plain else "\x1b[0m"

    def colour(self, expert: str) -> str:
        """The ANSI code of an expert's colour, or of the nearest that there is."""
        colour = self._looks.expert(expert).colour
        channels = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
        red, green, blue = (min(range(6), key=lambda level: abs(_LEVELS[level] - channel)) for channel in channels)
        return "" if self._plain else f"\x1b[38;5;{16 + 36 * red + 6 * green + blue}m"

    def name(self, expert: str) -> str:
        """An expert's mark and name in its colour."""
        return f"{self.colour(expert)}{harmless(with_mark(expert, self._looks.expert(expert)))}{self.off}"

    def paint(self, piece: PrintedPiece) -> str:
        """A piece in its leading expert's colour."""
        text = piece.text if self._plain else harmless(piece.text)
        if self._plain or not piece.weights:
            return text
        leader = max(piece.weights, key=piece.weights.__getitem__)
        return f"{self.colour(leader)}{text}{self.off}"


_LEVELS = (0, 95, 135, 175, 215, 255)  # of each channel, on a terminal of 256 colours
