"""The requests for a completion and for an answer in a conversation."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from engine.config import MOST_TOKENS, SamplingConfig
from engine.text.chat.conversations import NAME, clean_values
from ui.api.schemas.generation import (
    MAX_CANDIDATES,
    MAX_PROMPTS,
    Generating,
    LongText,
    NeutralFields,
    Prompts,
    only,
    unsupported_value,
)
from ui.present.forms.option_help import SAMPLING_HELP
from workbench.requests.body import FieldError, RequestBody

MAX_MESSAGES = 4096  # of one conversation


class CompletionRequest(Generating):
    """POST /v1/completions."""

    prompt: Prompts = Field(
        description="The text to go on from, or token ids, which are read exactly as they are; or a list of either "
        f"({MAX_PROMPTS} at most), each with choices of its own. Null: the beginning of a document."
    )
    max_tokens: int = Field(16, ge=0, le=MOST_TOKENS, description=SAMPLING_HELP["max_tokens"])  # OpenAI's default
    echo: bool = Field(False, description="Begin the text with the prompt.")
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MAX_CANDIDATES,
        description="N: send the log-probability of every token, and of the N most likely alternatives.",
    )
    best_of: int | None = Field(None, description="Only 1, or as many as n.", json_schema_extra={"enum": [None, 1]})
    suffix: str | None = only("empty", "")
    add_special_tokens: bool | None = only("true; token ids get nothing before them anyway", True)
    response_format: dict[str, Any] | None = only('{"type": "text"}', {"type": "text"})

    @model_validator(mode="after")
    def _consistent(self) -> CompletionRequest:
        if self.best_of not in (None, 1, self.n):
            raise unsupported_value("best_of", self.n, self.best_of)
        if self.max_tokens == 0 and not self.echo:
            raise FieldError("max_tokens", "it must be at least 1 unless echo is true")
        if self.num_choices > MAX_PROMPTS:
            raise FieldError("n", f"prompts times n must be at most {MAX_PROMPTS}, but are {self.num_choices}")
        return self

    @property
    def num_choices(self) -> int:
        return len(self.prompt) * self.n

    def sampling(self) -> SamplingConfig:
        """The sampling settings."""
        return self._sampling(max(1, self.max_tokens), self.logprobs or 0)


class TextPart(RequestBody):
    """A part of a message; texts are the only kind."""

    type: Literal["text"]
    text: LongText

    hints = frozenset({"cache_control", "id"})


def _require_text(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "text":
        raise ValueError(f"a part is of type “{kind[:40]}”, but these models read only text; leave it out")
    return value


Part = Annotated[TextPart, BeforeValidator(_require_text, json_schema_input_type=TextPart)]
Content = Annotated[
    Annotated[LongText, Tag("text")] | Annotated[list[Part], Field(max_length=MAX_MESSAGES), Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "text"),
]


class ChatMessage(NeutralFields):
    """A message of a conversation; what its template does not read has no effect."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = Field(None, description="A text, or parts that are joined.")
    hints = frozenset({"cache_control", "id", "timestamp", "created_at", "createdAt", "provider_options"})

    name: str | None = None
    reasoning_content: LongText | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    refusal: str | None = Field(None, description="Accepted and ignored.")
    annotations: list[Any] | None = Field(None, description="Accepted and ignored.")
    audio: dict[str, Any] | None = only("null")
    function_call: dict[str, Any] | None = only("null")

    @model_validator(mode="after")
    def _has_text(self) -> ChatMessage:
        if self.content is None and not self.tool_calls:
            raise FieldError("content", f"a message of the role “{self.role}” needs a text")
        return self

    def plain(self) -> dict[str, Any]:
        """The message for a chat template. Most of them know no developer, and leave out what he says."""
        fields = self.model_dump(exclude={"refusal", "annotations"}, exclude_none=True)
        fields["role"] = "system" if self.role == "developer" else self.role
        if isinstance(self.content, list):
            fields["content"] = "".join(part.text for part in self.content)
        return fields


TemplateValues = Annotated[
    dict[str, Any],
    Field(max_length=64, json_schema_extra={"propertyNames": {"pattern": NAME}}),
    AfterValidator(clean_values),
]


class ChatRequest(Generating):
    """POST /v1/chat/completions. The template is always the model's own."""

    messages: list[ChatMessage] = Field(
        min_length=1, max_length=MAX_MESSAGES, description="The conversation so far; the model's turn is next."
    )
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS, description="The older name of the next field.")
    max_completion_tokens: int | None = Field(
        None, ge=1, le=MOST_TOKENS, description="Tokens of the answer; left out: until its turn or the context ends."
    )
    logprobs: bool = Field(False, description="Send the log-probability of every token.")
    top_logprobs: int | None = Field(
        None, ge=0, le=MAX_CANDIDATES, description="With logprobs: this many most probable tokens in the place of each."
    )
    evidence_from: Literal["user", "start"] = Field(
        "user",
        description="Where evidence for the gate begins: at the first user's words, or at the start, with the text "
        "that the template writes before every question.",
    )
    tools: list[dict[str, Any]] | None = only("empty", [])
    tool_choice: str | dict[str, Any] | None = only("none or auto", "auto", "none")
    functions: list[dict[str, Any]] | None = only("empty", [])
    function_call: str | dict[str, Any] | None = only("none or auto", "auto", "none")
    parallel_tool_calls: bool | None = Field(None, description="Accepted and ignored: tools are not supported.")
    response_format: dict[str, Any] | None = only('{"type": "text"}', {"type": "text"})
    modalities: list[str] | None = only("text", ["text"])
    store: bool | None = only("false", False)
    service_tier: str | None = only("auto or default", "default", "auto")
    metadata: dict[str, Any] | None = Field(None, description="Accepted and ignored.")
    chat_template_kwargs: TemplateValues | None = Field(
        None, description="Values for variables that the model's chat template reads, such as `enable_thinking`."
    )
    add_generation_prompt: bool | None = only("true", True)
    continue_final_message: bool | None = only("false", False)
    best_of: int | None = only("1", 1)
    suffix: str | None = only("empty", "")
    reasoning_effort: str | None = only("none", "none")
    verbosity: str | None = only("medium", "medium")
    prediction: dict[str, Any] | None = only("null")
    audio: dict[str, Any] | None = only("null")
    web_search_options: dict[str, Any] | None = only("null")
    prompt_cache_key: str | None = Field(None, description="Accepted and ignored.")
    prompt_cache_retention: str | None = Field(None, description="Accepted and ignored.")
    safety_identifier: str | None = Field(None, description="Accepted and ignored.")

    @model_validator(mode="after")
    def _consistent(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise FieldError("top_logprobs", "logprobs must be true with it")
        for index, (before, message) in enumerate(pairwise([None, *self.messages])):
            if message and message.role == "tool" and not (before and (before.tool_calls or before.role == "tool")):
                raise FieldError(f"messages.{index}", "a message of the role “tool” must follow one with tool_calls")
        return self

    def conversation(self) -> list[dict[str, Any]]:
        """The messages for a chat template."""
        return [message.plain() for message in self.messages]

    def sampling(self) -> SamplingConfig:
        """The sampling settings."""
        most = self.max_completion_tokens or self.max_tokens or MOST_TOKENS
        return self._sampling(most, self.top_logprobs or 0)
