"""Training experts of MoDE beside their backbone, in either stage: what a job of MoDE reads, does and keeps."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, cast

from sqlalchemy.orm import Session

from engine.adapt import losses_of
from engine.config import TrainingConfig
from engine.events import Decided, Evaluated, Event
from engine.mode.active import ActiveExperts, gate_shares
from engine.text.excerpt import Excerpt
from engine.text.tokenizer import Tokenizer
from engine.training.data import DomainText, PackedDomain
from engine.training.launch import num_gpus
from engine.training.loop import require_context, train
from jobs.kinds.expert_files import NewExpert, register_new_expert
from jobs.kinds.losses import last_losses, mean_loss
from jobs.kinds.tokens import DomainFiles, pack
from jobs.kinds.watching import pack_watched
from jobs.work import Register, Work
from workbench.mode_specs import ComposeMode, TrainMode
from workbench.services.mixtures import create_mixture
from workbench.specs import MixtureSpec
from workbench.tables import Artifact


def train_parts(
    work: Work,
    active: ActiveExperts,
    domains: Sequence[DomainFiles],
    retained: Sequence[DomainFiles],
    config: TrainingConfig,
    tokenizer: Tokenizer,
) -> Generator[Event, None, float | None]:
    """Trains in place on equal samples of these domains; gives the mean held-out loss (nats per token) at the end.

    Each evaluation looks at the domains to retain, too, and says what the gates give to whom on every domain.
    """
    require_context(active, config.block_size)
    if (work.settings.processes or num_gpus(work.settings.device)) > 1:
        yield Decided("Experts of MoDE are trained in one process.")
    texts: list[DomainText] = []
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer)
        texts.append(PackedDomain(domain.name, active.keys[0], folder).open())
    looked_at = yield from pack_watched(work, [*domains, *retained], tokenizer, config)
    watched = {one.name: looked_at[one.name] for one in retained}
    events = train(
        active, texts, config, work.folder, only_experts=active.keys,
        watch=(lambda: losses_of(active, active.keys[0], watched)) if watched else None,
    )  # fmt: skip
    losses = yield from last_losses(_with_gates(events, active, looked_at))
    return mean_loss(losses, domains)


def _with_gates(events: Iterator[Event], active: ActiveExperts, texts: Mapping[str, Excerpt]) -> Iterator[Event]:
    """Says with each evaluation what the gates give to whom, on every text."""
    with closing(cast(Generator[Event, None, None], events)):
        for event in events:
            if isinstance(event, Evaluated):
                shares = {name: gate_shares(active, text) for name, text in texts.items()}
                event = replace(event, gates_by_domain=shares)
            yield event


def registering(
    work: Work,
    spec: TrainMode | ComposeMode,
    expert: NewExpert,
    *,
    base_id: str,
    seed_id: str | None,
    parent_id: str | None,
    tokenizer_sha256: str,
    config: Mapping[str, Any],
) -> Register:
    """Puts the expert into the registry, and a mixture of it alone."""
    trained = asdict(spec.training) if spec.domains else {}

    def register(session: Session) -> dict[str, Any]:
        register_new_expert(
            session, work, expert, base=session.get_one(Artifact, base_id), seed_id=seed_id, parent_id=parent_id,
            tokenizer_sha256=tokenizer_sha256, config={**trained, **config},
        )  # fmt: skip
        create_mixture(session, MixtureSpec(name=spec.name, experts=[expert.name]))
        return {
            "mixture": spec.name, "expert": expert.name, "parts": [part["name"] for part in config["parts"]],
            "num_parameters": expert.num_parameters,
        }  # fmt: skip

    return register
