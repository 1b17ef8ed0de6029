"""Goal: with 8 experts and 16 domains of 100,000 tokens, a changed toggle or prior answers in at most 50 ms.

Asked as the API asks: `workbench.questions.perplexities` on a registry on disk, its SQL and files included. Each
answer is for a prior that was not asked for before, every other one with an expert switched off. The peer is the
straightforward way in NumPy and SciPy, over the same memory-mapped files and without any SQL; both give the same
perplexities (checked), and the peer answers before every eighth of our answers. The first call of a process checks
every file's SHA-256: printed separately. Each gate answers a first time before it is measured: then what it needs of
the scores is kept in memory.
Run: python benchmarks/toggle.py
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process()

import json  # noqa: E402
import math  # noqa: E402
import statistics  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import asdict, replace  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from scipy.signal import lfilter  # noqa: E402
from scipy.special import log_softmax, logsumexp  # noqa: E402
from sqlalchemy.orm import Session  # noqa: E402

from engine.mixing.evidence import EvidenceRule, rule_of  # noqa: E402
from engine.mixing.gate_type import GateConfig  # noqa: E402
from engine.mixing.gates.cluster import ClusterGateConfig, DistanceConfig  # noqa: E402
from engine.mixing.gates.cluster_posterior import ClusterPosteriorGateConfig  # noqa: E402
from engine.mixing.gates.fixed import FixedGateConfig  # noqa: E402
from engine.mixing.gates.posterior import EvidenceConfig, PosteriorGateConfig  # noqa: E402
from engine.mixing.gates.updating import UpdatingGateConfig  # noqa: E402
from harness.benchmark import Figure, Options, report, resident_bytes, seconds_of  # noqa: E402
from workbench.analysis import perplexity_tables  # noqa: E402
from workbench.questions.perplexities import mix_scores  # noqa: E402
from workbench.registry import (  # noqa: E402
    database,
    experts,
    mixtures,
)
from workbench.registry.clusters.cluster_routing import distances_key  # noqa: E402
from workbench.schema.base import new_id  # noqa: E402
from workbench.schema.tables import Artifact, Cluster, Clustering, Corpus, Domain  # noqa: E402
from workbench.settings import Settings  # noqa: E402
from workbench.specs.requests import MixtureRequest, MixtureSpec  # noqa: E402
from workbench.store import artifacts  # noqa: E402
from workbench.store.storage import Storage, get_storage  # noqa: E402

SIZES = {"domains": (16, 8, "at least one for each expert"), "tokens": (100_000, 1000), "runs": (24, 2)}
BLOCK = 256
NUM_EXPERTS = 8
RUNS_PER_PEER = 8
CLUSTERING = new_id()
TEMPERATURE = 0.1
GATES: dict[str, GateConfig] = {
    f"{name}{f', top {top_k}' if top_k else ''}": replace(config, top_k=top_k)
    for name, config in {
        "prefix": PosteriorGateConfig(),
        "last token": PosteriorGateConfig(evidence="last_token"),
        "calibrated": PosteriorGateConfig(evidence=EvidenceRule(0.5, 0.6, 0.98, 0.08)),
        "updating": UpdatingGateConfig(update_every=BLOCK),
        "updating, last token": UpdatingGateConfig(evidence="last_token", update_every=BLOCK),
        "fixed": FixedGateConfig(),
        "cluster": ClusterGateConfig(clustering=CLUSTERING, temperature=TEMPERATURE),
        "cluster posterior": ClusterPosteriorGateConfig(clustering=CLUSTERING, temperature=TEMPERATURE),
    }.items()
    for top_k in (None, 2)
}
Floats = NDArray[np.float64]
Files = list[list[Path]]  # of each domain: of each expert, and at the end of the distances to the clusters


# the registry -------------------------------------------------------------------------------------


def fill(session: Session, storage: Storage, num_domains: int, num_tokens: int) -> Files:
    """A mixture “all” whose experts are scored on every domain; each knows every eighth domain better."""
    draw = np.random.default_rng(0)
    facts = {"num_documents": 1, "num_words": 1, "num_bytes": 1, "data_sha256": "d" * 64}
    domains = [
        Domain(name=f"domain{i:02}", artifact=artifact(session, storage, "documents"), **facts)
        for i in range(num_domains)
    ]
    session.add(Corpus(name="all", source="", domains=domains))
    session.flush()
    base = artifact(session, storage, "demix-base")
    ids = [expert(session, storage, f"all/{i}", domain, base) for i, domain in enumerate(domains[:NUM_EXPERTS])]
    mixtures.create_mixture(session, MixtureSpec(name="all", experts=[f"all/{i}" for i in range(len(ids))]))
    files: Files = []
    for number, domain in enumerate(domains):
        files.append([])
        for place, id in enumerate(ids):
            mean = 3.0 + 0.3 * (place != number % NUM_EXPERTS)
            array = -draw.exponential(mean, num_tokens).astype(np.float32)
            scores = artifact(session, storage, "scores", array)
            perplexity_tables.register_evaluation(
                session,
                expert_id=id,
                domain_id=domain.id,
                split="test",
                block_size=BLOCK,
                num_tokens=num_tokens,
                log_likelihood=float(array.sum(dtype=np.float64)),
                artifact=scores,
            )
            files[-1].append(storage.path(scores.id) / "logprobs.npy")
    clustering = cluster(session, storage, domains[:NUM_EXPERTS])
    for domain, paths in zip(domains, files, strict=True):
        paths.append(measure_distances(session, storage, clustering, domain, num_tokens))
    return files


def artifact(session: Session, storage: Storage, kind: str, array: NDArray[np.float32] | None = None) -> Artifact:
    id = new_id()
    with storage.new(id) as folder:
        if array is not None:
            np.save(folder / "logprobs.npy", array)
            card = {"block_size": BLOCK, "num_tokens": len(array)}
            (folder / "scores.json").write_text(json.dumps(card), encoding="utf-8")
    return artifacts.register_artifact(session, storage, id, kind)


def cluster(session: Session, storage: Storage, domains: Sequence[Domain]) -> Clustering:
    """A clustering of whose clusters the experts are."""
    row = Clustering(
        id=CLUSTERING,
        name="all",
        num_documents=1,
        num_fitted=1,
        artifact=artifact(session, storage, "clustering"),
        clusters=[
            Cluster(number=number, name=domain.name, num_documents=1, domain_id=domain.id)
            for number, domain in enumerate(domains)
        ],
    )
    session.add(row)
    session.flush()
    return row


def measure_distances(
    session: Session, storage: Storage, clustering: Clustering, domain: Domain, num_tokens: int
) -> Path:
    """Squared distances that drift from token to token, as those of a text that grows."""
    draw, id = np.random.default_rng(2), new_id()
    squared_KX = 1 + 0.4 * np.sin(draw.normal(0, 0.05, (NUM_EXPERTS, num_tokens)).cumsum(1))
    with storage.new(id) as folder:
        np.save(folder / "further.npy", (squared_KX - squared_KX.min(0)).astype(np.float32))
        np.save(folder / "nearest.npy", squared_KX.min(0).astype(np.float32))
        np.save(folder / "known.npy", np.arange(num_tokens, dtype=np.int32))
        card = {"block_size": BLOCK, "num_tokens": num_tokens}
        (folder / "distances.json").write_text(json.dumps(card), encoding="utf-8")
    key = distances_key(clustering.artifact_id, domain.id, "t" * 64, "test", BLOCK, num_tokens)
    artifacts.register_artifact(session, storage, id, "distances", key)
    return storage.path(id) / "further.npy"


def expert(session: Session, storage: Storage, name: str, domain: Domain, base: Artifact) -> str:
    made = artifact(session, storage, "demix-expert")
    return experts.register_expert(
        session,
        id=made.id,
        name=name,
        method="demix",
        domain_id=domain.id,
        seed_id=None,
        parent_id=None,
        base=base,
        artifact=made,
        tokenizer_sha256="t" * 64,
        data_sha256="d" * 64,
        num_parameters=1,
        config={},
        metrics={},
    ).id


# ours, and the peer -------------------------------------------------------------------------------


def ours(settings: Settings, gate: GateConfig, prior: Sequence[float]) -> list[float]:
    """The perplexity of the mixture on every domain."""
    weights = {f"all/{place}": weight for place, weight in enumerate(prior)}
    with database.reading(settings) as session:
        answer = mix_scores(session, get_storage(settings), MixtureRequest("all", weights=weights, gate=asdict(gate)))
    return [row.perplexity for row in answer.domains]


def peer(files: Files, gate: GateConfig, prior: Sequence[float]) -> list[float]:
    """The same as one would write it in a notebook; an expert of weight 0 is left out."""
    on = [place for place, weight in enumerate(prior) if weight]
    log_prior_E = np.log(np.array([prior[place] for place in on]) / sum(prior))
    answers = []
    for paths in files:
        scores_EX = np.stack([np.load(paths[place], mmap_mode="r") for place in on]).astype(np.float64)
        total = scores_EX.shape[1]
        blocks_ENT = np.pad(scores_EX, ((0, 0), (0, -total % BLOCK))).reshape(len(on), -1, BLOCK)
        joint_ENT = _joint(gate, log_prior_E, blocks_ENT)
        if isinstance(gate, DistanceConfig):
            further_EX = np.load(paths[-1], mmap_mode="r")[on].astype(np.float64)
            padded_EX = np.pad(further_EX, ((0, 0), (0, -total % BLOCK)))
            joint_ENT -= padded_EX.reshape(blocks_ENT.shape) / gate.temperature
        weights_ENT = log_softmax(joint_ENT, 0)
        if gate.top_k is not None:
            least_NT = np.sort(weights_ENT, 0)[-gate.top_k]
            weights_ENT = log_softmax(np.where(weights_ENT >= least_NT, weights_ENT, -np.inf), 0)
        mixed_X = logsumexp(weights_ENT + blocks_ENT, 0).ravel()[:total]
        answers.append(float(np.exp(-mixed_X.mean())))
    return answers


def _joint(gate: GateConfig, log_prior_E: Floats, blocks_ENT: Floats) -> Floats:
    """The log of prior times evidence."""
    seen_ENT = np.zeros_like(blocks_ENT)
    if not isinstance(gate, EvidenceConfig):
        return seen_ENT + log_prior_E[:, None, None]
    rule = rule_of(gate.evidence)
    for decay, power in ((rule.decay, rule.power), (rule.slow_decay, rule.slow_power)):
        if power:
            seen_ENT[..., 1:] += power * lfilter([1.0], [1.0, -decay], blocks_ENT[..., :-1])
    if not isinstance(gate, UpdatingGateConfig):
        return seen_ENT + log_prior_E[:, None, None]
    ends_NE = (blocks_ENT.sum(-1) if gate.evidence == "prefix" else blocks_ENT[..., -1]).T
    prior_E, posteriors, priors = np.exp(log_prior_E), [], []
    for end_E in ends_NE:  # Eq. 9 as it stands, so long as no share underflows
        priors.append(prior_E)
        with np.errstate(divide="ignore"):
            posteriors.append(np.exp(log_softmax(np.log(prior_E) + end_E)))
        decayed_N = (1 - gate.newest_weight) ** np.arange(len(posteriors))[::-1]
        prior_E = decayed_N @ np.array(posteriors) / decayed_N.sum()
    return seen_ENT + np.log(np.array(priors)).T[..., None]


# the measurement ----------------------------------------------------------------------------------


def priors(num_runs: int) -> list[list[float]]:
    """Priors without two equal weights, so that the best two are the same two for everybody; each other one has an
    expert switched off."""
    drawn = np.random.default_rng(1).uniform(1, 2, (num_runs, NUM_EXPERTS))
    drawn[1::2][np.arange(num_runs // 2), np.arange(num_runs // 2) % NUM_EXPERTS] = 0
    return [[float(weight) for weight in row] for row in drawn]


def processor_seconds(function: Callable[[], object]) -> float:
    """Of all threads: on the clock, other work of the machine counts."""
    return seconds_of(function, time.process_time)


def measure(settings: Settings, files: Files, gate: GateConfig, num_runs: int) -> dict[str, float]:
    """Seconds of an answer, and their ratio to the peer's."""
    ours(settings, gate, priors(1)[0])  # from then on its weights are kept
    on_clock, of_processor, of_peer = [], [], []
    for number, prior in enumerate(priors(num_runs)):
        if number % RUNS_PER_PEER == 0:
            of_peer.append(processor_seconds(lambda p=prior: peer(files, gate, p)))  # type: ignore[misc]
        began = time.perf_counter()
        of_processor.append(processor_seconds(lambda p=prior: ours(settings, gate, p)))  # type: ignore[misc]
        on_clock.append(time.perf_counter() - began)
    numpy_seconds, ordered = statistics.median(of_peer), sorted(of_processor)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return {
        "ratio_to_numpy_median": statistics.median(ordered) / numpy_seconds,
        "ratio_to_numpy_p95": p95 / numpy_seconds,
        "processor_ms_min": 1e3 * ordered[0],
        "processor_ms_median": 1e3 * statistics.median(ordered),
        "processor_ms_p95": 1e3 * p95,
        "clock_ms_median": 1e3 * statistics.median(on_clock),
        "numpy_processor_ms": 1e3 * numpy_seconds,
    }


