"""Which gate has the least perplexity on novel text? The comparison behind decision 27, from stored scores.

Several gates over the same experts, fitted on dev text of only the training domains, compared on test text of training
and of novel domains, with intervals over documents. Without arguments the scores are invented, tiny, and say nothing of
language; with a folder of the workbench they are the stored ones of a mixture:
`cluster-posterior` is compared where the mixture has a clustering, where one is named whose distances are stored, or
with `--centroids`: then each expert has the mean tf-idf vector of its domain's training documents as its cluster.
Run: python benchmarks/gates_on_novel_text.py [--home FOLDER --mixture NAME [--clustering NAME | --centroids]]
"""

from __future__ import annotations

from engine.device import prepare_process

prepare_process(1)

import tempfile  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.analysis.calibration import DECAYS, POWERS, DevText, calibrate_from_equal_priors  # noqa: E402
from engine.clusters.artifact import FittedClustering  # noqa: E402
from engine.clusters.centroids import Clusters  # noqa: E402
from engine.clusters.config import TfidfConfig  # noqa: E402
from engine.clusters.distances import Distances, measure_distances, open_distances  # noqa: E402
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf  # noqa: E402
from engine.errors import ScoresError  # noqa: E402
from engine.inference.scores import as_blocks  # noqa: E402
from engine.mixing.base import FixedGate, Gate  # noqa: E402
from engine.mixing.cluster import ClusterPosteriorGate, Routing  # noqa: E402
from engine.mixing.evidence import READINGS, EvidenceRule  # noqa: E402
from engine.mixing.posterior import PosteriorGate  # noqa: E402
from engine.statistics.estimates import Loss  # noqa: E402
from engine.text.blocks import EvalSample, Tokens  # noqa: E402
from engine.text.split_names import HeldOutSplit  # noqa: E402
from engine.text.tokenizer import Tokenizer  # noqa: E402
from harness.benchmark import Figure, Options, report  # noqa: E402
from workbench_studies.core.averages import Averages, SystemChange  # noqa: E402

SIZES = {
    "steps": (300, 5, "updates of a learned gate"),
    "blocks": (24, 4, "of each domain's invented scores"),
    "block_size": (64, 16, "tokens in each of them"),
}
FEATURE_DECAYS = (0.0, 0.5, 0.8, 0.9, 0.98, 1.0)  # of the evidence that a learned gate reads
TEMPERATURES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
LEARNING_RATE = 0.02
DOCUMENTS = 500  # of each domain, for its mean vector


@dataclass(frozen=True)
class Scores:
    """Dev text of the training domains, test text of both kinds, and the cluster of each expert, if they have one."""

    dev: Sequence[DevText]
    training: Sequence[DevText]
    novel: Sequence[DevText]
    clusters: Sequence[int] | None = None
    left_out: str = ""  # why cluster-posterior is not compared


LossOf = Callable[[DevText], Loss]
GateOf = Callable[[Sequence[int]], Gate]  # of the experts in these rows


# what is compared -----------------------------------------------------------------------------------


def by_gate(gate_of: GateOf) -> LossOf:
    """The loss of a text under a gate of all experts."""
    return lambda text: text.loss(gate_of(range(len(text.scores_EX))), range(len(text.scores_EX)))


def posterior(rule: EvidenceRule) -> GateOf:
    """A posterior from equal priors."""
    return lambda rows: PosteriorGate([1.0] * len(rows), rule)


def mean_loss(texts: Sequence[DevText], gate_of: GateOf) -> float:
    """Nats per token: the mean over texts, of each over its views (with all experts, and without its own)."""
    return float(np.mean([np.mean([_nats(text.loss(gate_of(rows), rows)) for rows in _views(text)]) for text in texts]))


def _views(text: DevText) -> list[list[int]]:
    return [text.rows(view) for view in text.views()]


def _nats(loss: Loss) -> float:
    return float(loss.totals_N.sum() / loss.tokens_N.sum())


def one_decay(texts: Sequence[DevText]) -> EvidenceRule:
    """The best decay and power of the grid, without slow evidence."""
    grid = [EvidenceRule(decay, power) for decay in DECAYS for power in POWERS]
    return min(grid, key=lambda rule: mean_loss(texts, posterior(rule)))


def stacking_weights(texts: Sequence[DevText], num_rounds: int = 100) -> list[float]:
    """Fixed weights with the highest likelihood on dev text, by EM."""
    logprobs_EX = torch.cat([text.scores_EX.double() for text in texts], 1)
    weights_E = torch.full((len(logprobs_EX),), 1 / len(logprobs_EX), dtype=torch.float64)
    for _ in range(num_rounds):
        weights_E = (weights_E.log()[:, None] + logprobs_EX).softmax(0).mean(1)
    return weights_E.tolist()


