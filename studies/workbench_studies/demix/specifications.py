"""DEMix's tables 1 and 2: the words of each domain, and what the trained models are and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.methods.registry import get_method
from workbench_studies.core.findings import Row
from workbench_studies.demix import paper
from workbench_studies.demix.orders import WORDS
from workbench_studies.demix.scored import DemixSubject

SplitWords = Mapping[str, int]  # words between white space, by split
_PRINTED = {"training": ("73.8B", "80M"), "novel": ("3.9B", "44M")}  # sums of table 1's columns, as rounded there

_NAMES = {str(variant): name for variant, name in WORDS.items()} | {"demix": "DEMix"}
_COLUMNS = ("train", "held out")


@dataclass(frozen=True)
class TrainedModel:
    """One training: its method and seed, the sizes of what it made, and its measured means (empty: not trained yet)."""

    method: str
    seed: int
    seed_parameters: int
    expert_parameters: tuple[int, ...]
    throughput: Mapping[str, Any]
    num_devices: int | None = None  # None: trained before this was recorded

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the base and all experts, whose networks replace the seed model's."""
        own = sum(self.expert_parameters)
        replaced = self.expert_parameters[0] if get_method(self.method).is_full_model else 0
        return self.seed_parameters - replaced + own


def word_rows(subject: DemixSubject, words: Mapping[str, SplitWords]) -> list[Row]:
    """Table 1: each domain's words, with the sums of ours and the paper's; domains that are not imported are empty."""
    rows: list[Row] = []
    for role, domains in (("training", subject.domains), ("novel", subject.novel)):
        counted = [_words_of(words.get(domain)) for domain in domains]
        rows += [{"domain": domain, "role": role, **one} for domain, one in zip(domains, counted, strict=True)]
        if all(one["train"] is not None for one in counted):
            sums = {column: sum(one[column] for one in counted) for column in _COLUMNS}
            rows.append({"domain": "all", "role": role, **sums})
        rows.append({"domain": "paper, all", "role": role, **dict(zip(_COLUMNS, _PRINTED[role], strict=True))})
    return rows


def _words_of(splits: SplitWords | None) -> Row:
    if splits is None:
        return {"train": None, "held out": None}
    return {"train": splits["train"], "held out": splits["dev"] + splits["test"]}


def model_rows(models: Iterable[TrainedModel]) -> list[Row]:
    """Table 2: one row for each method, with the mean of its speeds over seeds."""
    by_method: dict[str, list[TrainedModel]] = {}
    for model in models:
        by_method.setdefault(model.method, []).append(model)
    return [_model_row(method, each) for method, each in by_method.items()]


def _model_row(method: str, models: Sequence[TrainedModel]) -> Row:
    first = models[0]
    return {
        "model": _NAMES[method],
        "experts": len(first.expert_parameters),
        "parameters": first.num_parameters,
        "of them used at a token": first.num_parameters - sum(first.expert_parameters[1:]),
        "devices": _devices(models),
        "GFLOPs an update": _mean(models, "flops_per_update", 1e9),
        "GFLOP/s": _mean(models, "flops_per_second", 1e9),
        "GFLOP/s a device": _speed_of_device(models),
        "tokens/s": _mean(models, "tokens_per_second", 1),
        "seeds": len(models),
    }


def paper_models() -> list[Row]:
    """The rows of the paper's table 2, with the columns of ours; an empty cell is not printed there."""
    return [
        {
            "model": f"{_NAMES[method]}, paper, {size}",
            "experts": experts,
            "parameters": total,
            "of them used at a token": size,
            "devices": num_gpus,
            "GFLOPs an update": 1e3 * per_update,
            "GFLOP/s": None,
            "GFLOP/s a device": 1e3 * per_gpu,
            "tokens/s": None,
            "seeds": None,
        }
        for method, experts, totals, speeds in (
            ("dense", 0, paper.SIZES, paper.DENSE_SPEEDS),
            ("demix", 8, paper.DEMIX_TOTALS, paper.DEMIX_SPEEDS),
        )
        for size, total, num_gpus, per_update, per_gpu in zip(
            paper.SIZES, totals, paper.GPUS, paper.UPDATES, speeds, strict=True
        )
    ]


def _devices(models: Sequence[TrainedModel]) -> str | None:
    """`1`, or `1 or 2` where seeds differ; None where none recorded them."""
    numbers = sorted({one.num_devices for one in models if one.num_devices is not None})
    return " or ".join(map(str, numbers)) or None


def _speed_of_device(models: Sequence[TrainedModel]) -> float | None:
    name = "flops_per_second"
    speeds = [
        one.throughput[name] / 1e9 / one.num_devices for one in models if one.num_devices and name in one.throughput
    ]
    return sum(speeds) / len(speeds) if speeds else None


def _mean(models: Sequence[TrainedModel], name: str, unit: float) -> float | None:
    values = [model.throughput[name] / unit for model in models if name in model.throughput]
    return sum(values) / len(values) if values else None
