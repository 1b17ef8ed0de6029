"""Weights that are served in bf16: half the bytes, nearly the same numbers, gates and mixtures as fine as before."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from engine.config import RequestedPrecision, ServePrecision
from engine.files import ArtifactRef
from engine.inference.ensemble import Ensemble, Group
from engine.inference.mixing import Mixing
from engine.inference.shared_passes import SharedPasses, why_not_shared
from engine.loading import loaded_base
from engine.loading.loaded_base import HostedBase, ModelCache, choose_precision, hold_in
from engine.methods.multi_expert_files import new_placement
from engine.methods.registry import get_method
from engine.mixing.posterior import PosteriorGate
from engine.models.families import fresh_model
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.conftest import VOCAB, small_shape
from tests.engine.models.test_demix_files import save
from tests.engine.training.test_precision import HALF, IDS, kept, seed_in

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


def loaded(base: ArtifactRef, expert: ArtifactRef, precision: ServePrecision) -> HostedBase:
    model = HostedBase(base, precision=precision)
    model.add({"law": expert})
    return model


def logits(model: HostedBase) -> Tensor:
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
    assert {tensor.dtype for tensor in loaded(base, expert, "bf16").tensors().values()} == {torch.float16}
    assert base.check() == base.sha256
    assert expert.check() == expert.sha256


def test_an_expert_that_comes_later_is_held_in_bf16_too(tmp_path: Path) -> None:
    base, expert = stored("demix", tmp_path)
    models = ModelCache(1 << 30)
    before = models.get(base, {"law": expert}, "bf16")
    half = before.num_bytes()
    after = models.get(base, {"law": expert, "copy": expert}, "bf16")
    assert after is before
    assert {tensor.dtype for tensor in after.tensors().values()} == {torch.bfloat16}
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
    cache, meanwhile = ModelCache(1 << 30), list[HostedBase | None]()
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


HEADERS = 20_000  # bytes of files besides their tensors, at most
SMALL, LARGE = 1 << 10, 1 << 30


@every_method
@pytest.mark.parametrize("dtype", HALF)
def test_an_expert_of_a_seed_of_16_bits_computes_in_float32(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    files = stored(name, tmp_path, dtype)
    short, full = (loaded(*files, precision) for precision in ("stored", "float32"))
    assert {tensor.dtype for tensor in full.tensors().values()} == {torch.float32}
    expected = loaded(*files, "stored")
    for host in expected._hosts.values():
        for module in host.modules():
            module.float()
    assert torch.equal(logits(full), logits(expected))
    assert 0 < (logits(full) - logits(short).float()).abs().max() < 0.02


@pytest.mark.parametrize("dtype", HALF)
def test_a_seed_served_in_float32_has_the_logits_of_transformers_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    seed = seed_in(dtype, tmp_path / "seed")
    model = HostedBase(seed, precision="float32")
    model.add({"seed": seed})
    theirs = AutoModelForCausalLM.from_pretrained(seed.folder, dtype=torch.float32).eval()
    with torch.no_grad():
        ours = model.view(["seed"])(IDS, Rows.all_to("seed", 1))
        assert torch.equal(ours, theirs(IDS).logits)


@every_method
@pytest.mark.parametrize("precision", ["stored", "float32"])
def test_what_a_model_will_take_is_known_before_it_is_loaded(
    name: str, precision: ServePrecision, tmp_path: Path
) -> None:
    base, expert = stored(name, tmp_path, torch.bfloat16)
    forecast = HostedBase(base, precision=precision).coming_bytes({"law": expert})
    held = loaded(base, expert, precision).num_bytes()
    assert held <= forecast <= held + HEADERS


def test_one_base_is_held_in_two_precisions_side_by_side(tmp_path: Path) -> None:
    base, expert = stored("demix", tmp_path, torch.bfloat16)
    models = ModelCache(LARGE)
    short, full = (models.get(base, {"law": expert}, precision) for precision in ("stored", "float32"))
    models.get(base, {"law": expert, "copy": expert}, "float32")
    assert {tensor.dtype for tensor in short.tensors().values()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in full.tensors().values()} == {torch.float32}
    sha256 = str(base.sha256)
    assert models.loaded() == {(sha256, "stored"): ["law"], (sha256, "float32"): ["law", "copy"]}
    assert models.num_bytes() == short.num_bytes() + full.num_bytes()


@pytest.mark.parametrize("name", ["demix", "dense", "lora"])
def test_streams_in_float32_share_passes(name: str, tmp_path: Path) -> None:
    view = loaded(*stored(name, tmp_path, torch.bfloat16), "float32").view(["law"])
    assert why_not_shared(SharedPasses().view(view)) == ""


def chosen(
    requested: RequestedPrecision,
    kept: list[ArtifactRef],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_able: bool = False,
    capacity: int = LARGE,
) -> tuple[str, str]:
    monkeypatch.setattr(loaded_base, "computes_in", lambda *_: is_able)
    choice = choose_precision(requested, kept, "cpu", capacity)
    return choice.precision, choice.because


@pytest.mark.parametrize("dtype", HALF)
def test_a_cpu_without_instructions_serves_16_bits_in_float32_and_says_so(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [*stored("lora", tmp_path, dtype)]
    precision, because = chosen("auto", kept, monkeypatch)
    assert precision == "float32"
    assert str(dtype).removeprefix("torch.") in because
    assert "twice the memory" in because
    assert chosen("auto", kept, monkeypatch, is_able=True) == ("stored", "")


def test_weights_too_large_for_float32_stay_stored_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [seed_in(torch.bfloat16, tmp_path / "seed")]
    precision, because = chosen("auto", kept, monkeypatch, capacity=SMALL)
    assert precision == "stored"
    assert f"more than the {SMALL:,}" in because
    assert chosen("float32", kept, monkeypatch, capacity=SMALL) == ("float32", "")


def test_a_requested_precision_is_taken_and_float32_weights_are_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, full = seed_in(torch.bfloat16, tmp_path / "short"), seed_in(torch.float32, tmp_path / "full")
    for requested in ("stored", "bf16", "float32"):
        assert chosen(requested, [full, short], monkeypatch) == (requested, "")
    assert chosen("auto", [full], monkeypatch) == chosen("float32", [full], monkeypatch) == ("stored", "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN reads this limit on x86 alone.")
def test_the_instructions_are_those_that_onednn_may_use() -> None:
    code = (
        "import torch; from engine.loading.loaded_base import computes_in; "
        "print(any(computes_in(one, torch.device('cpu')) for one in (torch.bfloat16, torch.float16)))"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "False"


def test_gpus_keep_the_stored_precision() -> None:
    assert loaded_base.computes_in(torch.bfloat16, torch.device("cuda"))
