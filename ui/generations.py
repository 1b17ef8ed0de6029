"""Who holds the weights of this process: a wish becomes a plan, and the plan a stream of tokens.

Nothing here is loaded before the first wish: opening the API, or `--help`, wakes no torch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from engine.config import GateConfig, SamplingConfig
from engine.events import Done, Token

if TYPE_CHECKING:
    from ui.api.schemas import (
        ContrastRequest,
        ForgettingRequest,
        ModesRequest,
        NearestRequest,
        PosteriorMapRequest,
        PriorRequest,
        RemovalRequest,
    )
    from workbench.services.generation import Plan
    from workbench.settings import Settings


@dataclass(frozen=True)
class Wish:
    """What is asked of a mixture or an expert, for one request only; None leaves what the registry says."""

    model: str
    active: Sequence[str] | None = None
    weights: Mapping[str, float] | None = None
    gate: Mapping[str, Any] = field(default_factory=dict)  # fields of GateConfig that differ
    prior: str | None = None  # a stored prior in the place of weights


class Host(Protocol):
    """Loaded weights that answer plans."""

    def stream(
        self, plan: Plan, prompt: str, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Iterator[Token | Done]: ...

    def posterior(self, plan: Plan, text: str) -> dict[str, Any]: ...

    def loaded(self) -> list[Any]: ...


class Generations:
    """Plans wishes and streams their tokens; the weights are loaded at the first one."""

    def __init__(self, settings: Settings, host: Host | None = None) -> None:
        self.settings = settings
        self._host = host
        self._device: str | None = None
        self._lock = Lock()

    def plan(self, wish: Wish) -> Plan:
        """What will answer a wish, read in one short transaction."""
        from workbench.database import reading
        from workbench.services import generation
        from workbench.storage import get_storage

        with reading(self.settings) as session:
            asked = _keywords(session, wish)
            return generation.plan(session, get_storage(self.settings), wish.model, **asked)

    def stream(
        self, plan: Plan, prompt: str, sampling: SamplingConfig, stop: Sequence[str] = ()
    ) -> Generator[Token | Done, None, None]:
        """Tokens as they come, then one Done; closing the iterator stops the work."""
        yield from self.host.stream(plan, prompt, sampling, tuple(stop))

    def posterior(self, plan: Plan, text: str) -> dict[str, Any]:
        """The weight of every expert at every token of a text."""
        return self.host.posterior(plan, text)

    def loaded(self) -> list[Any]:
        """What lies in memory now; empty while nothing was asked for."""
        return self._host.loaded() if self._host is not None else []

    def device(self) -> str | None:
        """Where the weights lie; None while nothing was asked for."""
        return self._device

    @property
    def host(self) -> Host:
        """The weights of this process, made once."""
        with self._lock:
            if self._host is None:
                from engine.device import choose_device

                self._host = _make_host(self.settings)
                self._device = str(choose_device(self.settings.device))
            return self._host


def mix_scores(settings: Settings, wish: Wish, split: str) -> dict[str, Any]:
    """A mixture's perplexity on every domain, from stored scores."""
    from workbench.database import reading
    from workbench.services import scores
    from workbench.storage import get_storage

    with reading(settings) as session:
        asked = _keywords(session, wish)
        return scores.mix_scores(session, get_storage(settings), wish.model, split=split, **asked)


def compare_modes(settings: Settings, asked: ModesRequest) -> dict[str, Any]:
    """A mixture's perplexity on every domain under each of the paper's modes."""
    from workbench.database import reading
    from workbench.services import scores
    from workbench.storage import get_storage

    with reading(settings) as session:
        told = asked.model_dump(exclude={"mixture"})
        return scores.compare_modes(session, get_storage(settings), asked.mixture, **told)


def removal_table(settings: Settings, asked: RemovalRequest) -> dict[str, Any]:
    """What removing each expert of a mixture costs on its own domain."""
    from workbench.database import reading
    from workbench.services import removal
    from workbench.storage import get_storage

    with reading(settings) as session:
        told = asked.model_dump(exclude={"mixture"})
        return removal.removal_table(session, get_storage(settings), asked.mixture, **told)


def posterior_map(settings: Settings, asked: PosteriorMapRequest) -> dict[str, Any]:
    """Which expert each domain's text is taken for, from stored scores."""
    from workbench.database import reading
    from workbench.services import posteriors
    from workbench.storage import get_storage

    with reading(settings) as session:
        told = asked.model_dump(exclude={"mixture"})
        return posteriors.posterior_map(session, get_storage(settings), asked.mixture, **told)


def contrast(settings: Settings, asked: ContrastRequest) -> dict[str, Any]:
    """Where two experts differ on a domain, from stored scores."""
    from workbench.database import reading
    from workbench.services import contrasts
    from workbench.storage import get_storage

    with reading(settings) as session:
        return contrasts.contrast(session, get_storage(settings), **asked.model_dump())


def estimate_prior(settings: Settings, asked: PriorRequest) -> dict[str, Any]:
    """Estimates a prior and stores it; gives its card."""
    from workbench.database import reading, transaction
    from workbench.services import priors, scores
    from workbench.storage import get_storage

    with reading(settings) as session:
        told = asked.model_dump(exclude={"name"})
        shares = scores.estimate_shares(session, get_storage(settings), **told)
    with transaction(settings) as session:
        return priors.keep_estimate(session, asked.name, shares).model_dump()


def forgetting(settings: Settings, asked: ForgettingRequest) -> dict[str, Any]:
    """How the perplexities of two models differ on the same text, from stored scores."""
    from workbench.database import reading
    from workbench.services import forgetting as service
    from workbench.storage import get_storage

    with reading(settings) as session:
        return service.forgetting(session, get_storage(settings), **asked.model_dump())


def nearest(settings: Settings, asked: NearestRequest) -> dict[str, Any]:
    """The parent that a new expert of a domain would have, from stored scores."""
    from workbench.database import reading
    from workbench.services import nearest as service
    from workbench.storage import get_storage

    with reading(settings) as session:
        return service.nearest(session, get_storage(settings), **asked.model_dump())


def _make_host(settings: Settings) -> Host:
    from workbench.services import generation

    return generation.Host(settings.cache_bytes, settings.device)


def _keywords(session: Any, wish: Wish) -> dict[str, Any]:
    active = None if wish.active is None else list(wish.active)
    weights = _prior(session, wish) if wish.prior else wish.weights and dict(wish.weights)
    return {"active": active, "weights": weights, "gate": _gate(session, wish)}


def _prior(session: Any, wish: Wish) -> dict[str, float]:
    """The shares that a stored prior gives the experts that take part."""
    from workbench.services.mixtures import get_mixture
    from workbench.services.priors import weights_under

    members = get_mixture(session, wish.model).members
    taking_part = [one.expert for one in members if one.active and one.enabled]
    return weights_under(session, str(wish.prior), taking_part if wish.active is None else wish.active)


def _gate(session: Any, wish: Wish) -> GateConfig | None:
    """The mixture's own gate with the wish's changes; None where there are none."""
    if not wish.gate:
        return None
    from workbench.errors import NotFound
    from workbench.services.mixtures import get_mixture

    try:
        own = get_mixture(session, wish.model).gate
    except NotFound:
        own = {}
    return GateConfig(**(asdict(GateConfig()) | own | dict(wish.gate)))
