"""Weights that are served in bf16: half the bytes, nearly the same numbers, gates and mixtures as fine as before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from engine.config import ServePrecision
from engine.files import ArtifactRef
from engine.inference.ensemble import Ensemble, Group
from engine.inference.mixing import Mixing
from engine.loading import loaded_base
from engine.loading.loaded_base import LoadedBase
from engine.loading.model_cache import ModelCache
from engine.loading.served_precision import hold_in
from engine.methods.multi_expert_files import new_placement
from engine.methods.registry import get_method
from engine.mixing.posterior import PosteriorGate
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.conftest import VOCAB, small_shape
from tests.engine.models.test_demix_files import save
from tests.engine.training.test_precision import IDS, kept, seed_in

METHODS = ["demix", "dense", "domain-token", "lora", "mode"]
LARGEST_DIFFERENCE = 0.02  # of logits; those of a fresh model are between -1 and 1
every_method = pytest.mark.parametrize("name", METHODS)


def stored(name: str, folder: Path, dtype: torch.dtype = torch.float32) -> tuple[ArtifactRef, ArtifactRef]:
    """A base and an expert of this method, not trained."""
    method, seed = get_method(name), seed_in(dtype, folder / "seed")
    model = method.build(seed.folder, ["law"])
    if name == "mode":
        model.names = ("law",)  # type: ignore[attr-defined]
    return kept(method, model, seed, folder)


def loaded(base: ArtifactRef, expert: ArtifactRef, precision: ServePrecision) -> LoadedBase:
    model = LoadedBase(base, precision=precision)
    model.add({"law": expert})
    return model


def logits(model: LoadedBase) -> Tensor:
    with torch.no_grad():
        return model.view(["law"])(IDS, Rows.all_to("law", 1))


@every_method
def test_weights_in_bf16_take_half_the_bytes_and_give_nearly_the_same_logits(name: str, tmp_path: Path) -> None:
    files = stored(name, tmp_path)
    full, half = (loaded(*files, precision) for precision in ("stored", "bf16"))
    assert logits(full).dtype == torch.float32
    assert logits(half).dtype == torch.bfloat16
    assert 0.49 < half.num_bytes() / full.num_bytes() < (0.62 if name == "lora" else 0.53)  # adapters stay
    assert 0 < (logits(half).float() - logits(full)).abs().max() < LARGEST_DIFFERENCE


@every_method
def test_the_same_tensors_stay_in_float32_as_of_a_seed_in_bf16(name: str, tmp_path: Path) -> None:
    served = loaded(*stored(name, tmp_path / "float32"), "bf16").tensors()
    hosted = loaded(*stored(name, tmp_path / "bf16", torch.bfloat16), "stored").tensors()
    assert {place: one.dtype for place, one in served.items()} == {place: one.dtype for place, one in hosted.items()}


def test_files_and_other_precisions_stay_as_they_are(tmp_path: Path) -> None:
    base, expert = stored("demix", tmp_path, torch.float16)
    assert {one.dtype for one in loaded(base, expert, "bf16").tensors().values()} == {torch.float16}
    assert base.check() == base.sha256
    assert expert.check() == expert.sha256


def test_an_expert_that_comes_later_is_held_in_bf16_too(tmp_path: Path) -> None:
    base, expert = stored("demix", tmp_path)
    models = ModelCache(1 << 30)
    before = models.get(base, {"law": expert}, "bf16")
    half = before.num_bytes()
    after = models.get(base, {"law": expert, "copy": expert}, "bf16")
    assert after is before
    assert {one.dtype for one in after.tensors().values()} == {torch.bfloat16}
    assert half < models.num_bytes() == after.num_bytes() < 2 * half


def test_weights_of_experts_and_the_mixture_are_not_in_bf16(tmp_path: Path) -> None:
    base, expert = stored("demix", tmp_path)
    models = ModelCache(1 << 30)
    files = {"law": expert, "copy": expert}
    view = models.get(base, files, "bf16").view([*files])
    ensemble = Ensemble((Group(tuple(files), lambda: view, view.max_positions, view.vocab_size),))
    mixing = Mixing(ensemble, [*files], PosteriorGate([1.0, 3.0]))
    for log_weights_E, logprobs_E in mixing.read([3, 4, 5]):
        assert log_weights_E.dtype == torch.float64
        assert logprobs_E.dtype == torch.float32


def test_an_expert_is_used_only_after_its_weights_are_in_the_served_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, experts = save(
        MultiExpertModel(fresh_model(small_shape(), VOCAB, 0), ["law", "code"], new_placement()), tmp_path
    )
    cache, meanwhile = ModelCache(1 << 30), list[LoadedBase | None]()
    first = cache.get(base, {"code": experts["code"]}, "bf16")

    def look(modules: list[nn.Module], precision: ServePrecision) -> None:
        assert "law" in first.keys  # read, and still in float32
        with cache._lock:
            meanwhile.append(cache._ready((str(base.sha256), "bf16"), experts))
        hold_in(modules, precision)

    monkeypatch.setattr(loaded_base, "hold_in", look)
    assert cache.get(base, experts, "bf16") is first
    assert meanwhile == [None]
    assert cache.get(base, experts, "bf16") is first
    assert len(meanwhile) == 1
