"""What a training would be by default of some text: its spec, and the answers with which its form opens."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ui.present.forms.questions import Offers, assemble
from workbench.kinds.parse_spec import parse_spec
from workbench.specs.base import Spec

Answers = Mapping[tuple[str, ...], Any]


def takes_text(spec: type[Spec]) -> bool:
    """Whether jobs of this spec train on domains."""
    return "training" in spec.model_fields and bool({"domain", "domains"} & set(spec.model_fields))


def proposed_answers(
    spec: type[Spec], domains: Sequence[str], offers: Offers, taken: Collection[str], own: Answers
) -> dict[tuple[str, ...], Any]:
    """The answers of a form: the text, a free name, the first of what else is required, and its `own`."""
    answers: dict[tuple[str, ...], Any] = {}
    for name, field in spec.model_fields.items():
        if name == "domains":
            answers[name,] = list(domains)
        elif name == "domain":
            answers[name,] = domains[0]
        elif name == "name":
            answers[name,] = free_name(domains[0], taken)
        elif field.is_required() and offers.get(name):
            answers[name,] = offers[name][0]
    return {**answers, **own}


def proposed_spec(spec: type[Spec], answers: Answers) -> Any:
    """The spec of these answers. Raises BadSpecError where they are not enough."""
    return parse_spec({"kind": spec.model_fields["kind"].default, **assemble(answers)})


def free_name(domain: str, taken: Collection[str]) -> str:
    """The domain's name, with a number where it is taken."""
    name = re.sub(r"[,/]+", " ", domain).strip()[:60] or "new"
    return next(one for one in (name, *(f"{name}-{number}" for number in range(2, 10_000))) if one not in taken)
