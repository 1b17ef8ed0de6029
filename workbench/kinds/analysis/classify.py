"""Classify texts few-shot (C-BTM §5 and A.7)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.config import Normalise, TaskRouting
from engine.mixing.papers import PAPER_NEWEST_WEIGHT
from workbench.kinds.kind import Kind, ResultLink, named, nothing
from workbench.specs.base import ExpertName, LocalPath, Name, Spec


class Classify(Spec):
    """Classify texts from a few demonstrations with each routing method (C-BTM §5 and A.7)."""

    kind: Literal["classify"] = "classify"
    mixture: Name = Field(description="Mixture whose experts answer.")
    path: LocalPath = Field(
        min_length=1,
        title="Folder of the tasks",
        description="Folder with a subfolder per task: train.jsonl, test.jsonl and optionally validation.jsonl, with "
        "the fields text and label; task.json may hold a template and words for the labels.",
    )
    experts: list[ExpertName] = Field(
        default_factory=list,
        description="Further experts with the same tokenizer to compare with, such as the dense baseline.",
    )
    routings: list[TaskRouting] = Field(
        default_factory=list,
        description="cluster, updating, fixed, fixed-validation; empty takes all that the mixture supports.",
    )
    top_k: list[Annotated[int, Field(ge=1)]] = Field(
        default=[1, 4],
        title="Experts at each token (top k)",
        description="Numbers of experts to keep; all experts together are always measured too.",
    )
    num_shots: int = Field(
        8,
        ge=1,
        le=100,
        title="Demonstrations before each example",
        description="Demonstrations before each example (paper: 8).",
    )
    num_validation: int = Field(
        8,
        ge=1,
        title="Validation examples behind a fixed routing",
        description="Validation examples for a fixed routing (paper: 8).",
    )
    num_seeds: int = Field(5, ge=1, le=100, description="Seeds; each draws its own demonstrations (paper: 5).")
    max_examples: int = Field(
        1000, ge=1, title="Test examples of each task at most", description="Max test examples per task."
    )
    normalise: Normalise = Field(
        "none",
        description="Compare log-likelihoods of label words unnormalised (none, paper) or per token (tokens).",
    )
    newest_weight: float = Field(
        PAPER_NEWEST_WEIGHT,
        gt=0,
        le=1,
        description="Updating: share of the newest example in the weights (not given in the paper).",
    )


KIND = Kind(
    spec=Classify,
    title="Classify few-shot by",
    creates=nothing,
    requires=lambda spec: [("mixture", spec.mixture), *named("expert", *spec.experts)],
    reads=lambda spec: spec.path,
    uses_gpu=True,
    command="evaluate classify MIXTURE PATH",
    link=ResultLink("reports", "See the report", lambda result: {"reports.chosen": result["report"]}),
)
