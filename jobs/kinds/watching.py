"""What else is measured while an expert is trained: how other domains fare under the model as it is (DEMix Fig. 6)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.adapt import losses_mixed, losses_of, score_each, watched_blocks
from engine.config import AdaptingConfig
from engine.events import Event, Progress
from engine.mixing.gates import make_gate
from engine.models.expert_model import ExpertModel
from engine.text.blocks import Tokens
from engine.text.excerpt import Excerpt
from engine.text.tokenizer import Tokenizer
from jobs.kinds.lending import at_once
from jobs.kinds.tokens import DomainFiles, pack
from jobs.work import Work
from workbench.services.generation import Plan
from workbench.training_specs import TrainExpert

Watch = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Watched:
    """The domains to watch, and the mixture that the new expert is added to, with the weight it will have there."""

    domains: tuple[DomainFiles, ...]
    mixture: Plan
    weight: float


def pack_watched(
    work: Work, domains: Sequence[DomainFiles], tokenizer: Tokenizer, config: AdaptingConfig
) -> Generator[Event, None, dict[str, Excerpt]]:
    """The held-out blocks of each domain, by its name, that are looked at in every evaluation."""
    texts = {}
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer)
        dev = Tokens.open(folder, "dev")
        texts[domain.name] = watched_blocks(domain.name, dev, config.block_size, config.evaluation_blocks)
    return texts


def start_watch(
    work: Work, spec: TrainExpert, watched: Watched, tokenizer: Tokenizer, model: ExpertModel, key: str
) -> Generator[Event, None, Watch]:
    """Gives each watched domain's held-out loss (nats per token) whenever it is called.

    When the whole model is trained, it alone speaks. Otherwise the mixture as it will be, by its own gate: the experts
    that were there are scored once, since they do not change.
    """
    size, texts = spec.training.block_size, (yield from pack_watched(work, watched.domains, tokenizer, spec.training))
    if spec.whole:
        return lambda: losses_of(model, key, texts)
    gate = make_gate(watched.mixture.gate, [*(one.weight for one in watched.mixture.experts), watched.weight])
    others, known = at_once(work, watched.mixture.files(), size), {}
    for number, (name, text) in enumerate(texts.items()):
        rows = dict(score_each(others, text))
        known[name] = torch.stack([rows[one.id] for one in watched.mixture.experts])
        yield Progress(number + 1, len(texts), "domains", "scoring what is watched")
    return lambda: losses_mixed(gate, known, model, key, texts)