def main() -> None:
    parser = Options(__doc__, SIZES)
    parser.add_argument("--gates", nargs="+", choices=list(GATES), default=list(GATES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        settings = Settings(home=Path(root), database_url="", artifacts=None)
        database.migrate(settings)
        with database.transaction(settings) as session:
            files = fill(session, get_storage(settings), options.domains, options.tokens)
        first_prior, before_mb = priors(2)[0], resident_bytes() / 2**20
        first_seconds = seconds_of(lambda: ours(settings, PosteriorGateConfig(), first_prior))
        chosen = {name: GATES[name] for name in options.gates}
        shown = {name: ours(settings, gate, prior) for name, gate in chosen.items() for prior in priors(2)}
        peak_mb = resident_bytes() / 2**20
        for name, gate in chosen.items():
            np.testing.assert_allclose(shown[name], peer(files, gate, priors(2)[-1]), rtol=1e-6)
        gates = {}
        for name, gate in chosen.items():
            gates[name] = measure(settings, files, gate, options.runs)
            print(name, json.dumps(gates[name]), flush=True)
        database.close_engines()
    medians = [one["processor_ms_median"] for one in gates.values()]
    ratios = [one["ratio_to_numpy_median"] for one in gates.values()]
    figures = [
        Figure("a changed toggle or prior, the slowest gate, processor time", medians, "ms", at_most=50, statistic=max),
        Figure("the same over NumPy, all gates", ratios),
    ]
    sizes = {"memory_before_mb": before_mb, "peak_memory_mb": peak_mb}
    report(options, figures, first_call_seconds=first_seconds, of_gates=gates, **sizes)


if __name__ == "__main__":
    main()
