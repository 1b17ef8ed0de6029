"""Distances of held-out text to the clusters of a mixture's gate: measured once per text and stored with a key."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial

from sqlalchemy import select

from engine.clusters.artifact import open_clustering
from engine.clusters.distances import measure_distances
from engine.events import Event
from engine.text.blocks import EvalSample, Tokens
from engine.text.chat.own_template import template_folder
from engine.text.split_names import HeldOutSplit
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Work
from jobs.kinds.shared.artifact_cache import cached_artifact
from jobs.kinds.shared.tokens import can_show, domain_files, pack
from workbench.registry.clusters.cluster_routing import distances_key, find_route
from workbench.registry.mixtures import members_of
from workbench.schema.tables import Domain
from workbench.store import artifact_kinds


def measure_missing(
    work: Work, mixture: str, domains: Sequence[str] | None, split: HeldOutSplit, block_size: int, max_tokens: int
) -> Generator[Event, None, int]:
    """Measures missing distances on the domains (None: all). Returns the number of texts, 0 without a cluster gate.

    They cover the tokens that `score_missing` scores, including dev text and the clusters' own domains, since pages mix
    everything that was scored. Each is registered as soon as it is complete.
    """
    with work.reading() as session:
        experts, gate = members_of(session, mixture)
        route, base = find_route(session, work.storage, gate, experts), work.storage.kept(experts[0].base)
        template = template_folder(base.folder, work.storage.path(experts[0].artifact_id))
        names = domains or list(session.scalars(select(Domain.name).order_by(Domain.name)))
        texts = [domain_files(session, work.storage, name) for name in names]
    if route is None:
        return 0
    base.check()
    tokenizer = load_tokenizer(base.folder)
    clustering = open_clustering(route.clustering, route.seed, work.settings.device)
    texts = texts if domains else [domain for domain in texts if can_show(template, domain)]
    for domain in texts:
        packed = yield from pack(work, domain, tokenizer, template, block_size)
        text = EvalSample.of(Tokens.open(packed, split), block_size, max_tokens)
        key = distances_key(route.artifact_id, domain.id, tokenizer.sha256, split, block_size, text.num_tokens)
        fill = partial(measure_distances, clustering, tokenizer, text)
        yield from cached_artifact(work, key, artifact_kinds.DISTANCES, fill)
    return len(texts)
