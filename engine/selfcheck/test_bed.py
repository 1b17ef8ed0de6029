"""The test bed of the laws: a tiny real model with different experts, real score files, every gate.

Shapes: E experts, T positions, V vocabulary, X tokens of a scored text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.clusters.artifact import FittedClustering
from engine.clusters.centroids import Clusters
from engine.clusters.config import ClusterConfig, TfidfConfig
from engine.clusters.distances import Distances, GrowingContext, measure_distances, open_distances
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf
from engine.clusters.kmeans import find_clusters
from engine.config import Family, ModelConfig
from engine.files import ArtifactRef, new_folder
from engine.inference.mixing import Mixing
from engine.inference.scores import open_scores, score_tokens
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.multi_expert_files import new_placement, save_base, save_expert
from engine.methods.parts.parts_model import ActiveParts
from engine.mixing.base import Gate, Stream
from engine.mixing.cluster import Routing
from engine.mixing.evidence import READINGS, EvidenceRule
from engine.mixing.gate_type import GateConfig, build_gate, gate_type, gate_types
from engine.mixing.gates.posterior import PosteriorGateConfig
from engine.models.expert_model import ExpertModel
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.text.blocks import EvalSample, Tokens, eval_sample
from engine.text.corpus import Document
from engine.text.tokenizer import Tokenizer, train_tokenizer
from engine.training.data import DomainText

FAMILIES: tuple[Family, ...] = get_args(Family)
KEYS = ("law", "code", "news", "verse")
PARTS = ("law", "code")  # of one expert
PRIOR = (1.0, 2.0, 3.0, 4.0)
EVEN = (1.0, 1.0, 1.0, 1.0)
BLOCK = 16
# Top-k, and tokens after which a prior learns: as many as a block has, fewer and more, of which none divides another.
LEARNING = ((None, BLOCK), (2, BLOCK), (None, 6), (2, 20))
PROMPT = "the court held that"
SOFT = 20.0  # temperature: the squared distances here are some tens
_VOCAB = 300
_TEMPERED = EvidenceRule(decay=0.5, power=0.6, slow_decay=0.98, slow_power=0.08)
_NOISE = 0.1  # added to fresh weights: the context matters, experts differ clearly, and none dominates


class TestBed:
    """Small deterministic models, texts and clusters on one device, and a folder for files."""

    __test__ = False  # not a class of tests, whatever its name begins with

    def __init__(self, device: torch.device, folder: Path) -> None:
        self.device = device
        self._folder = folder

    def model(self, family: Family = "llama", noise: float = _NOISE) -> MultiExpertModel:
        """A model of four experts; without noise they are identical. A new one each time: a law may change it."""
        shape = ModelConfig(family=family, num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)
        model = MultiExpertModel(fresh_model(shape, _VOCAB, seed=7), KEYS, new_placement()).eval()
        generator = torch.Generator().manual_seed(11)
        disturb(model.shared_parameters().values(), _NOISE, generator)
        for key in KEYS:
            disturb(model.expert_parameters(key).values(), noise, generator)
        return model.to(self.device)

    def mode_model(self, parts: Sequence[str], family: Family = "llama", num_blocks: int = 2) -> ModeModel:
        """Parts next to a backbone, each independent of the others. A new model each time, as above."""
        shape = ModelConfig(family=family, num_layers=2, width=32, num_heads=2, ffn_width=64, max_positions=64)
        lm = fresh_model(shape, _VOCAB, seed=7)
        disturb(lm.parameters(), _NOISE, torch.Generator().manual_seed(11))
        model = ModeModel(lm, num_blocks).eval()
        for part in parts:
            model.add_expert(part, ModeConfig(num_blocks, expert_layers=1))
            generator = torch.Generator().manual_seed(PARTS.index(part))
            disturb(model.expert_parameters(part).values(), _NOISE, generator)
        return model.to(self.device)

    def parts_together(self, family: Family = "llama", active: Sequence[str] = PARTS) -> ActiveParts:
        """These parts as one expert, some of them active."""
        return ActiveParts(self.mode_model(PARTS, family), active, "together")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return train_tokenizer(["the court held that the statute does not apply\n" * 20], _VOCAB)

    @cached_property
    def array(self) -> NDArray[np.uint16]:
        """A text of four full blocks, a remainder, and the token before them."""
        return _random_tokens(3, 75)

    @property
    def ids(self) -> list[int]:
        """The first tokens of the text."""
        return [int(token) for token in self.array[:12]]

    @cached_property
    def scores_EX(self) -> Tensor:
        """The log-likelihood of the text under every expert, through score files."""
        return self.score(self.model())

    def score(self, model: MultiExpertModel, batch_size: int = 8, block_size: int = BLOCK) -> Tensor:
        """Such scores [E, X], written to a new folder and read from there."""
        folders = [self.new_folder() for _ in KEYS]
        for key, folder in zip(KEYS, folders, strict=True):
            for _ in score_tokens(model, key, eval_sample(self.array, block_size), folder, batch_size=batch_size):
                pass
        return open_scores(folders)[0]

    @cached_property
    def clustering(self) -> FittedClustering:
        """Four clusters of pieces of the text, so that most of its words are known."""
        pieces = [self.tokenizer.decode([int(token) for token in self.array[at : at + 5]]) for at in range(0, 75, 5)]
        *_, embedder = fit_tfidf(pieces, TfidfConfig(dimension=6, scaling="standardise"))
        assert isinstance(embedder, TfidfEmbedder)
        *_, clusters = find_clusters(embedder.embed(pieces).vectors_ND, ClusterConfig(num_clusters=len(KEYS)))
        assert isinstance(clusters, Clusters)
        return FittedClustering(clusters, embedder, tuple(Document(piece).id for piece in pieces))

    @cached_property
    def distances(self) -> Distances:
        """Distances before every token of the text but the first."""
        return self.measure(eval_sample(self.array, BLOCK))

    def measure(self, text: EvalSample) -> Distances:
        """Distances to the centres, written to a new folder and read from there."""
        folder = self.new_folder()
        for _ in measure_distances(self.clustering, self.tokenizer, text, folder):
            pass
        return open_distances(folder)

    def gate(self, config: GateConfig, weights: Sequence[float], order: Sequence[int] | None = None) -> Gate:
        """A gate whose experts belong to the clusters in turn, or as in `order`.

        For a gate that supports experts without a cluster, those of the last cluster have none.
        """
        clusters: Sequence[int | None] = order or [expert % len(KEYS) for expert in range(len(weights))]
        if gate_type(config.kind).weighs_unclustered:
            clusters = [None if cluster == len(KEYS) - 1 else cluster for cluster in clusters]
        return build_gate(config, weights, Routing(clusters, lambda: GrowingContext(self.clustering, self.tokenizer)))

    def stream(self, gate: Gate, start: int = 0) -> Stream:
        """A gate's stream on the text, from token `start` on."""
        stream = gate.start()
        stream.begin(int(self.array[start]))
        return stream

    def texts(self, keys: Sequence[str]) -> list[DomainText]:
        """A training and a held-out text for each expert, each of its own part of the vocabulary."""
        width = (_VOCAB - 1) // len(keys)
        parts = [(key, 1 + i * width, 1 + (i + 1) * width) for i, key in enumerate(keys)]
        return [
            DomainText(f"text of {key}", key, _tokens(low, 400, low, high), _tokens(low + 1, 100, low, high))
            for key, low, high in parts
        ]

    def new_folder(self) -> Path:
        """An empty folder that is removed when all laws have been checked."""
        return Path(tempfile.mkdtemp(dir=self._folder))


