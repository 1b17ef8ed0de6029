"""Claims: a mixture of the top 2 of 8 whole models (ELMs) decodes a token in at most 2.2x the time of one; 64 models on
disk are served within the bytes that the cache may hold.

The peer is one `transformers` model of the same shape with its cache. Both take turns token by token, on one thread
whose processor time is counted, so that what else the machine does touches both alike. The gate is the cluster gate
with its real work: text, tf-idf and distances at every token. For the 64, every model that was loaded counts for as
long as anything holds it. Models are small and freshly made: what they say does not matter here.
Run: python benchmarks/sparse_decoding.py
"""

from __future__ import annotations

from engine.device import prepare_process
from engine.methods.multi_expert_files import new_placement

prepare_process(1)

import statistics  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import weakref  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from transformers import DynamicCache  # noqa: E402

from engine.clusters.artifact import FittedClustering  # noqa: E402
from engine.clusters.centroids import Clusters  # noqa: E402
from engine.clusters.config import ClusterConfig, TfidfConfig  # noqa: E402
from engine.clusters.distances import GrowingContext  # noqa: E402
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf  # noqa: E402
from engine.clusters.kmeans import find_clusters  # noqa: E402
from engine.config import ModelConfig  # noqa: E402
from engine.files import ArtifactRef, new_folder  # noqa: E402
from engine.inference.ensemble import Ensemble, Group, group_of  # noqa: E402
from engine.inference.mixing import Mixing  # noqa: E402
from engine.loading.loaded_base import ModelCache  # noqa: E402
from engine.methods import multi_expert_files  # noqa: E402
from engine.methods.multi_expert_files import load_experts, save_base, save_expert  # noqa: E402
from engine.mixing.cluster import ClusterGate, Routing  # noqa: E402
from engine.models.families import fresh_model  # noqa: E402
from engine.models.multi_expert import MultiExpertModel  # noqa: E402
from engine.text.corpus import Document  # noqa: E402
from engine.text.tokenizer import Tokenizer, train_tokenizer  # noqa: E402
from harness.benchmark import Figure, Options, report, seconds_of  # noqa: E402

SIZES = {
    "runs": (7, 1),
    "tokens": (64, 4),
    "width": (512, 32),
    "layers": (8, 1),
    "small_width": (64, 16, "width of the models on disk"),
    "small_tokens": (48, 4, "tokens of each text that they read"),
    "subjects": (64, 8, "of the texts, with a model on disk each"),
}
VOCAB, WORDS = 4096, 40


def invented_texts(draw: np.random.Generator, num_subjects: int) -> list[str]:
    """Documents of several subjects, each with invented words of its own."""
    words = [[f"{subject:x}w{number:x}term" for number in range(WORDS)] for subject in range(num_subjects)]
    return [" ".join(draw.choice(words[subject], 60)) for subject in range(num_subjects) for _ in range(6)]


def clustering_of(texts: Sequence[str], num_clusters: int) -> FittedClustering:
    """A clustering of the texts in 100 dimensions."""
    *_, embedder = fit_tfidf(texts, TfidfConfig(scaling="unit_rows"))
    assert isinstance(embedder, TfidfEmbedder)
    *_, clusters = find_clusters(embedder.embed(texts).vectors_ND, ClusterConfig(num_clusters=num_clusters))
    assert isinstance(clusters, Clusters)
    return FittedClustering(clusters, embedder, tuple(Document(text).id for text in texts))


def gate_of(clustering: FittedClustering, tokenizer: Tokenizer, top_k: int) -> ClusterGate:
    """One expert for each cluster."""
    number = clustering.clusters.num_clusters
    routing = Routing(range(number), lambda: GrowingContext(clustering, tokenizer))
    return ClusterGate([1.0] * number, routing, temperature=0.1, top_k=top_k)


def mixed(mixing: Mixing, ids: Sequence[int]) -> None:
    """Takes tokens in, and gives the distribution of the next."""
    mixing.feed(ids)
    mixing.distribution()


@torch.inference_mode()
def by_itself(lm: Any, cache: DynamicCache, ids: Sequence[int]) -> None:
    """The same with one model."""
    lm(input_ids=torch.tensor([ids]), past_key_values=cache, use_cache=True).logits[0, -1].float().log_softmax(-1)