def nearness(texts: Sequence[DevText], clusters: Sequence[int], rules: Sequence[EvidenceRule]) -> GateOf:
    """The posterior with nearness to clusters as its prior, its temperature and its evidence fitted."""

    def gate_of(rule: EvidenceRule, temperature: float) -> GateOf:
        return lambda rows: ClusterPosteriorGate(
            [1.0] * len(rows), Routing([clusters[row] for row in rows]), evidence=rule, temperature=temperature
        )

    settings = [(rule, temperature) for rule in rules for temperature in TEMPERATURES]
    return gate_of(*min(settings, key=lambda one: mean_loss(texts, gate_of(*one))))


# a learned gate -------------------------------------------------------------------------------------


def features(blocks_ENT: Tensor) -> Tensor:
    """Evidence [E, N, T, F] before each token at several decays, and its mean over the tokens so far."""
    columns = []
    for decay in FEATURE_DECAYS:
        evidence, steps = torch.zeros_like(blocks_ENT[..., 0]), []
        for place in range(blocks_ENT.shape[2]):
            steps.append(evidence)
            evidence = decay * evidence + blocks_ENT[..., place]
        columns.append(torch.stack(steps, -1))
    seen_T = torch.arange(blocks_ENT.shape[2]).clamp(min=1)
    all_ENTF = torch.stack([*columns, columns[-1] / seen_T], -1)
    centred = all_ENTF - all_ENTF.mean(0)  # only differences between experts count
    return centred / torch.tensor([*(min(1 / (1 - d + 1e-9), 20.0) for d in FEATURE_DECAYS), 1.0])


def learned(texts: Sequence[DevText], hidden: int, num_steps: int) -> LossOf:
    """A map from an expert's features to its log-weight, the same for all experts, fitted by gradient on dev text."""
    torch.manual_seed(0)
    num_features = len(FEATURE_DECAYS) + 1
    net: torch.nn.Module = torch.nn.Linear(num_features, 1, bias=False)
    if hidden:
        layers = (torch.nn.Linear(num_features, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1))
        net = torch.nn.Sequential(*layers)
    data = []
    for text in texts:
        for rows in _views(text):
            blocks_ENT = as_blocks(text.scores_EX[rows], text.block_size).float()
            data.append((features(blocks_ENT), blocks_ENT, text.scores_EX.shape[1]))
    optimizer = torch.optim.Adam(net.parameters(), LEARNING_RATE)
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = torch.stack([-_mixed(net, *one).mean() for one in data]).mean()
        loss.backward()
        optimizer.step()

    def loss_of(text: DevText) -> Loss:
        blocks_ENT = as_blocks(text.scores_EX, text.block_size).float()
        with torch.no_grad():
            logprobs_X = _mixed(net, features(blocks_ENT), blocks_ENT, text.scores_EX.shape[1])
        return Loss.of(logprobs_X.double().numpy(), text.block_size, text.documents_N)

    return loss_of


def _mixed(net: torch.nn.Module, features_ENTF: Tensor, blocks_ENT: Tensor, num_tokens: int) -> Tensor:
    log_weights_ENT = net(features_ENTF).squeeze(-1).log_softmax(0)
    return (log_weights_ENT + blocks_ENT).logsumexp(0).flatten()[:num_tokens]


# comparison -----------------------------------------------------------------------------------------


def compare(scores: Scores, baseline: str = "prefix", num_steps: int = 300) -> dict[str, Any]:
    """The change of perplexity against one of them, in %, of every way to weigh, on both kinds of text."""
    dev = [text.thin() for text in scores.dev]
    fitted, decay = calibrate_from_equal_priors(dev), one_decay(dev)
    best = fitted.now if fitted.keeps else fitted.best
    weights = stacking_weights(dev)
    systems: dict[str, LossOf] = {
        "prefix": by_gate(posterior(READINGS["prefix"])),
        "last_token": by_gate(posterior(READINGS["last_token"])),
        "average": by_gate(lambda rows: FixedGate([1.0] * len(rows))),
        "one decay": by_gate(posterior(decay)),
        "calibrated": by_gate(posterior(best)),
        "stacking": by_gate(lambda rows: FixedGate([weights[row] for row in rows])),
        "learned, linear": learned(dev, 0, num_steps),
        "learned, 16 units": learned(dev, 16, num_steps),
    }
    if scores.clusters is not None:
        rules = [*READINGS.values(), decay]
        systems["cluster-posterior"] = by_gate(nearness(dev, scores.clusters, rules))
    texts = {text.domain: text for text in (*scores.training, *scores.novel)}
    losses = {(name, 0, domain): of(text) for name, of in systems.items() for domain, text in texts.items()}
    resampled = Averages(losses)
    return {
        "experts": len(dev[0].scores_EX),
        "settings": {"one decay": decay.words, "calibrated": best.words, "stacking": [round(w, 3) for w in weights]},
        "left_out": scores.left_out,
        **{
            role: [_row(resampled, name, baseline, [text.domain for text in some]) for name in systems]
            for role, some in (("training", scores.training), ("novel", scores.novel))
            if some
        },
    }