def every_gate() -> Iterator[GateConfig]:
    """Every gate in each of its variants, with all experts and with top-k 2.

    An updating gate updates at the ends of the text's blocks, within them, and across them.
    """
    for chosen in gate_types().values():
        hints = get_type_hints(chosen.config)
        choices = {name: values for name in chosen.settings if (values := _choices(hints[name]))}
        softness = {"temperature": SOFT} if "temperature" in chosen.settings else {}
        learns = "update_every" in chosen.settings
        for values in product(*choices.values()):
            for top_k, tokens in LEARNING if learns else LEARNING[:2]:
                pace = {"update_every": tokens} if learns else {}
                variant = dict(zip(choices, values, strict=True))
                yield chosen.config(**{"top_k": top_k, **variant, **softness, **pace}, kind=chosen.name)


def _choices(hint: Any) -> Sequence[Any]:
    """The values of a setting that are all checked; none of a number."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return (*READINGS, _TEMPERED) if EvidenceRule in get_args(hint) else ()


def plain_gate(weights: Sequence[float]) -> Gate:
    """The default gate of a new mixture."""
    return build_gate(PosteriorGateConfig(), weights)


@torch.inference_mode()
def plain_logprobs(model: ExpertModel, keys: Sequence[str], ids: Sequence[int]) -> Tensor:
    """Log-probabilities [E, T, V] of each expert by one forward pass without a cache."""
    ids_ET = torch.tensor([list(ids)] * len(keys), device=model.device)
    logprobs_ETV: Tensor = model(ids_ET, Rows.one_each(keys)).float().log_softmax(-1)
    return logprobs_ETV


def mixed_logprobs(model: ExpertModel, keys: Sequence[str], gate: Gate, ids: Sequence[int]) -> Tensor:
    """The mixture's log-probabilities [V] after a text, as generation sees them."""
    mixing = Mixing(model, keys, gate)
    for _ in mixing.read(ids):
        pass
    return mixing.distribution()[1]


def save_model(model: MultiExpertModel, root: Path) -> tuple[ArtifactRef, dict[str, ArtifactRef]]:
    """Saves a base and its experts as a job does."""
    with new_folder(root / "base") as folder:
        save_base(model, folder)
    sha256 = ArtifactRef(root / "base").check()
    for key in model.keys:
        with new_folder(root / key) as folder:
            save_expert(model, key, folder, base_sha256=sha256, tokenizer_sha256="")
    return ArtifactRef(root / "base", sha256), {key: ArtifactRef(root / key) for key in model.keys}


@torch.no_grad()
def disturb(parameters: Iterable[Tensor], noise: float, generator: torch.Generator) -> None:
    for parameter in parameters:
        parameter.add_(torch.randn(parameter.shape, generator=generator) * noise)


def _tokens(seed: int, length: int, low: int, high: int) -> Tokens:
    return Tokens(_random_tokens(seed, length, low, high), np.zeros(1, dtype=np.int64))


def _random_tokens(seed: int, length: int, low: int = 1, high: int = _VOCAB) -> NDArray[np.uint16]:
    return np.random.default_rng(seed).integers(low, high, length).astype(np.uint16)
