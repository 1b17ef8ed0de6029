"""Score experts on held-out text."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine.config import MOST_TOKENS
from engine.text.split_names import HeldOutSplit
from workbench.formatting.number_format import pluralize
from workbench.kinds.kind import Kind, Result, ResultLink, named, no_path, nothing
from workbench.specs.base import GPU_SHARE, ExpertName, Name
from workbench.specs.base import Spec as Spec


class Evaluate(Spec):
    """Score experts on held-out text and store every token's log-likelihood."""

    kind: Literal["evaluate"] = "evaluate"
    mixture: Name = Field(description="Mixture whose experts are scored.")
    experts: list[ExpertName] = Field(default_factory=list, description="Further experts on its base to score.")
    domains: list[Name] = Field(default_factory=list, description="Domains to score on; empty takes all.")
    split: HeldOutSplit = Field("test", description="Held-out split.")
    block_size: int | None = Field(
        None,
        ge=8,
        le=MOST_TOKENS,
        description="Max tokens of context; empty: as in its stored scores, or as in its training.",
    )
    max_tokens: int | None = Field(
        None, ge=100, description="Max tokens per domain; empty: as in its stored scores, or 20,000."
    )
    again: bool = Field(
        False, description="Compute existing scores again, such as those without the number of correct tokens."
    )
    calibrate: bool = Field(
        False,
        description="With dev scores: fit the evidence of the mixture's posterior on them, and save it if it gains.",
    )
    gpu_share: float = Field(1.0, gt=0, le=1, title="Share of a GPU", description=GPU_SHARE)

    @model_validator(mode="after")
    def _calibrates_on_dev(self) -> Evaluate:
        if self.calibrate and self.split != "dev":
            raise ValueError("a mixture is calibrated on dev text: choose the split dev")
        return self


def _sentence(result: Result) -> str:
    """The stored sentence; of results from before there was one, how many scores were made."""
    made = f"{pluralize(result['scored'], 'pair')} of expert and domain scored."
    return str(result.get("sentence") or f"{made} {result.get('calibration', '')}".strip())


KIND = Kind(
    spec=Evaluate,
    title="Evaluate",
    creates=nothing,
    requires=lambda spec: [
        ("mixture", spec.mixture),
        *named("expert", *spec.experts),
        *named("domain", *spec.domains),
    ],
    reads=no_path,
    empty_means_all_domains=True,
    uses_gpu=True,
    command="evaluate run MIXTURE",
    sentence=_sentence,
    link=ResultLink(
        "specialization", "See the specialization", lambda result: {"specialization.mixture": result["mixture"]}
    ),
)