def compare_speed(
    shape: ModelConfig, texts: list[str], tokenizer: Tokenizer, runs: int, num_tokens: int
) -> tuple[list[float], list[float]]:
    """The time of the top 2 of 8 over that of one model in each run: by the median token, and by the mean one."""
    clustering = clustering_of(texts, 8)
    models = [
        MultiExpertModel(fresh_model(shape, VOCAB, seed), [f"e{seed}"], new_placement()).eval() for seed in range(8)
    ]
    lm, medians, means = fresh_model(shape, VOCAB, 0).eval(), list[float](), list[float]()
    ensemble = Ensemble(tuple(group_of(model, model.keys) for model in models))
    for run in range(runs + 1):
        ids = [tokenizer.bos_id, *tokenizer.encode(texts[run * 7])]
        prompt, rest = ids[:32], ids[32 : 32 + num_tokens]
        mixing, cache = Mixing(ensemble, ensemble.keys, gate_of(clustering, tokenizer, 2)), DynamicCache()
        mixed(mixing, prompt)
        by_itself(lm, cache, prompt)
        pairs = [
            (
                seconds_of(partial(mixed, mixing, [one]), time.thread_time),
                seconds_of(partial(by_itself, lm, cache, [one]), time.thread_time),
            )
            for one in rest
        ]
        if run:
            ours, theirs = zip(*pairs, strict=True)
            medians.append(statistics.median(ours) / statistics.median(theirs))
            means.append(statistics.fmean(ours) / statistics.fmean(theirs))
    return medians, means


def store(shape: ModelConfig, root: Path, number: int) -> list[tuple[ArtifactRef, dict[str, ArtifactRef]]]:
    """So many whole models on disk."""
    stored = []
    for seed in range(number):
        model, key = MultiExpertModel(fresh_model(shape, VOCAB, seed), [f"e{seed}"], new_placement()), f"e{seed}"
        with new_folder(root / f"base{seed}") as folder:
            save_base(model, folder)
        base = ArtifactRef(root / f"base{seed}", ArtifactRef(root / f"base{seed}").check())
        with new_folder(root / key) as folder:
            save_expert(model, key, folder, base_sha256=str(base.sha256), tokenizer_sha256="")
        stored.append((base, {key: ArtifactRef(root / key)}))
    return stored


def size_bytes(model: torch.nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(parameter.nbytes for parameter in model.parameters())


def count_held() -> Callable[[], int]:
    """Gives the bytes of all models that were loaded and are still held by anything."""
    alive: list[weakref.ref[MultiExpertModel]] = []

    def loading(*given: Any) -> MultiExpertModel:
        model = load_experts(*given)
        alive.append(weakref.ref(model))
        return model

    multi_expert_files.load_experts = loading
    return lambda: sum(size_bytes(model) for one in alive if (model := one()) is not None)


def serve_many(
    shape: ModelConfig, texts: list[str], tokenizer: Tokenizer, num_models: int, num_tokens: int
) -> dict[str, Any]:
    """A model on disk for each subject, the top 2 run, memory for 4."""
    one = size_bytes(fresh_model(shape, VOCAB))
    held, peak, awake = count_held(), 0, set[int]()
    with tempfile.TemporaryDirectory() as root:
        stored = store(shape, Path(root), num_models)
        models = ModelCache(int(4.1 * one))

        def group(base: ArtifactRef, experts: dict[str, ArtifactRef]) -> Group:
            return Group(tuple(experts), lambda: models.get(base, experts).view(list(experts)), 512, VOCAB)

        ensemble = Ensemble(tuple(group(base, experts) for base, experts in stored))
        clustering = clustering_of(texts, num_models)
        for text in texts[::24]:
            mixing = Mixing(ensemble, ensemble.keys, gate_of(clustering, tokenizer, 2))
            for token in [tokenizer.bos_id, *tokenizer.encode(text)][:num_tokens]:
                mixing.feed([token])
                awake |= set(mixing.distribution()[0].nonzero().flatten().tolist())
                peak = max(peak, held())
    assert peak, "No model was counted: models are loaded in another way than is watched here."
    return {
        "bound_mb": 4.1 * one / 2**20,
        "peak_parameters_mb": peak / 2**20,
        "all_models_mb": num_models * one / 2**20,
        "experts_used": len(awake),
    }


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    texts = invented_texts(np.random.default_rng(0), options.subjects)
    tokenizer = train_tokenizer(texts, VOCAB)
    shape, small = (
        ModelConfig(num_layers=layers, width=width, num_heads=4, ffn_width=4 * width, max_positions=512)
        for width, layers in ((options.width, options.layers), (options.small_width, 2))
    )
    medians, means = compare_speed(shape, texts, tokenizer, options.runs, options.tokens)
    memory = serve_many(small, texts, tokenizer, options.subjects, options.small_tokens)
    figures = [
        Figure("the top 2 of 8 models over one model, median token", medians, at_most=2.2),
        Figure("the same by the mean token", means),
        Figure("models on disk, memory over the bound", [memory["peak_parameters_mb"] / memory["bound_mb"]], at_most=1),
    ]
    report(options, figures, **memory)


if __name__ == "__main__":
    main()
