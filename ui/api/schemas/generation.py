"""What requests for a completion and for an answer share: OpenAI's fields and ours; nothing is silently ignored.

A field of OpenAI's (or vLLM's) that changes the answer and is not supported is refused unless it has its neutral value;
null is what was left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from engine.config import SamplingConfig
from ui.api.schemas.fields import MAX_PHRASE_LENGTH, MAX_PHRASES, MAX_PROMPTS, MAX_TOKEN_ID, Bias, Stop
from ui.api.schemas.mixed import Mixed
from ui.present.forms.option_help import SAMPLING_HELP
from workbench.requests.body import MAX_NAMED, FieldError, Nullable

# By field what changes nothing, the value to name last; other values are refused.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "length_penalty": (None, 1),
    "min_tokens": (None, 0),
    "typical_p": (None, 1),
    "use_beam_search": (None, False),
    "stop_token_ids": (None, []),
    "include_stop_str_in_output": (None, False),
    "add_special_tokens": (None, True),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True),
    "truncate_prompt_tokens": (None, -1),
    "prompt_logprobs": (None, 0),
    "priority": (None, 0),
    "bad_words": (None, []),
    "allowed_token_ids": (None,),
    "structured_outputs": (None,),
}
CHAT_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "tools": (None, []),
    "tool_choice": (None, "auto", "none"),
    "functions": (None, []),
    "function_call": (None, "auto", "none"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "store": (None, False),
    "service_tier": (None, "default", "auto"),
    "add_generation_prompt": (None, True),
    "continue_final_message": (None, False),
    "reasoning_effort": (None, "none"),
    "verbosity": (None, "medium"),
    "prediction": (None,),
    "audio": (None,),
    "web_search_options": (None,),
}
INSTEAD: Mapping[str, str] = {
    "suffix": "the models write on from a text, and nothing into it",
    "best_of": "ask for n answers with logprobs and choose",
    "use_beam_search": "answers are sampled, or the most probable token is taken at temperature 0",
    "prompt_logprobs": "ask /v1/completions with echo and logprobs",
    "tools": "put what the tools gave into a message",
    "functions": "put what they gave into a message",
    "response_format": "say in the messages which form the answer should have",
    "structured_outputs": "say in the prompt which form the answer should have",
    "bad_words": "give their token ids a logit_bias of -100",
    "allowed_token_ids": "give the others a logit_bias of -100",
    "truncate_prompt_tokens": "cut the prompt before it is sent",
}
HINTS = frozenset(
    {
        *("cache_control", "cache_prompt", "cache_salt", "keep_alive", "id_slot", "slot_id"),
        *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "session_id", "request_id"),
    }
)
MEANT: Mapping[str, str] = {  # fields of other servers that change an answer, by the ones of this server
    "repeat_penalty": "repetition_penalty",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
    "enable_thinking": "chat_template_kwargs",
    "thinking": "chat_template_kwargs",
    "system": "a message of the role “system”",
    "input": "messages",
    "reasoning": "reasoning_content",
    "guided_json": "structured_outputs",
}
MAX_CANDIDATES = 20  # tokens in the place of one: OpenAI's bound for conversations


class StreamOptions(Nullable):
    """How a stream ends."""

    include_usage: bool = Field(False, description="Send a last chunk with the counts of tokens.")
    include_obfuscation: bool = Field(False, description="Accepted and ignored: nothing here is padded.")
    continuous_usage_stats: bool = Field(
        False, description="With include_usage: send in each chunk the counts of its choice so far, as vLLM does."
    )


def _declare_neutral(schema: dict[str, Any]) -> None:
    """Writes the only values of some fields into the schema."""
    for name, accepted in {**NEUTRAL, **CHAT_NEUTRAL, "best_of": (None, 1)}.items():
        if name in schema["properties"]:
            schema["properties"][name]["enum"] = list(accepted)


class Generating(Nullable, Mixed):
    """The fields that requests for a completion and for an answer in a conversation have in common."""

    model_config = ConfigDict(json_schema_extra=_declare_neutral)
    hints = HINTS

    model: str = Field(description="Name of a mixture or an expert.")
    temperature: float = Field(1.0, ge=0, le=1e6, description=SAMPLING_HELP["temperature"])
    top_p: float = Field(1.0, gt=0, le=1, description=SAMPLING_HELP["top_p"])
    top_k: int = Field(
        0, ge=-1, le=MAX_TOKEN_ID, description=SAMPLING_HELP["top_k"] + " `top_k_experts` is another thing."
    )
    min_p: float = Field(0.0, ge=0, le=1, description=SAMPLING_HELP["min_p"])
    presence_penalty: float = Field(0.0, ge=-2, le=2, description=SAMPLING_HELP["presence_penalty"])
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description=SAMPLING_HELP["frequency_penalty"])
    repetition_penalty: float = Field(1.0, gt=0, le=100, description=SAMPLING_HELP["repetition_penalty"])
    logit_bias: Bias | None = Field(None, description=SAMPLING_HELP["logit_bias"])
    ignore_eos: bool = Field(False, description=SAMPLING_HELP["ignore_eos"])
    speculate: bool = Field(False, description=SAMPLING_HELP["speculate"])
    seed: int | None = Field(
        None,
        ge=-1,
        le=2**64 - 1,
        description="Random seed of the first answer; the next ones count up from it. −1 or left out: one is drawn.",
    )
    n: int = Field(1, ge=1, le=MAX_PROMPTS, description="Answers to each prompt.")
    stop: Stop | None = Field(
        None,
        description=f"Phrases before which the text ends; {MAX_PHRASES} at most, of {MAX_PHRASE_LENGTH} characters.",
    )
    stream: bool = Field(False, description="Send tokens as they come, as server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="How a stream ends.")
    expert_weights: bool | Annotated[int, Field(ge=0, le=MAX_NAMED)] = Field(
        True, description="The weights of experts at each token: `true` returns all weights; N returns the N largest."
    )
    gate_weights: bool = Field(True, description="The weights inside experts of MoDE at each token.")
    return_token_ids: bool = Field(
        False, description="Send the ids of prompts and answers, too; `workbench verify` needs them."
    )
    user: str | None = Field(None, description="Accepted and ignored.")
    length_penalty: float | None = Field(None, description="Only 1.")
    min_tokens: int | None = Field(None, description="Only 0.")
    typical_p: float | None = Field(None, description="Only 1.")
    use_beam_search: bool | None = Field(None, description="Only false.")
    stop_token_ids: list[int] | None = Field(None, description="Only empty.")
    include_stop_str_in_output: bool | None = Field(None, description="Only false.")
    skip_special_tokens: bool | None = Field(None, description="Only true.")
    spaces_between_special_tokens: bool | None = Field(None, description="Only true.")
    truncate_prompt_tokens: int | None = Field(None, description="Only -1.")
    prompt_logprobs: int | None = Field(None, description="Only 0.")
    priority: int | None = Field(None, description="Only 0.")
    bad_words: list[str] | None = Field(None, description="Only empty.")
    allowed_token_ids: list[int] | None = Field(None, description="Only null.")
    structured_outputs: dict[str, Any] | None = Field(None, description="Only null.")

    @model_validator(mode="after")
    def _neutral(self) -> Generating:
        for name, accepted in {**NEUTRAL, **CHAT_NEUTRAL}.items():
            if name in type(self).model_fields and getattr(self, name) not in accepted:
                raise unsupported(name, accepted[-1], getattr(self, name))
        if len(self.phrases()) > MAX_PHRASES:
            raise FieldError("stop", f"at most {MAX_PHRASES} phrases are supported, but it has {len(self.phrases())}")
        if "" in self.phrases():
            raise FieldError("stop", "none of its phrases may be empty")
        return self

    @property
    def num_choices(self) -> int:
        """Answers to all prompts together."""
        return self.n

    @property
    def counts_each_chunk(self) -> bool:
        """Whether each chunk of the stream has the counts of its choice so far."""
        options = self.stream_options
        return self.stream and options is not None and options.include_usage and options.continuous_usage_stats

    def phrases(self) -> list[str]:
        """The stop phrases."""
        return [self.stop] if isinstance(self.stop, str) and self.stop else list(self.stop or ())

    def _sampling(self, max_tokens: int, num_candidates: int) -> SamplingConfig:
        return SamplingConfig(
            max_tokens,
            self.temperature,
            self.top_p,
            None if self.seed == -1 else self.seed,
            top_k=max(0, self.top_k),
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()},
            ignore_eos=self.ignore_eos,
            num_candidates=num_candidates,
            speculate=self.speculate,
        )


def unsupported(name: str, neutral: Any, value: Any) -> FieldError:
    """The error of a field that has another value than the one that changes nothing."""
    instead = f"; {INSTEAD[name]}" if name in INSTEAD else ""
    given = json.dumps(value)
    given = given if len(given) < 80 else f"{given[:60]} …"
    return FieldError(name, f"it must be {json.dumps(neutral)} or left out, but is {given} instead{instead}")
