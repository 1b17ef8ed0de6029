"""The request for a completion."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from engine.config import MOST_TOKENS, SamplingConfig
from ui.api.schemas.fields import MAX_PROMPTS, Prompts
from ui.api.schemas.generation import MAX_CANDIDATES, Generating, unsupported
from ui.present.forms.option_help import SAMPLING_HELP
from workbench.requests.body import FieldError


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
    best_of: int | None = Field(None, description="Only 1, or as many as n.")
    suffix: str | None = Field(None, description="Only empty.")
    add_special_tokens: bool | None = Field(None, description="Only true; token ids get nothing before them anyway.")
    response_format: dict[str, Any] | None = Field(None, description='Only {"type": "text"}.')

    @model_validator(mode="after")
    def _supported(self) -> CompletionRequest:
        if self.best_of not in (None, 1, self.n):
            raise unsupported("best_of", self.n, self.best_of)
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
