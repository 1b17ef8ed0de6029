"""Weights of 16 bits that are served in float32: twice the bytes, float32's numbers, where a CPU needs it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.config import RequestedPrecision, ServePrecision
from engine.files import ArtifactRef
from engine.inference.shared_passes import SharedPasses, why_not_shared
from engine.loading import served_precision
from engine.loading.loaded_base import LoadedBase, ModelCache
from engine.loading.served_precision import choose_precision
from engine.models.rows import Rows
from tests.engine.loading.test_served_precision import every_method, loaded, logits, stored
from tests.engine.training.test_precision import HALF, IDS, seed_in

HEADERS = 20_000  # bytes of files besides their tensors, at most
SMALL, LARGE = 1 << 10, 1 << 30


@every_method
@pytest.mark.parametrize("dtype", HALF)
def test_an_expert_of_a_seed_of_16_bits_computes_in_float32(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    files = stored(name, tmp_path, dtype)
    short, full = (loaded(*files, precision) for precision in ("stored", "float32"))
    assert {one.dtype for one in full.tensors().values()} == {torch.float32}
    expected = loaded(*files, "stored")
    for host in expected._hosts.values():
        for module in host.modules():
            module.float()
    assert torch.equal(logits(full), logits(expected))
    assert 0 < (logits(full) - logits(short).float()).abs().max() < 0.02


@pytest.mark.parametrize("dtype", HALF)
def test_a_seed_served_in_float32_has_the_logits_of_transformers_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    seed = seed_in(dtype, tmp_path / "seed")
    model = LoadedBase(seed, precision="float32")
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
    forecast = LoadedBase(base, precision=precision).coming_bytes({"law": expert})
    held = loaded(base, expert, precision).num_bytes()
    assert held <= forecast <= held + HEADERS


def test_one_base_is_held_in_two_precisions_side_by_side(tmp_path: Path) -> None:
    base, expert = stored("demix", tmp_path, torch.bfloat16)
    models = ModelCache(LARGE)
    short, full = (models.get(base, {"law": expert}, precision) for precision in ("stored", "float32"))
    models.get(base, {"law": expert, "copy": expert}, "float32")
    assert {one.dtype for one in short.tensors().values()} == {torch.bfloat16}
    assert {one.dtype for one in full.tensors().values()} == {torch.float32}
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
    monkeypatch.setattr(served_precision, "computes_in", lambda *_: is_able)
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
        "import torch; from engine.loading.served_precision import computes_in; "
        "print(any(computes_in(one, torch.device('cpu')) for one in (torch.bfloat16, torch.float16)))"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "False"


def test_gpus_keep_the_stored_precision() -> None:
    assert served_precision.computes_in(torch.bfloat16, torch.device("cuda"))
