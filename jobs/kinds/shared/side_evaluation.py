"""Evaluation of other domains while an expert is trained (DEMix Fig. 6)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.analysis.parent_choice import score_each
from engine.clusters.artifact import open_clustering
from engine.clusters.distances import Distances, measure_distances, open_distances
from engine.config import AdaptingConfig
from engine.events import Event, Progress
from engine.inference.scores import losses_mixed, losses_of, watched_blocks
from engine.loading.plan import GenerationPlan
from engine.mixing.base import Gate
from engine.mixing.cluster import Routing
from engine.mixing.gate_type import build_gate
from engine.models.expert_model import ExpertModel
from engine.text.blocks import EvalSample, Tokens
from engine.text.tokenizer import Tokenizer
from engine.training.autocast import autocast_for
from jobs.attempt.work import Work
from jobs.kinds.shared.model_loading import load_all
from jobs.kinds.shared.tokens import DomainFiles, pack
from workbench.kinds.training.train_expert import TrainExpert

Watch = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Watched:
    """The domains to evaluate, and the mixture that the new expert joins, with its weight there.

    `cluster` is the new expert's cluster; None if it has none or the gate uses none.
    """

    domains: tuple[DomainFiles, ...]
    mixture: GenerationPlan
    weight: float
    cluster: int | None = None

    def gate(self) -> Gate:
        """The mixture's gate with the new expert. Raises MixtureError if it cannot weigh that expert."""
        route = self.mixture.route
        routing = Routing((*route.clusters, self.cluster)) if route else None
        return build_gate(self.mixture.gate, [*(one.weight for one in self.mixture.experts), self.weight], routing)


def pack_watched(
    work: Work, domains: Sequence[DomainFiles], tokenizer: Tokenizer, base: Path, config: AdaptingConfig
) -> Generator[Event, None, dict[str, EvalSample]]:
    """The held-out blocks of each domain, by name, that every evaluation measures."""
    texts = {}
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer, base, config.block_size)
        dev = Tokens.open(folder, "dev")
        texts[domain.name] = watched_blocks(domain.name, dev, config.block_size, config.evaluation_blocks)
    return texts


def start_watch(
    work: Work, spec: TrainExpert, watched: Watched, tokenizer: Tokenizer, base: Path, model: ExpertModel, key: str
) -> Generator[Event, None, Watch]:
    """Returns a function that gives each watched domain's current held-out loss (nats per token).

    If the full model is trained, it is that model's loss. Otherwise it is that of the mixture with the new expert: the
    existing experts do not change, so they are scored once, in the precision of the training.
    """
    texts = yield from pack_watched(work, watched.domains, tokenizer, base, spec.training)
    size = spec.training.block_size
    if spec.full_model:
        return lambda: losses_of(model, key, texts)
    gate = watched.gate()
    distances = yield from _measure(work, watched.mixture, tokenizer, texts)
    others, known = load_all(work, watched.mixture.files(), size), {}
    for number, (name, text) in enumerate(texts.items()):
        with autocast_for(spec.training.precision, model.device):
            rows = dict(score_each(others, text))
        known[name] = torch.stack([rows[one.id] for one in watched.mixture.experts])
        yield Progress(number + 1, len(texts), "domains", "scoring watched domains", is_first=True)
    return lambda: losses_mixed(gate, known, model, key, texts, distances)


def _measure(
    work: Work, mixture: GenerationPlan, tokenizer: Tokenizer, texts: Mapping[str, EvalSample]
) -> Generator[Event, None, dict[str, Distances]]:
    """The distances of each text to the gate's clusters; empty for a gate without clusters."""
    distances: dict[str, Distances] = {}
    if mixture.route is not None:
        clustering = open_clustering(mixture.route.clustering, mixture.route.seed, work.settings.device)
        for number, (name, text) in enumerate(texts.items()):
            folder = work.folder / f"distances-{number}"
            folder.mkdir(exist_ok=True)
            yield from measure_distances(clustering, tokenizer, text, folder)
            distances[name] = open_distances(folder)
    return distances
