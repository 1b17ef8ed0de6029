"""Routers in closed form, out of sums over each expert's own text (DUME).

An expert's sums are those of its model's inputs x of each layer's network: A = Σ x xᵀ and b = Σ x. The router of a
layer is W = (A + λ·trace(A)/H·I)⁻¹ B, where A is the sum over the experts and B has a column of each; each of the
experts counts alike, however many tokens it has, and each column of W has length 1. Sums add up, so an expert is added
or left out exactly, and no other expert's sums change.

Readings: the paper appends 1 to x for a bias, which the routers of Mixtral and Qwen3-MoE do not have; its λ is 0.01
whatever the size of x, here it is relative to A's mean eigenvalue. Source: https://github.com/gensyn-ai/dume
Shapes: L layers, H the width of the model, E experts, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.errors import DamagedFileError, ModelError
from engine.events import Progress
from engine.text.blocks import EvalSample

NETWORK = ".mlp"  # how the module of a layer's network is called in the families that have a counterpart
_ROUTER = ".mlp.gate"
_BATCH = 4  # blocks read at once
_FILE = "sums.safetensors"
_UNALIKE = "These experts have different numbers of layers or widths, so no router can choose among them."


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the tokens of one expert's text, in float64."""

    squares_LHH: Tensor
    inputs_LH: Tensor
    num_tokens: int

    def save(self, folder: Path) -> None:
        """Writes them; of the symmetric matrices one half."""
        rows, columns = torch.triu_indices(*self.squares_LHH.shape[1:])
        tensors = {"squares": self.squares_LHH[:, rows, columns].contiguous(), "inputs": self.inputs_LH}
        save_file(tensors, folder / _FILE, {"num_tokens": str(self.num_tokens)})

    @classmethod
    def load(cls, folder: Path) -> Sums:
        """Raises DamagedFileError."""
        try:
            with safe_open(folder / _FILE, "pt") as file:
                inputs_LH, halves = file.get_tensor("inputs"), file.get_tensor("squares")
                num_tokens = int(file.metadata()["num_tokens"])
            num_layers, width = inputs_LH.shape
            squares_LHH = torch.zeros(num_layers, width, width, dtype=torch.float64)
            rows, columns = torch.triu_indices(width, width)
            squares_LHH[:, rows, columns] = halves
            squares_LHH[:, columns, rows] = halves
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            raise DamagedFileError(f"The sums in {folder} cannot be read ({error}).", "Delete them.") from error
        return cls(squares_LHH, inputs_LH, num_tokens)


def gather(lm: Any, samples: Sequence[EvalSample]) -> Iterator[Progress | Sums]:
    """Reads texts with an expert's model, a plain decoder, and yields progress in tokens, then the sums."""
    squares: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}

    def add(name: str, x: Tensor) -> None:
        x_NH = x.detach().flatten(0, -2).double()
        squares[name] = squares.get(name, 0) + x_NH.T @ x_NH
        inputs[name] = inputs.get(name, 0) + x_NH.sum(0)

    yield from _read(lm, NETWORK, add, samples)
    yield Sums(
        torch.stack([one.cpu() for one in squares.values()]),
        torch.stack([one.cpu() for one in inputs.values()]),
        sum(sample.num_tokens for sample in samples),
    )


@dataclass(frozen=True, eq=False)
class Routers:
    """The router of each layer, how well its equations are conditioned, and how much text is behind it."""

    weights_LEH: Tensor  # float64
    condition_L: Tensor  # the largest eigenvalue (of trained rows, singular value) over the smallest
    num_tokens: tuple[int, ...]  # of each expert; none of trained rows

    @property
    def cosine_EE(self) -> Tensor:
        """The cosine of every two experts' columns, mean over layers: with 1 no token distinguishes them."""
        unit_LEH = nn.functional.normalize(self.weights_LEH, dim=-1)
        return torch.einsum("leh,lfh->ef", unit_LEH, unit_LEH) / len(unit_LEH)


