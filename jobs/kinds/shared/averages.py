"""The average of several experts' parameters: which may be averaged, and the sum."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.analysis.averaging import average
from engine.errors import ModelError
from engine.events import Event, Progress
from engine.files import ArtifactRef
from engine.methods.registry import get_method, method_of
from engine.text.chat.own_template import template_folder
from engine.text.chat.template import load_chat_template
from jobs.attempt.work import Work
from workbench.registry.experts import with_another_tokenizer
from workbench.schema.tables import Expert


@dataclass(frozen=True)
class WeighedExpert:
    """An expert of several: its files, its base's files and its weight."""

    id: str
    name: str
    method: str
    base: ArtifactRef
    kept: ArtifactRef
    weight: float

    def load(self) -> Any:
        """Loads the expert with its base as a plain decoder."""
        return get_method(self.method).load_full_model(self.base, self.kept)


def weighed_expert(work: Work, row: Expert, weight: float) -> WeighedExpert:
    """The files of an expert, and its weight."""
    return WeighedExpert(
        row.id, row.name, row.method, work.storage.kept(row.base), work.storage.kept(row.artifact), weight
    )


def average_of(parts: Sequence[WeighedExpert]) -> Generator[Event, None, Any]:
    """Passes progress on and returns the average, a plain decoder."""
    return (yield from merged(average, parts))


def merged(merge: Callable[..., Any], parts: Sequence[WeighedExpert]) -> Generator[Event, None, Any]:
    """Passes the progress of `merge(loaders, weights)` on and returns its model."""
    loaders: Mapping[str, Callable[[], Any]] = {part.name: part.load for part in parts}
    for event in merge(loaders, {part.name: part.weight for part in parts}):
        if isinstance(event, Progress):
            yield event
    return event


def require_one_template(parts: Sequence[WeighedExpert]) -> None:
    """Raises ModelError where experts write conversations in different ways: one model has one template."""
    first, *others = parts
    template = _template_of(first)
    for one in others:
        if _template_of(one) != template:
            raise ModelError(
                f"“{first.name}” and “{one.name}” have different chat templates, so no prompt suits one model of both.",
                "Leave one of them out.",
            )


def _template_of(part: WeighedExpert) -> str:
    template = load_chat_template(template_folder(part.base.folder, part.kept.folder))
    return template.sha256 if template else ""


def require_averageable(rows: Sequence[Expert]) -> None:
    """Raises ModelError unless these experts are full models of one seed model with one tokenizer."""
    _require_full_models(rows)
    require_one_tokenizer(rows)
    _require_one_seed(rows)


def _require_full_models(rows: Sequence[Expert]) -> None:
    for row in rows:
        if not (method := method_of(row.method)).is_full_model:
            raise ModelError(
                f"“{row.name}” cannot be averaged: an expert of {method.title} is not a full model with its base.",
                "Compose experts with parts instead: workbench mode compose."
                if method.has_parts
                else "Average experts of another method, or mix these.",
            )


def require_one_tokenizer(rows: Sequence[Expert]) -> None:
    """Raises ModelError unless all experts read the same tokens."""
    if others := with_another_tokenizer(rows[0], rows[1:]):
        raise ModelError(
            f"“{others[0].name}” has another tokenizer than “{rows[0].name}”, so they cannot become one model.",
            "Choose experts that started from the same seed.",
        )


def _require_one_seed(rows: Sequence[Expert]) -> None:
    """Compares seeds by content, since a seed may be imported twice. Models of different seeds have no useful mean."""
    for row in rows:
        if row.seed is None:
            raise ModelError(
                f"“{row.name}” cannot be averaged: its seed model is not recorded.",
                "Leave it out, or mix the experts instead.",
            )
        first = rows[0].seed or row.seed
        if row.seed.artifact.sha256 != first.artifact.sha256:
            raise ModelError(
                f"Averaging needs experts of one seed model: “{row.name}” started from “{row.seed.name}”, "
                f"“{rows[0].name}” from “{first.name}”.",
                "Average experts that started from the same seed, or mix them instead.",
            )
