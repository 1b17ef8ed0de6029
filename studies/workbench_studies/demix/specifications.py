"""DEMix's tables 1 and 2: the words of each domain, and what the trained models are and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.methods.registry import get_method
from workbench_studies.core.findings import Row
from workbench_studies.demix.names import PRINTED, WORDS
from workbench_studies.demix.spec import ReplicateDemix

SplitWords = Mapping[str, int]  # words between white space, by split
_NAMES = {**WORDS, "demix": "DEMix"}
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

    def measured(self, name: str, unit: float = 1) -> float | None:
        """A mean over its updates, in this unit; None if it was not measured."""
        return self.throughput[name] / unit if name in self.throughput else None

    @property
    def speed_of_device(self) -> float | None:
        """GFLOP/s of each device."""
        speed = self.measured("flops_per_second", 1e9)
        return speed / self.num_devices if speed is not None and self.num_devices else None


def word_rows(subject: ReplicateDemix, words: Mapping[str, SplitWords]) -> list[Row]:
    """Table 1: each domain's words, with the sums of ours and the paper's; domains that are not imported are empty."""
    rows: list[Row] = []
    for role, domains in (("training", subject.domains), ("novel", subject.novel)):
        counted = [_count_words(words.get(domain)) for domain in domains]
        rows += [{"domain": domain, "role": role, **one} for domain, one in zip(domains, counted, strict=True)]
        if all(one["train"] is not None for one in counted):
            sums = {column: sum(one[column] for one in counted) for column in _COLUMNS}
            rows.append({"domain": "all", "role": role, **sums})
        rows.append(
            {"domain": "paper, all", "role": role, **dict(zip(_COLUMNS, PRINTED["table_1"][role], strict=True))}
        )
    return rows


def _count_words(splits: SplitWords | None) -> Row:
    return {
        "train": splits["train"] if splits else None,
        "held out": splits["dev"] + splits["test"] if splits else None,
    }


def model_rows(models: Iterable[TrainedModel]) -> list[Row]:
    """Table 2: one row for each method, with the mean of its speeds over seeds."""
    by_method: dict[str, list[TrainedModel]] = {}
    for model in models:
        by_method.setdefault(model.method, []).append(model)
    return [_model_row(method, each) for method, each in by_method.items()]


def _model_row(method: str, models: Sequence[TrainedModel]) -> Row:
    first = models[0]
    devices = sorted({one.num_devices for one in models if one.num_devices is not None})
    return {
        "model": _NAMES[method],
        "experts": len(first.expert_parameters),
        "parameters": first.num_parameters,
        "of them used at a token": first.num_parameters - sum(first.expert_parameters[1:]),
        "devices": " or ".join(map(str, devices)) or None,  # `1 or 2` where seeds differ
        "GFLOPs an update": _mean([one.measured("flops_per_update", 1e9) for one in models]),
        "GFLOP/s": _mean([one.measured("flops_per_second", 1e9) for one in models]),
        "GFLOP/s a device": _mean([one.speed_of_device for one in models]),
        "tokens/s": _mean([one.measured("tokens_per_second") for one in models]),
        "seeds": len(models),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


def paper_models() -> list[Row]:
    """The rows of the paper's table 2, with the columns of ours; an empty cell is not printed there."""
    printed = PRINTED["table_2"]
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
            ("dense", 0, PRINTED["sizes"], printed["dense_speeds"]),
            ("demix", 8, printed["demix_totals"], printed["demix_speeds"]),
        )
        for size, total, num_gpus, per_update, per_gpu in zip(
            PRINTED["sizes"], totals, printed["gpus"], printed["updates"], speeds, strict=True
        )
    ]
