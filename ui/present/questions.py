"""The questions a form asks, read from the fields of a spec: each field's own sentence is its help. Pure."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

Kind = Literal["text", "whole", "real", "switch", "choice", "name", "names", "wholes"]
Offers = Mapping[str, Sequence[str]]  # field -> names of the registry that it may take

# Fields whose name alone does not say what is asked.
_LABELS = {
    "join": "Put the new expert into the mixture when it is done",
    "skip_bad": "Leave broken records out and list them",
    "anonymize": "Anonymise: dummy tokens for what identifies users",
    "kind": "Weights come from",
    "num_clusters": "Number of clusters",
    "evidence": "Evidence: what the posterior sees",
    "top_k": "Experts at each token (top k)",
    "distance_power": "Power of the distance",
    "freeze_after": "Tokens after which weights stay",
    "role": "Role: to train on, or novel (kept aside to test on)",
    "max_bytes": "Stop after (bytes of text)",
    "parent": "Parent to copy",
    "path": "Folder of the tasks",
    "num_shots": "Demonstrations before each example",
    "num_validation": "Validation examples behind a fixed routing",
    "max_examples": "Test examples of each task at most",
    "whole": "Train the whole model instead (dense-DAPT)",
    "watch": "Domains to watch while it is trained",
    "num_parts": "Experts side by side",
    "num_blocks": "Blocks of the backbone",
    "expert_layers": "Layers of the expert in each block",
    "init": "Layers start as",
    "start": "Gates start",
    "retain": "Domains that must not be forgotten",
    "without": "Parts to leave out",
    "frozen": "Frozen: only the gates learn",
    "patience": "Patience: stop after so many evaluations without a better one",
}


@dataclass(frozen=True)
class Question:
    """One field of a spec as a person meets it; `path` is its place in the spec's JSON.

    `titles` are what choices are called that are not called what they are.
    """

    path: tuple[str, ...]
    kind: Kind
    help: str
    default: Any
    choices: tuple[str, ...] = ()
    optional: bool = False
    least: float | None = None
    most: float | None = None
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """`num_steps` as a person says it: `Steps`."""
        if self.path[-1] in _LABELS:
            return _LABELS[self.path[-1]]
        words = self.path[-1].removeprefix("num_").replace("_", " ").strip()
        return words[:1].upper() + words[1:]

    @property
    def group(self) -> str:
        """The part of the spec that holds the field: `training`, or empty for the spec itself."""
        return self.path[0] if len(self.path) > 1 else ""


MOST_IN_BROWSER = 2**53 - 1  # JavaScript counts no further
NOT_ASKED = ("kind", "budget")  # what follows from the other answers


def questions_of(spec: type[BaseModel], offers: Offers, skip: Iterable[str] = NOT_ASKED) -> list[Question]:
    """Every field of a spec as a question, those of its configs included."""
    found: list[Question] = []
    for name, field in spec.model_fields.items():
        if name in skip:
            continue
        default = field.get_default(call_default_factory=True)
        default = None if default is PydanticUndefined else default
        if dataclasses.is_dataclass(default):
            found += questions_of_config(name, default)
        else:
            bounds = {k: v for one in field.metadata for k, v in _bounds(one)}
            found.append(_question((name,), field.annotation, field.description or "", default, bounds, offers))
    return found


def questions_of_config(group: str, config: Any) -> list[Question]:
    """Every field of one of the engine's configs as a question of this group."""
    hints = get_type_hints(type(config))
    return [
        _question((group, f.name), hints[f.name], f.metadata["description"], getattr(config, f.name), f.metadata, {})
        for f in dataclasses.fields(config)
    ]


def _bounds(mark: object) -> Iterable[tuple[str, float]]:
    for name in ("ge", "gt", "le", "lt"):
        if (value := getattr(mark, name, None)) is not None:
            yield name, value


def _question(
    path: tuple[str, ...], annotation: Any, help: str, default: Any, bounds: Mapping[str, Any], offers: Offers
) -> Question:
    annotation, optional = _without_none(annotation)
    kind, choices = _kind(path[-1], annotation, offers)
    step = 1 if kind == "whole" else 0
    least = bounds["gt"] + step if "gt" in bounds else bounds.get("ge")
    most = bounds["lt"] - step if "lt" in bounds else bounds.get("le")
    if kind == "whole" and most is not None:
        most = min(most, MOST_IN_BROWSER)
    return Question(path, kind, help, default, choices, optional, least, most)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        kept = [one for one in get_args(annotation) if one is not type(None)]
        return kept[0], len(kept) < len(get_args(annotation))
    return annotation, False


def _kind(name: str, annotation: Any, offers: Offers) -> tuple[Kind, tuple[str, ...]]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is list:
        return _kind_of_several(name, get_args(annotation)[0], offers)
    if get_origin(annotation) is Literal:
        return "choice", tuple(get_args(annotation))
    if name in offers:
        return "name", tuple(offers[name])
    kinds: dict[Any, Kind] = {bool: "switch", int: "whole", float: "real"}
    return kinds.get(annotation, "text"), ()


def _kind_of_several(name: str, annotation: Any, offers: Offers) -> tuple[Kind, tuple[str, ...]]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation is int:
        return "wholes", ()
    return "names", get_args(annotation) if get_origin(annotation) is Literal else tuple(offers.get(name, ()))


def limited(questions: Iterable[Question], limits: Mapping[tuple[str, ...], int]) -> list[Question]:
    """The same with these for the most that an answer may be; a greater default gives way."""
    return [
        replace(one, most=limits[one.path], default=min(one.default, limits[one.path])) if one.path in limits else one
        for one in questions
    ]


def assemble(answers: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """The spec's JSON from the answers by path."""
    spec: dict[str, Any] = {}
    for path, value in answers.items():
        place = spec
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
    return spec


def changed(questions: Iterable[Question], answers: Mapping[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    """The answers that are not the field's default: what a command line has to say."""
    return {q.path: answers[q.path] for q in questions if q.path in answers and answers[q.path] != q.default}
