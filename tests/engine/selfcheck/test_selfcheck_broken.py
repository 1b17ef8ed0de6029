"""The engine broken on purpose, one law at a time: the self-check must fail that law and nothing else may happen."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.clusters import kmeans
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder
from engine.inference import mixing, scores
from engine.methods.anchored.placement import Anchored
from engine.methods.mode import block as mode_block
from engine.methods.mode import model as mode_model
from engine.mixing import base, posterior
from engine.models.likelihoods import TokenScores
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.selfcheck import anchored_laws, router_laws
from engine.selfcheck.law import LawVerdict
from engine.selfcheck.laws import LAWS, run_laws
from engine.text import corpus
from engine.text.blocks import EvalSample
from engine.training import checkpoint

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


def verdict(number: str) -> LawVerdict:
    (law,) = [law for law in LAWS if law.number == number]
    (result,) = run_laws("cpu", [law])
    return result


# How to break the engine. Each gets a monkeypatch, and leaves everything standing but one law's subject.


def smoothed_prior(patch: Patch) -> None:
    def smooth(weights: Any) -> Tensor:
        weights_E = torch.tensor(list(weights), dtype=torch.float64) + 1e-9
        return (weights_E / weights_E.sum()).log()

    for module in (base, posterior):
        patch.setattr(module, "normalised_prior", smooth)


def rounded_prior(patch: Patch) -> None:
    """As it was: 1/E divided by a sum that is not quite 1."""

    def first_time(weights: Any) -> Tensor:
        prior_E = torch.tensor(list(weights), dtype=torch.float64)
        return (prior_E / prior_E.sum()).log()

    for module in (base, posterior):
        patch.setattr(module, "normalised_prior", first_time)


def other_mix(change: Callable[[Tensor, Tensor], Tensor], *modules: Any) -> Callable[[Patch], None]:
    def patching(patch: Patch) -> None:
        for module in modules:
            patch.setattr(module, "mix", change)

    return patching


def loud_mix(log_weights_E: Tensor, logprobs_E: Tensor) -> Tensor:
    """One part in a million too much."""
    return real_mix(log_weights_E, logprobs_E) + 1e-6


def unweighted_mix(_log_weights_E: Tensor, logprobs_E: Tensor) -> Tensor:
    return logprobs_E.logsumexp(0)


real_mix = mixing.mix


def lazy_top(patch: Patch) -> None:
    """Keeps the best experts and does not scale them to sum 1 again."""

    def keep(log_weights: Tensor, top_k: int | None) -> Tensor:
        best = log_weights.log_softmax(0).topk(min(top_k or len(log_weights), len(log_weights)), dim=0)
        return torch.full_like(log_weights, -torch.inf).scatter(0, best.indices, best.values)

    for module in (base, posterior):
        patch.setattr(module, "keep_top", keep)


def favourite(patch: Patch) -> None:
    """A gate that likes the first expert, whoever that is."""
    weigh = posterior.PosteriorGate.weigh

    def unfair(self: Any, evidence: Tensor, log_prior: Tensor) -> Tensor:
        bonus = torch.zeros_like(log_prior)
        bonus[0] = 1e-4
        return weigh(self, evidence, log_prior + bonus)

    patch.setattr(posterior.PosteriorGate, "weigh", unfair)


def meddling(name: str) -> Callable[[Patch], None]:
    """A change of the model that nudges one number of another expert by the least amount there is."""

    def patching(patch: Patch) -> None:
        real = getattr(MultiExpertModel, name)

        def meddle(self: MultiExpertModel, key: str, **shown: Any) -> None:
            real(self, key, **shown)
            with torch.no_grad():
                first = next(iter(self.expert_parameters("law").values()))
                first[0, 0] = torch.nextafter(first[0, 0], torch.tensor(math.inf))

        patch.setattr(MultiExpertModel, name, meddle)

    return patching


def crowded_batches(patch: Patch) -> None:
    real = MultiExpertModel.token_scores

    def crowded(self: MultiExpertModel, ids: Tensor, targets: Tensor, rows: Rows) -> TokenScores:
        logprobs, hits = real(self, ids, targets, rows)
        return TokenScores(logprobs - 1e-4 * len(ids), hits)

    patch.setattr(MultiExpertModel, "token_scores", crowded)


def coarse_scores(patch: Patch) -> None:
    real = scores.open_scores
    patch.setattr("engine.selfcheck.test_bed.open_scores", lambda folders: (real(folders)[0].bfloat16().float(), 16))


def no_floor(patch: Patch) -> None:
    patch.setattr(posterior, "FLOOR", -math.inf)


def forgetful_start(patch: Patch) -> None:
    real = posterior.PosteriorGate.start
    patch.setattr(posterior.PosteriorGate, "start", lambda self, _belief=None: real(self))


def lost_position(patch: Patch) -> None:
    """A prior that learns, but too late: where in its block the stream stood is forgotten."""
    real = posterior.PosteriorGate.start

    def start(self: Any, belief: Any = None) -> Any:
        return real(self, belief and replace(belief, position=0))

    patch.setattr(posterior.PosteriorGate, "start", start)


def hasty_stream(patch: Patch) -> None:
    """A stream that sees nothing but the last token, while the block sees the whole prefix."""

    def observe(self: Any, logprobs_E: Tensor, _token: int) -> None:
        self.belief = replace(self.belief, evidence_E=logprobs_E.double())

    patch.setattr(posterior.PosteriorStream, "observe", observe)


def updates_by_row(patch: Patch) -> None:
    """As it was: a prior that learns once in a scored block, and in a stream after so many tokens."""
    patch.setattr(posterior.UpdatingGate, "_between_updates", lambda _, logprobs_ENT: logprobs_ENT)


def padded_totals(patch: Patch) -> None:
    """Sums of blocks that take the padding for tokens."""
    real = posterior.PosteriorGate.total
    patch.setattr(posterior.PosteriorGate, "total", lambda self, *blocks: real(self, *blocks) - 1e-2)


def documents_by_path(patch: Patch) -> None:
    def by_path(self: corpus.Document) -> None:
        object.__setattr__(self, "id", hashlib.sha256(self.source.encode()).hexdigest())

    patch.setattr(corpus.Document, "__post_init__", by_path)


def lost_moments(patch: Patch) -> None:
    patch.setattr("engine.training.run_state.restore", weights_only)


def weights_only(root: Any, step: int, parameters: Any, _optimizer: Any) -> None:
    checkpoint.restore(root, step, parameters)


def no_cache(patch: Patch) -> None:
    for name in ("forward", "read"):
        real = getattr(MultiExpertModel, name)
        patch.setattr(MultiExpertModel, name, lambda self, ids, rows, *_, real=real, **__: real(self, ids, rows))


def no_resume(patch: Patch) -> None:
    patch.setattr("engine.training.run_state.newest_step", lambda *_: 0)


def cut_words(patch: Patch) -> None:
    """A growing text whose words end where its pieces do."""
    real = TfidfEmbedder.extend
    patch.setattr(TfidfEmbedder, "extend", lambda self, state, piece: real(self, state, f"{piece} "))


def loose_clusters(patch: Patch) -> None:
    real = kmeans.kmeans
    patch.setattr(kmeans, "kmeans", lambda vectors, config, _: real(vectors, config, kmeans.nearest_assignment))


def unseeded_clusters(patch: Patch) -> None:
    real, seeds = kmeans.kmeans, itertools.count()
    patch.setattr(
        kmeans, "kmeans", lambda vectors, config, *how: real(vectors, replace(config, seed=next(seeds)), *how)
    )


def open_start(patch: Patch) -> None:
    """A gate that begins all but closed, as one with a low bias would."""
    real = mode_block.gate_weights
    patch.setattr(mode_block, "gate_weights", lambda slopes, odds: real(slopes, odds.abs() + 1e-5))


def gates_by_rank(patch: Patch) -> None:
    """Rows of the gate that mean something else in company: those that are off keep their share."""
    real = mode_model.ModeModel.forward

    def forward(self: Any, ids: Tensor, keys: Any, *shown: Any) -> Any:
        logits, weights = real(self, ids, keys, *shown)
        return logits * (1 + 1e-4 * (len(self.keys) - len(keys))), weights

    patch.setattr(mode_model.ModeModel, "forward", forward)


def lost_share(patch: Patch) -> None:
    """Gate weights given without the share of the backbone's last digits."""
    real = mode_block.gate_weights
    patch.setattr(mode_block, "gate_weights", lambda *shown: real(*shown) * (1 - 1e-5))


