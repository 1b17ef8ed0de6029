"""Linear maps in float32 by oneDNN, on processors where torch's own choice, MKL, leaves half of their speed unused.

MKL takes AVX-512 on Intel's processors only; on AMD's with AVX-512 oneDNN computes the same products in half of the
time. Whether it is taken depends on the processor and the sizes, never on a measurement: one machine always computes
the same bits. Small products, and those of fewer than four rows, stay with torch, as do all in 16 bits.

Shapes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from engine.device import is_onednn_faster

_LEAST_ROWS, _LEAST_PRODUCTS = 4, 1 << 22  # below, a call of oneDNN takes longer than it saves


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """The same as torch's `linear`, x [..., I] to [..., O], by the faster library."""
    if not _is_for_onednn(x, weight_OI):
        return nn.functional.linear(x, weight_OI, bias_O)
    product: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), weight_OI, bias_O)  # type: ignore[no-untyped-call]
    return product.view(*x.shape[:-1], -1)


def _is_for_onednn(x: Tensor, weight_OI: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and x.dtype == weight_OI.dtype == torch.float32
        and x.device.type == weight_OI.device.type == "cpu"
        and x.numel() >= _LEAST_ROWS * x.shape[-1]
        and x.numel() * weight_OI.shape[0] >= _LEAST_PRODUCTS
        and type(x) in _PLAIN
        and type(weight_OI) in _PLAIN
        and not torch.is_autocast_enabled("cpu")
        and is_onednn_faster()
    )


_PLAIN = (Tensor, nn.Parameter)  # a divided tensor has operations of its own


def _multiply(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    out_NO: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return out_NO


class _Product(torch.autograd.Function):
    """x · weightᵀ + bias, with gradients by the same library."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI if ctx.needs_input_grad[1] else None, weight_OI)
        return _multiply(x_NI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_out_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI = ctx.saved_tensors
        return (
            _multiply(of_out_NO, weight_OI.t()) if ctx.needs_input_grad[0] else None,
            _multiply(of_out_NO.t(), x_NI.t()) if ctx.needs_input_grad[1] else None,
            of_out_NO.sum(0) if ctx.needs_input_grad[2] else None,
        )


class FasterLinear(nn.Linear):
    """A linear map by the faster library; it has the parameters, the names and the files of torch's."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


@cache
def _faster_types() -> dict[type[nn.Module], type[nn.Module]]:
    """The types of linear maps, with those that compute the same faster."""
    from transformers.pytorch_utils import Conv1D

    class FasterConv1D(Conv1D):
        """The same of GPT-2's linear maps, whose weights are stored as [I, O]."""

        def forward(self, x: Tensor) -> Tensor:
            if _is_for_onednn(x, self.weight.t()):
                return linear(x, self.weight.t(), self.bias)
            return super().forward(x)  # type: ignore[no-any-return, no-untyped-call]

    return {nn.Linear: FasterLinear, Conv1D: FasterConv1D}


def use_faster_products(model: nn.Module) -> None:
    """Turns the linear maps of a model into faster ones where oneDNN is faster; subclasses stay as they are."""
    if is_onednn_faster():
        for module in model.modules():
            module.__class__ = _faster_types().get(type(module), type(module))