def _row(resampled: Averages, name: str, baseline: str, domains: Sequence[str]) -> dict[str, Any]:
    change = resampled.changes([SystemChange(name, baseline, domain) for domain in domains])
    assert change is not None
    row = {"gate": name, "perplexity": resampled.value(name, domains), "change_percent": change.value}
    return row | {"low": change.low, "high": change.high}


# scores ---------------------------------------------------------------------------------------------


def stored(home: Path, mixture: str, clustering: str | None) -> Scores:
    """The stored scores of a mixture in a workbench's folder."""

    from ui.generation.model_host import with_clustering_id
    from workbench.analysis.scores import load_counted, load_distances, load_places, load_scores, scored_domains
    from workbench.registry.database import reading
    from workbench.registry.experts import domains_of
    from workbench.requests.planning import plan
    from workbench.schema.tables import Expert
    from workbench.settings import read_settings
    from workbench.specs.requests import MixtureRequest
    from workbench.store.storage import get_storage

    settings = read_settings(home.absolute())
    storage = get_storage(settings)
    changes = {"kind": "cluster-posterior", "clustering": clustering} if clustering else {}
    with reading(settings) as session:
        planned = plan(session, storage, MixtureRequest(mixture, gate=with_clustering_id(changes, settings)))
        homes = [set(domains_of(session.get_one(Expert, one.id))) for one in planned.experts]
        left_out = "" if planned.route else "the mixture has no clustering; name one with --clustering"

        def text(domain: str, rows: Sequence[Any]) -> DevText:
            nonlocal left_out
            scores_EX, block_size = load_scores(storage, rows)
            distances = None
            if planned.route:
                try:
                    distances = load_distances(session, storage, planned, rows[0])
                except ScoresError as error:
                    left_out = error.problem
            own = frozenset(place for place, one in enumerate(homes) if domain in one)
            documents_N = load_places(storage, rows[0])[1]
            return DevText(domain, scores_EX, block_size, documents_N, own, distances, load_counted(storage, rows[0]))

        trained = set().union(*homes)
        dev = [text(*one) for one in scored_domains(session, planned, "dev").items() if one[0] in trained]
        test = [text(*one) for one in scored_domains(session, planned, "test").items()]
        clusters = list(planned.route.clusters) if planned.route and not left_out else None
    novel = [one for one in test if one.domain not in trained]
    return Scores(dev, [one for one in test if one.domain in trained], novel, clusters, left_out)


