"""Linear maps give the same numbers by oneDNN as by torch, with the same gradients, and only where that is faster."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from engine import device
from engine.config import ModelConfig
from engine.models import matrix_products
from engine.models.families import fresh_model, layout_of
from engine.models.matrix_products import linear, use_faster_products


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor on which oneDNN is faster, at any size."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(matrix_products, "is_onednn_faster", lambda: True)
    monkeypatch.setattr(matrix_products, "_LEAST_PRODUCTS", 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The inputs that oneDNN gets."""
    seen: list[Tensor] = []
    multiply = matrix_products._multiply
    monkeypatch.setattr(matrix_products, "_multiply", lambda *given: seen.append(given[0]) or multiply(*given))
    return seen


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(24, 40), lambda: nn.Linear(24, 40, bias=False), lambda: Conv1D(40, 24)]
)
def test_a_map_and_its_gradients_are_those_of_torch(make: Any, calls: list[Tensor]) -> None:
    plain = make()
    ours = copy.deepcopy(plain)
    use_faster_products(ours)
    x_BTI, of_out_BTO = torch.randn(3, 7, 24, requires_grad=True), torch.randn(3, 7, 40)
    results = []
    for layer in (plain, ours):
        out_BTO = layer(x_BTI)
        results.append([out_BTO, *torch.autograd.grad(out_BTO, [x_BTI, *layer.parameters()], of_out_BTO)])
    torch.testing.assert_close(results[1], results[0])
    assert len(calls) == 3
    assert [*ours.state_dict()] == [*plain.state_dict()]


def test_frozen_weights_get_no_gradient(calls: list[Tensor]) -> None:
    x_NI = torch.randn(8, 24, requires_grad=True)
    linear(x_NI, torch.randn(40, 24)).sum().backward()
    assert x_NI.grad is not None
    assert len(calls) == 2


@pytest.mark.parametrize("x", [torch.randn(3, 24), torch.randn(8, 24).bfloat16(), torch.empty(8, 24, device="meta")])
def test_few_rows_and_other_tensors_stay_with_torch(x: Tensor, calls: list[Tensor]) -> None:
    linear(x, torch.empty(40, 24, dtype=x.dtype, device=x.device))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.randn(8, 24), torch.randn(40, 24)).dtype == torch.bfloat16
    assert not calls


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_model_computes_the_same_with_and_without(family: Any, calls: list[Tensor]) -> None:
    lm = fresh_model(ModelConfig(family, num_layers=2, width=32, num_heads=2, ffn_width=64), 100).eval()
    assert len(layout_of(lm).ffn) == 2
    ids_BT = torch.randint(0, 100, (2, 9))
    ours = lm(input_ids=ids_BT).logits
    assert calls
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_products, "is_onednn_faster", lambda: False)
        torch.testing.assert_close(ours, lm(input_ids=ids_BT).logits)


@pytest.mark.parametrize(
    ("processor", "capability", "is_faster"),
    [("AMD EPYC", "AVX512", True), ("AMD EPYC", "AVX2", False), ("Intel Xeon", "AVX512", False)],
)
def test_the_processor_decides(
    processor: str, capability: str, is_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_processor", lambda: processor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert device.is_onednn_faster.__wrapped__() == is_faster
