"""DEMix's tables 1 and 2: the words of each domain, and what the trained models are and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean
from typing import Any

import numpy as np

from engine.methods.registry import get_method
from engine.statistics.perplexity import perplexity_of
from workbench_studies.core.averages import Row
from workbench_studies.demix.names import PRINTED, WORDS, ReplicateDemix

SplitWords = Mapping[str, int]  # words between white space, by split
_NAMES = {**WORDS, "demix": "DEMix"}


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

    def mean(self, name: str) -> float | None:
        """A mean over its updates; `flops_per_second` also for each device (`… a device`). None if it is not known."""
        name, _, is_of_device = name.partition(" a ")
        value, number = self.throughput.get(name), self.num_devices if is_of_device else 1
        return value / number if value is not None and number else None


def word_rows(subject: ReplicateDemix, words: Mapping[str, SplitWords]) -> list[Row]:
    """Table 1: each domain's words, with the sums of ours and the paper's; domains that are not imported are empty."""
    rows: list[Row] = []
    for role, domains in (("training", subject.domains), ("novel", subject.novel)):
        known = [words.get(domain) for domain in domains]
        cells = [(one["train"], one["dev"] + one["test"]) if one else (None, None) for one in known]
        printed = ("paper, all", PRINTED["table_1"][role])
        sums = [("all", tuple(map(sum, zip(*cells, strict=True))))] if all(known) else []
        for name, (train, held_out) in (*zip(domains, cells, strict=True), *sums, printed):
            rows.append({"domain": name, "role": role, "train": train, "held out": held_out})
    return rows


def model_rows(models: Iterable[TrainedModel]) -> list[Row]:
    """Table 2: one row for each method, with the mean of its speeds over seeds."""
    by_method: dict[str, list[TrainedModel]] = {}
    for model in models:
        by_method.setdefault(model.method, []).append(model)
    return [_model_row(each[0], each) for each in by_method.values()]


def _model_row(first: TrainedModel, models: Sequence[TrainedModel]) -> Row:
    devices = sorted({one.num_devices for one in models if one.num_devices is not None})
    known = {name: [one for model in models if (one := model.mean(name)) is not None] for name in _MEANS.values()}
    return {
        "model": _NAMES[first.method],
        "experts": len(first.expert_parameters),
        "parameters": first.num_parameters,
        "of them used at a token": first.num_parameters - sum(first.expert_parameters[1:]),
        "devices": " or ".join(map(str, devices)) or None,  # `1 or 2` where seeds differ
        **{
            column: fmean(known[name]) / (1e9 if "flops" in name else 1) if known[name] else None
            for column, name in _MEANS.items()
        },
        "seeds": len(models),
    }


_MEANS = {
    "GFLOPs an update": "flops_per_update",
    "GFLOP/s": "flops_per_second",
    "GFLOP/s a device": "flops_per_second a device",
    "tokens/s": "tokens_per_second",
}


Points = Sequence[tuple[int, float]]  # step, nats per token


@dataclass(frozen=True)
class Curve:
    """The held-out losses of one training by domain, and how many tokens one of its steps takes."""

    system: str
    seed: int
    losses: Mapping[str, Points]
    tokens_per_step: int
    target: str = ""  # the novel domain of an adaptation

    def mean(self, domains: Sequence[str]) -> dict[int, float]:
        """The perplexity by tokens, averaged over these domains, where all of them were measured."""
        return _mean_of(
            [
                {step * self.tokens_per_step: perplexity_of(loss) for step, loss in self.losses.get(domain, ())}
                for domain in domains
            ]
        )


def mean_curve(curves: Sequence[Curve], domains: Sequence[str]) -> dict[int, float]:
    """The mean of several seeds' curves by tokens, where all of them have a point."""
    return _mean_of([curve.mean(domains) for curve in curves])


def _mean_of(lines: Sequence[Mapping[int, float]]) -> dict[int, float]:
    shared = sorted(set(lines[0]).intersection(*lines[1:])) if lines else []
    return {tokens: float(np.mean([line[tokens] for line in lines])) for tokens in shared}


def crossing(lower: Mapping[int, float], higher: Mapping[int, float]) -> Row | None:
    """From which token count on `lower` stays below `higher` (None: not yet), and how both end.

    None where they share no point.
    """
    shared = sorted(set(lower) & set(higher))
    if not shared:
        return None
    below = list(takewhile(lambda tokens: lower[tokens] < higher[tokens], reversed(shared)))
    last = shared[-1]
    return {
        "tokens": below[-1] if below else None,
        "last_tokens": last,
        "lower": lower[last],
        "higher": higher[last],
    }
