"""A kind of job from another package: counts the words of a domain."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.kinds.kind import Kind, ResultLink, named, no_path, nothing
from workbench.specs.base import Name, Spec


class CountWords(Spec):
    """Count the words of a domain."""

    kind: Literal["count-words"] = "count-words"
    domain: Name = Field(description="Domain whose words are counted.")
    split: Literal["train", "dev", "test"] = Field("train", description="Part of the domain.")


KIND = Kind(
    spec=CountWords,
    title="Count words",
    creates=nothing,
    requires=lambda spec: named("domain", spec.domain),
    reads=no_path,
    runner="toy_kind.runner:run",
    sentence=lambda result: f"{result['domain']} has {result['num_words']:,} words.",
    link=ResultLink("reports", "See the report", lambda result: {"reports.chosen": result["report"]}),
    form="toy_kind.form:FORM",
)
