"""The fields of the requests that `ui.client` sends, for type checkers; those without Required may be left out.

A test compares them with the bodies that the API accepts.
"""

from typing import Required, TypedDict

from workbench.answers.base import JsonObject
from workbench.answers.mixture_request import RequestChanges


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