def no_cache_beside_a_backbone(patch: Patch) -> None:
    real = mode_model.ModeModel.read  # what `forward` begins with, too
    patch.setattr(mode_model.ModeModel, "read", lambda self, ids, keys, *_, **__: real(self, ids, keys))


def swapped_routers(patch: Patch) -> None:
    real = router_laws.set_routers
    patch.setattr(router_laws, "set_routers", lambda moe, routers_LEH: real(moe, routers_LEH.flip(1)))


def first_batch_only(patch: Patch) -> None:
    real = EvalSample.batches
    patch.setattr(EvalSample, "batches", lambda self, size: itertools.islice(real(self, size), 1))


def rows_of_another(patch: Patch) -> None:
    real = anchored_laws.trained_routers
    patch.setattr(anchored_laws, "trained_routers", lambda rows_ELH: real([row_LH.flip(1) for row_LH in rows_ELH]))


def no_anchor(patch: Patch) -> None:
    """The seed's network counts with all of its output, whatever the expert's share."""
    patch.setattr(Anchored, "forward", lambda self, x, _: self.network(x))


BREAKS: list[tuple[str, Callable[[Patch], None]]] = [
    ("L1", smoothed_prior),
    ("L1", other_mix(loud_mix, mixing)),
    ("L2", other_mix(loud_mix, base, posterior)),
    ("L2", other_mix(loud_mix, mixing)),
    ("L3", rounded_prior),
    ("L4", other_mix(unweighted_mix, mixing, base, posterior)),
    ("L5", lazy_top),
    ("L5", lost_share),
    ("L6", favourite),
    ("L7", meddling("remove_expert")),
    ("L8", meddling("add_expert")),
    ("L9", crowded_batches),
    ("L9", padded_totals),
    ("L10", cut_words),
    ("L11", loose_clusters),
    ("L11", unseeded_clusters),
    ("L12", open_start),
    ("L12", gates_by_rank),
    ("L13", other_mix(unweighted_mix, mixing)),
    ("L13", no_cache),
    ("L13", updates_by_row),
    ("L14", no_floor),
    ("L15", forgetful_start),
    ("L15", lost_position),
    ("L15", hasty_stream),
    ("L16", documents_by_path),
    ("L17", lost_moments),
    ("L17", no_resume),
    ("L18", no_cache),
    ("L18", no_cache_beside_a_backbone),
    ("L19", coarse_scores),
    ("L19", crowded_batches),
    ("L19", updates_by_row),
    ("L20", swapped_routers),
    ("L20", first_batch_only),
    ("L21", rows_of_another),
    ("L21", no_anchor),
]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's word for what is no number
@pytest.mark.parametrize(("number", "break_it"), BREAKS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BREAKS)])
def test_a_broken_engine_fails_its_law(number: str, break_it: Callable[[Patch], None], monkeypatch: Patch) -> None:
    break_it(monkeypatch)
    result = verdict(number)
    assert not result.passed
    assert result.message.startswith("The deviation is")


def test_every_law_has_been_broken_by_one_test() -> None:
    broken = [number for number, _ in BREAKS]
    assert list(dict.fromkeys(broken)) == [law.number for law in LAWS]


@pytest.mark.parametrize("number", ["L1", "L2", "L6", "L7", "L16", "L18"])
def test_a_model_on_which_nothing_could_fail_proves_nothing(number: str, monkeypatch: Patch) -> None:
    for name in ("forward", "logits"):
        monkeypatch.setattr(
            MultiExpertModel, name, lambda self, seen, *_: torch.zeros(*seen.shape[:2], self.vocab_size).to(seen.device)
        )
    monkeypatch.setattr(MultiExpertModel, "likelihoods", lambda *seen: torch.full(seen[2].shape, -5.0))
    same = TokenScores(torch.tensor(-5.0), torch.tensor(False))
    monkeypatch.setattr(
        MultiExpertModel, "token_scores", lambda _, ids, *__: TokenScores(*(one.expand(ids.shape) for one in same))
    )
    result = verdict(number)
    assert not result.passed
    assert "proves nothing" in result.message
