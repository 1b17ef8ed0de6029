"""The fields of the requests that `ui.client` sends, for type checkers; those without Required may be left out.

A test compares them with the bodies that the API accepts.
"""

from typing import Required, TypedDict

from engine.mixing.evidence import AnyEvidence
from engine.text.split_names import HeldOutSplit
from workbench.answers.base import JsonObject
from workbench.mixture_request import RequestChanges


class CompletionFields(TypedDict, total=False):
    """POST /v1/completions, without what says whether it streams."""

    model: Required[str]
    prompt: Required[str]
    experts: list[JsonObject]
    active: list[str]
    parts: dict[str, list[str]]
    gate: str | JsonObject
    prior: str
    top_k_experts: int
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: dict[str, float] | dict[int, float]
    ignore_eos: bool
    speculate: bool
    seed: int | None
    n: int
    stop: str | list[str]
    logprobs: int
    echo: bool
    expert_weights: bool | int
    gate_weights: bool
    return_token_ids: bool


class PosteriorFields(RequestChanges, total=False):
    """POST /v1/workbench/posterior."""

    model: Required[str]
    text: Required[str]


class MixFields(RequestChanges, total=False):
    """POST /v1/workbench/mix."""

    mixture: Required[str]
    split: HeldOutSplit


class RemovalFields(TypedDict, total=False):
    """POST /v1/workbench/removal."""

    mixture: Required[str]
    retrained: dict[str, str]
    evidence: AnyEvidence
    num_blocks: int
    split: HeldOutSplit


class ForgettingFields(TypedDict, total=False):
    """POST /v1/workbench/forgetting."""

    before: Required[str]
    after: Required[str]
    split: HeldOutSplit


class NearestFields(TypedDict, total=False):
    """POST /v1/workbench/nearest."""

    mixture: Required[str]
    domain: Required[str]
    num_blocks: int
    split: HeldOutSplit


class InferenceModesFields(TypedDict, total=False):
    """POST /v1/workbench/modes."""

    mixture: Required[str]
    evidence: AnyEvidence
    newest_weight: float
    num_blocks: int
    split: HeldOutSplit


class CalibrationFields(TypedDict):
    """POST /v1/workbench/calibration."""

    mixture: str


class ClusterGridFields(TypedDict, total=False):
    """POST /v1/workbench/cluster-grid."""

    mixture: Required[str]
    temperatures: list[float]
    split: HeldOutSplit


class PosteriorMapOptions(TypedDict, total=False):
    """What a posterior map can be asked for, beside its mixture."""

    evidence: AnyEvidence
    newest_weight: float
    estimate: str  # updating or mean
    num_blocks: int
    split: HeldOutSplit


class PosteriorMapFields(PosteriorMapOptions):
    """POST /v1/workbench/posteriors."""

    mixture: Required[str]


class ContrastFields(TypedDict, total=False):
    """POST /v1/workbench/contrast."""

    domain: Required[str]
    expert: Required[str]
    rival: Required[str]
    num_passages: int
    max_tokens: int
    split: HeldOutSplit


class PriorFields(TypedDict, total=False):
    """POST /v1/workbench/priors."""

    name: Required[str]
    mixture: Required[str]
    domain: Required[str]
    num_blocks: int
    evidence: AnyEvidence
    split: HeldOutSplit