def with_centroids(home: Path, mixture: str, scores: Scores) -> Scores:
    """The same scores with distances to the mean vector of each expert's own training documents, measured now."""
    from sqlalchemy import select

    from engine.text.split import read_split
    from engine.text.tokenizer import load_tokenizer
    from workbench.analysis.scores import load_places, scored_domains
    from workbench.registry.database import reading
    from workbench.registry.experts import tokens_key
    from workbench.requests.planning import plan
    from workbench.schema.tables import Domain
    from workbench.settings import read_settings
    from workbench.specs.requests import MixtureRequest
    from workbench.store.artifacts import find_artifact
    from workbench.store.storage import get_storage

    settings = read_settings(home.absolute())
    storage = get_storage(settings)
    own = {next(iter(text.own)): text.domain for text in scores.training}  # of each expert
    with reading(settings) as session:
        planned = plan(session, storage, MixtureRequest(mixture))
        rows = {row.name: row for row in session.scalars(select(Domain))}
        tokenizer = load_tokenizer(planned.experts[0].base.folder)

        def documents(domain: str) -> list[str]:
            folder = storage.kept(rows[domain].artifact).folder / rows[domain].folder
            texts = [row["text"] for row in read_split(folder, "train")]
            return texts[:: max(1, len(texts) // DOCUMENTS)][:DOCUMENTS]

        clustering = _centroids([documents(own[expert]) for expert in sorted(own)])

        def measured(texts: Sequence[DevText], split: HeldOutSplit) -> list[DevText]:
            shown, changed = scored_domains(session, planned, split), []
            for text in texts:
                packed = find_artifact(session, tokens_key(rows[text.domain].id, tokenizer.sha256))
                assert packed is not None, "its tokens were scored"
                tokens = Tokens.open(storage.kept(packed).folder, split)
                sample = EvalSample(tokens, text.block_size, load_places(storage, shown[text.domain][0])[0])
                changed.append(replace(text, distances=_distances(clustering, tokenizer, sample)))
            return changed

        dev, training = measured(scores.dev, "dev"), measured(scores.training, "test")
        return Scores(dev, training, measured(scores.novel, "test"), list(range(len(own))))


def _centroids(samples: Sequence[Sequence[str]]) -> FittedClustering:
    """A cluster for each sample of documents, around the mean of their vectors."""
    fitted = fit_tfidf([text for texts in samples for text in texts], TfidfConfig())
    embedder = next(one for one in fitted if isinstance(one, TfidfEmbedder))
    centres_KD = np.stack([embedder.embed(texts).vectors_ND.mean(0) for texts in samples])
    clusters = Clusters("centroids", 0, centres_KD.astype(np.float32), np.zeros(0, np.int32), ())
    return FittedClustering(clusters, embedder, ())


def _distances(clustering: FittedClustering, tokenizer: Tokenizer, text: EvalSample) -> Distances:
    with tempfile.TemporaryDirectory() as name:
        for _ in measure_distances(clustering, tokenizer, text, Path(name)):
            pass
        stored = open_distances(Path(name))
        parts = (part.clone() for part in (stored.further_KX, stored.nearest_X, stored.known_X))
        return Distances(*parts, text.block_size)


def invented(num_experts: int = 4, num_novel: int = 2, num_blocks: int = 24, block_size: int = 64) -> Scores:
    """Scores of experts that are best at home; a novel domain changes every few tokens which expert suits it."""
    random = np.random.default_rng(0)

    def text(domain: str, home: int | None) -> DevText:
        shape = (num_experts, num_blocks * block_size)
        suits_X = np.repeat(random.integers(0, num_experts, shape[1] // 8), 8) if home is None else home
        is_best_EX = np.arange(num_experts)[:, None] == suits_X
        hard_X = random.gamma(2.0, 1.6, shape[1])
        logprobs_EX = -hard_X * np.exp(random.normal(0.0, 0.35, shape)) + np.where(is_best_EX, 0.35, -0.25)
        further = torch.from_numpy(random.gamma(2.0, 0.1, shape) + 0.2 * ~is_best_EX).float()
        known_X = torch.arange(shape[1]) % block_size
        distances = Distances(further, torch.zeros(shape[1]), known_X, block_size)
        scores_EX = torch.from_numpy(np.minimum(logprobs_EX, -1e-3)).float()
        own = frozenset() if home is None else frozenset({home})
        return DevText(domain, scores_EX, block_size, np.arange(num_blocks) // 2, own, distances)

    homes = range(num_experts)
    dev, training = ([text(f"home {home}", home) for home in homes] for _ in range(2))
    return Scores(dev, training, [text(f"novel {number}", None) for number in range(num_novel)], list(homes))


def main() -> None:
    parser = Options(__doc__, SIZES)
    parser.add_argument("--home", type=Path, help="A folder of the workbench. Default: invented scores.")
    parser.add_argument("--mixture", help="A mixture there, whose experts have dev and test scores.")
    parser.add_argument("--clustering", help="A clustering whose distances are stored, for cluster-posterior.")
    parser.add_argument("--centroids", action="store_true", help="Measure distances to the domains' mean vectors.")
    parser.add_argument("--against", default="prefix", help="The gate that the others are compared with.")
    options = parser.parse_args()
    if bool(options.home) != bool(options.mixture):
        parser.error("Give --home and --mixture, or neither.")
    if options.home:
        scores = stored(options.home, options.mixture, options.clustering)
    else:
        scores = invented(num_blocks=options.blocks, block_size=options.block_size)
    if options.centroids:
        scores = with_centroids(options.home, options.mixture, scores)
    result = compare(scores, options.against, options.steps)
    figures = [
        Figure(
            f"change of perplexity on {role} text against {options.against}: {row['gate']}",
            [row["change_percent"]],
            "%",
        )
        for role in ("novel", "training")
        for row in result.get(role, ())
    ]
    report(options, figures, **result)


if __name__ == "__main__":
    main()
