"""The request for an answer in a conversation."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from engine.config import MOST_TOKENS, SamplingConfig
from engine.text.chat.conversations import NAME, clean_values
from ui.api.schemas.fields import LongText
from ui.api.schemas.generation import MAX_CANDIDATES, Generating, unsupported
from workbench.requests.body import FieldError, Nullable, RequestBody

MAX_MESSAGES = 4096  # of one conversation


class TextPart(RequestBody):
    """A part of a message; texts are the only kind."""

    type: Literal["text"]
    text: LongText

    hints = frozenset({"cache_control", "id"})


def _require_text(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "text":
        raise ValueError(f"a part is of type “{kind[:40]}”, but these models read text alone; leave it out")
    return value


Part = Annotated[TextPart, BeforeValidator(_require_text, json_schema_input_type=TextPart)]
Content = Annotated[
    Annotated[LongText, Tag("text")] | Annotated[list[Part], Field(max_length=MAX_MESSAGES), Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "text"),
]


class ChatMessage(Nullable):
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
    audio: dict[str, Any] | None = Field(None, description="Only null.", json_schema_extra={"enum": [None]})
    function_call: dict[str, Any] | None = Field(None, description="Only null.", json_schema_extra={"enum": [None]})

    @model_validator(mode="after")
    def _supported(self) -> ChatMessage:
        for name in ("audio", "function_call"):
            if getattr(self, name) is not None:
                raise unsupported(name, None, getattr(self, name))
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
    tools: list[dict[str, Any]] | None = Field(None, description="Only empty.")
    tool_choice: str | dict[str, Any] | None = Field(None, description="Only none or auto.")
    functions: list[dict[str, Any]] | None = Field(None, description="Only empty.")
    function_call: str | dict[str, Any] | None = Field(None, description="Only none or auto.")
    parallel_tool_calls: bool | None = Field(None, description="Accepted and ignored, since there are no tools.")
    response_format: dict[str, Any] | None = Field(None, description='Only {"type": "text"}.')
    modalities: list[str] | None = Field(None, description="Only text.")
    store: bool | None = Field(None, description="Only false.")
    service_tier: str | None = Field(None, description="Only auto or default.")
    metadata: dict[str, Any] | None = Field(None, description="Accepted and ignored.")
    chat_template_kwargs: TemplateValues | None = Field(
        None, description="Values for variables that the model's chat template reads, such as `enable_thinking`."
    )
    add_generation_prompt: bool | None = Field(None, description="Only true.")
    continue_final_message: bool | None = Field(None, description="Only false.")
    best_of: int | None = Field(None, description="Only 1.")
    suffix: str | None = Field(None, description="Only empty.")
    reasoning_effort: str | None = Field(None, description="Only none.")
    verbosity: str | None = Field(None, description="Only medium.")
    prediction: dict[str, Any] | None = Field(None, description="Only null.")
    audio: dict[str, Any] | None = Field(None, description="Only null.")
    web_search_options: dict[str, Any] | None = Field(None, description="Only null.")
    prompt_cache_key: str | None = Field(None, description="Accepted and ignored.")
    prompt_cache_retention: str | None = Field(None, description="Accepted and ignored.")
    safety_identifier: str | None = Field(None, description="Accepted and ignored.")

    @model_validator(mode="after")
    def _supported(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise FieldError("top_logprobs", "logprobs must be true with it")
        if self.best_of not in (None, 1):
            raise unsupported("best_of", 1, self.best_of)
        for place, (before, message) in enumerate(pairwise([None, *self.messages])):
            if message and message.role == "tool" and not (before and (before.tool_calls or before.role == "tool")):
                raise FieldError(f"messages.{place}", "a message of the role “tool” must follow one with tool_calls")
        return self

    def conversation(self) -> list[dict[str, Any]]:
        """The messages for a chat template."""
        return [message.plain() for message in self.messages]

    def sampling(self) -> SamplingConfig:
        """The sampling settings."""
        most = self.max_completion_tokens or self.max_tokens or MOST_TOKENS
        return self._sampling(most, self.top_logprobs or 0)
