"""Answers of the API server about itself and its models, and completions in OpenAI's shape."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.config import ServePrecision
from engine.events import GateWeights
from workbench.answers.base import Answer
from workbench.answers.posteriors import Manifest


class LoadedBase(Answer):
    """A base in memory, with the ids of the experts loaded on it."""

    base_sha256: str
    precision: ServePrecision = Field("stored", description="What its weights are held in.")
    experts: list[str]
    separate_because: str | None = Field(
        None, description="Why its streams share no passes and draft nothing; null where they do, or none began yet."
    )


class ErrorObject(Answer):
    """What is wrong with a request, and what to do, in OpenAI's shape."""

    message: str
    type: str
    param: str | None = Field(description="The field that is wrong, if it is one.")
    code: str = Field(description="A short stable name of the cause.")


class ErrorAnswer(Answer):
    """A refusal or a failure."""

    error: ErrorObject


class Ready(Answer):
    """That the server takes requests: it reads its registry, and does not stop."""

    status: Literal["ready"] = "ready"


class Health(Answer):
    """That the server runs, for which registry, on which device, and what it holds in memory."""

    status: str
    version: str
    registry: str
    device: str | None = Field(description="Where it computes; null before the first model is loaded.")
    requested_device: str
    loaded: list[LoadedBase]
    busy: int
    waiting: int


class Model(Answer):
    """A mixture or an expert that can be used as a model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "workbench"
    kind: Literal["mixture", "expert"]
    experts: list[str] = Field(description="Experts that take part unless a request says otherwise.")
    members: list[str] = Field(description="Experts that a request can switch on.")
    parts: dict[str, list[str]] = Field(description="Parts of experts, which a request can switch on and off.")
    colour_numbers: dict[str, int] = Field({}, description="Colour of each member, the same in every chart.")
    aliases: list[str] = Field([], description="Other names that mean it now, such as law@production.")
    marks: dict[str, str] = Field({}, description="Characters that stand for each member, next to its colour.")


class ModelList(Answer):
    """Every mixture and every enabled expert."""

    object: Literal["list"] = "list"
    data: list[Model]


class Logprobs(Answer):
    """Log-probabilities of tokens (nats), and of the most probable ones in their place."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Answer):
    """The continuation of one prompt, with the expert weights of each token."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str | None
    expert_weights: list[dict[str, float]] | None = Field(description="By token; null if switched off.")
    gate_weights: list[dict[str, GateWeights]] | None = Field(description="By token; null if switched off.")
    token_ids: list[int] | None = Field(None, description="With return_token_ids.")
    prompt_token_ids: list[int] | None = Field(None, description="With return_token_ids.")


class ChunkChoice(Answer):
    """Some text of one choice; a last piece without a token has no weights."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str | None
    expert_weights: dict[str, float] | None = None
    gate_weights: dict[str, GateWeights] | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class Usage(Answer):
    """The counts of tokens of all prompts together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionHead(Answer):
    """The fields that a completion and all of its chunks have in common."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str


class Completion(CompletionHead):
    """A completion, with a choice for each prompt."""

    choices: list[CompletionChoice]
    usage: Usage
    manifest: Manifest


class CompletionChunk(CompletionHead):
    """A piece of a streamed completion; the last ones carry the manifest and, if requested, the counts."""

    choices: list[ChunkChoice]
    usage: Usage | None = None
    manifest: Manifest | None = None


class TopLogprob(Answer):
    """A probable token in the place of one."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(Answer):
    """A token of an answer with its log-probability (nats); `top_logprobs` are the most probable ones in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    """The tokens of an answer."""

    content: list[ChatLogprob]


class ChatAnswer(Answer):
    """The model's message in a conversation."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatDelta(Answer):
    """The next piece of what the model says; the first names its role."""

    role: Literal["assistant"] | None = None
    content: str


class ChatChoice(Answer):
    """The answer, with the expert weights of each token."""

    index: int = 0
    message: ChatAnswer
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    expert_weights: list[dict[str, float]] | None = Field(description="By token; null if switched off.")
    gate_weights: list[dict[str, GateWeights]] | None = Field(description="By token; null if switched off.")
    token_ids: list[int] | None = Field(None, description="With return_token_ids.")
    prompt_token_ids: list[int] | None = Field(None, description="With return_token_ids.")


class ChatChunkChoice(Answer):
    """A piece of the answer; a last piece without a token has no weights."""

    index: int = 0
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    expert_weights: dict[str, float] | None = None
    gate_weights: dict[str, GateWeights] | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class ChatCompletion(Answer):
    """The answer to a conversation."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    manifest: Manifest


class ChatCompletionChunk(Answer):
    """A piece of a streamed answer; the last ones carry the manifest and, if requested, the counts."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    manifest: Manifest | None = None