def solve(sums: Iterable[Sums], shrinkage: float, temperature: float = 1.0) -> Routers:
    """The routers of experts in the order of their sums, of which one at a time is in memory.

    `shrinkage` is λ; columns are divided by the temperature. Raises ModelError for sums of different shapes.
    """
    squares_LHH, columns_LHE, num_tokens = None, list[Tensor](), list[int]()
    for one in sums:
        if squares_LHH is None:
            squares_LHH = torch.zeros_like(one.squares_LHH)
        if one.squares_LHH.shape != squares_LHH.shape:
            raise ModelError(_UNALIKE, "Choose experts of one seed model.")
        squares_LHH += one.squares_LHH / one.num_tokens
        columns_LHE.append(one.inputs_LH / one.num_tokens)
        num_tokens.append(one.num_tokens)
    assert squares_LHH is not None, "no sums were given"
    mean_L = squares_LHH.diagonal(dim1=1, dim2=2).mean(1)
    squares_LHH.diagonal(dim1=1, dim2=2).add_((shrinkage * mean_L)[:, None])
    weights_LHE = torch.linalg.solve(squares_LHH, torch.stack(columns_LHE, -1))
    weights_LHE = weights_LHE / weights_LHE.norm(dim=1, keepdim=True)
    eigenvalues_LH = torch.linalg.eigvalsh(squares_LHH)
    condition_L = _condition(eigenvalues_LH[:, -1], eigenvalues_LH[:, 0])
    return Routers(weights_LHE.mT / temperature, condition_L, tuple(num_tokens))


def _condition(most_L: Tensor, least_L: Tensor) -> Tensor:
    """The ratio of these, finite: the least may round to 0 or below, as with two experts that are alike."""
    numbers = torch.finfo(torch.float64)
    most_L = most_L.clamp(min=numbers.tiny / numbers.eps)
    return most_L / torch.maximum(least_L, most_L * numbers.eps)


def trained_routers(rows: Sequence[Tensor], temperature: float = 1.0) -> Routers:
    """The routers of experts that were trained with rows [L, H] beside an anchor, which is the first: its are zeros.

    Raises ModelError for rows of different shapes.
    """
    if len({row_LH.shape for row_LH in rows}) > 1:
        raise ModelError(_UNALIKE, "Choose experts of one seed model.")
    rows_LEH = torch.stack([row_LH.double() for row_LH in rows], dim=1)
    values_LE = torch.linalg.svdvals(rows_LEH)
    weights_LEH = torch.cat([torch.zeros_like(rows_LEH[:, :1]), rows_LEH], dim=1)
    return Routers(weights_LEH / temperature, _condition(values_LE[:, 0], values_LE[:, -1]), ())


def random_routers(shape_LEH: tuple[int, int, int], std: float) -> Routers:
    """Routers that a training of the whole model is to begin with (BTX), the same whenever they are made."""
    generator = torch.Generator().manual_seed(0)
    weights_LEH = std * torch.randn(shape_LEH, generator=generator, dtype=torch.float64)
    values_LE = torch.linalg.svdvals(weights_LEH)
    return Routers(weights_LEH, _condition(values_LE[:, 0], values_LE[:, -1]), (0,) * shape_LEH[1])


def count_choices(moe: Any, samples: Sequence[EvalSample]) -> Iterator[Progress | Tensor]:
    """Reads texts with the joined model and yields progress, then how many tokens each router gave to each expert.

    Counts [L, E] are of a router's first choice.
    """
    routers = {name: module.weight for name, module in moe.named_modules() if name.endswith(_ROUTER)}
    counts = {name: torch.zeros(len(weight), dtype=torch.long) for name, weight in routers.items()}

    def count(name: str, x: Tensor) -> None:
        chosen_N = nn.functional.linear(x.flatten(0, -2), routers[name]).argmax(-1)
        counts[name] += torch.bincount(chosen_N.cpu(), minlength=len(routers[name]))

    yield from _read(moe, _ROUTER, count, samples)
    yield torch.stack([*counts.values()])


@torch.inference_mode()
def _read(lm: Any, suffix: str, take: Any, samples: Sequence[EvalSample]) -> Iterator[Progress]:
    done, total = 0, sum(sample.num_tokens for sample in samples)
    with inputs_of(lm, suffix, take):
        for ids_NT, _ in (batch for sample in samples for batch in sample.batches(_BATCH)):
            lm.base_model(input_ids=torch.from_numpy(ids_NT).to(lm.device), use_cache=False)
            done += ids_NT.size
            yield Progress(done, total, "tokens")


@contextmanager
def inputs_of(lm: Any, suffix: str, take: Any) -> Iterator[None]:
    """While it is open, `take(name, x)` sees what goes into each module whose name ends so, in order of layers."""
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: take(name, inputs[0]))
        for name, module in lm.named_modules()
        if name.endswith(suffix)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
