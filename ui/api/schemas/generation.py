"""What requests for a completion and for an answer share: OpenAI's fields and ours; nothing is silently ignored.

A field of OpenAI's (or vLLM's) that changes the answer and is not supported is refused unless it has its neutral value;
null is what was left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PlainValidator, Tag, model_validator

from engine.config import SamplingConfig
from ui.present.forms.option_help import OPTION_HELP, SAMPLING_HELP
from ui.serving.security import MAX_BODY_BYTES
from workbench.requests.body import MAX_NAMED, AnyGateChange, FieldError, Names, Nullable, RequestBody, gate_changes
from workbench.specs.requests import MixtureRequest

MAX_PROMPTS = 256  # of one request, times its answers: they share one place in the queue
MAX_IDS = 131_072  # tokens of the prompts of one request together
MAX_PHRASES = 16  # OpenAI's four are too few for tasks of lm-eval
MAX_PHRASE_LENGTH = 1000  # characters
MAX_BIASED = 1024  # tokens; OpenAI's 300 are too few for some
MAX_TOKEN_ID = 2**31 - 1
MAX_CANDIDATES = 20  # tokens in the place of one: OpenAI's bound for conversations

LongText = Annotated[str, Field(max_length=MAX_BODY_BYTES)]


def _as_prompts(value: Any) -> list[str | list[int]]:
    """Every form of a prompt as a list of prompts of one kind."""
    if isinstance(value, list):
        number = len(value) + sum(len(one) for one in value[:MAX_PROMPTS] if isinstance(one, list))
        if number > MAX_IDS + MAX_PROMPTS:
            raise ValueError(f"it must hold at most {MAX_IDS:,} token ids, but holds {number:,} instead")
    prompts = [value or ""] if value is None or isinstance(value, str) or _are_ids(value) else value
    if not isinstance(prompts, list) or not prompts:
        raise ValueError("it must be a text, token ids, or a list of either, and not empty")
    if len(prompts) > MAX_PROMPTS:
        raise ValueError(f"it must hold at most {MAX_PROMPTS} prompts, but holds {len(prompts)} instead")
    if all(isinstance(prompt, str) for prompt in prompts):
        require_unicode("".join(prompts))
    elif not all(_are_ids(prompt) for prompt in prompts):
        raise ValueError("it must hold only texts, or only lists of token ids, none of them empty")
    return list(prompts)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)


def require_unicode(text: str) -> None:
    """Raises ValueError for text with half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text is not valid Unicode: it contains an unpaired surrogate") from None


_Ids = Annotated[list[int], Field(min_length=1)]
_SomeTexts = Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
_SomeIds = Annotated[list[_Ids], Field(min_length=1, max_length=MAX_PROMPTS)]
Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_as_prompts, json_schema_input_type=str | _SomeTexts | _Ids | _SomeIds | None),
]


def _as_bias(value: dict[str, float]) -> dict[str, float]:
    for token in value:
        if not token.isdecimal() or not token.isascii() or int(token) > MAX_TOKEN_ID:
            raise ValueError(f"its names must be token ids, but one is “{token[:40]}”")
    return value


Bias = Annotated[
    dict[str, Annotated[float, Field(ge=-100, le=100)]],
    Field(max_length=MAX_BIASED, json_schema_extra={"propertyNames": {"pattern": "^[0-9]{1,9}$"}}),
    AfterValidator(_as_bias),
]


def _as_phrases(value: Any) -> Any:
    if isinstance(value, list) and len(value) > MAX_PHRASES:
        raise ValueError(f"at most {MAX_PHRASES} phrases are supported, but it has {len(value)}")
    return value


Phrase = Annotated[str, Field(max_length=MAX_PHRASE_LENGTH)]
Stop = Annotated[
    Annotated[Phrase, Tag("text")]
    | Annotated[
        list[Annotated[Phrase, Field(json_schema_extra={"minLength": 1})]],
        Field(json_schema_extra={"maxItems": MAX_PHRASES}),  # refused below, with how many there are
        Tag("phrases"),
    ],
    Discriminator(lambda value: "phrases" if isinstance(value, list) else "text"),
    BeforeValidator(_as_phrases),
]

INSTEAD: Mapping[str, str] = {
    "suffix": "infilling is not supported: the models continue a text",
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


class NeutralValues(dict[str, Any]):
    """The part of a field's schema that lists its only values; none changes anything."""


def only(text: str, *values: Any) -> Any:
    """A field of other servers that is accepted with these values, or null; an error names the last one."""
    return Field(None, description=f"Only {text}.", json_schema_extra=NeutralValues(enum=[None, *values]))


class NeutralFields(Nullable):
    """Refuses values that would change the answer in fields that are not supported."""

    @model_validator(mode="after")
    def _neutral(self) -> NeutralFields:
        for name, field in type(self).model_fields.items():
            schema = field.json_schema_extra
            if isinstance(schema, NeutralValues) and getattr(self, name) not in schema["enum"]:
                raise unsupported_value(name, schema["enum"][-1], getattr(self, name))
        return self


def unsupported_value(name: str, neutral: Any, value: Any) -> FieldError:
    """The error of a field that has another value than the one that changes nothing."""
    instead = f"; {INSTEAD[name]}" if name in INSTEAD else ""
    given = json.dumps(value)
    given = given if len(given) < 80 else f"{given[:60]} …"
    return FieldError(name, f"it must be {json.dumps(neutral)} or left out, but is {given} instead{instead}")


PARTS = "active parts of an expert that has some; left out: all of them; empty: only its backbone."


class ExpertWeight(RequestBody):
    """An expert that takes part, by its name."""

    id: str = Field(description="Name of an expert of the mixture.")
    weight: float = Field(1.0, ge=0, allow_inf_nan=False, description="Its prior (or fixed) weight.")
    parts: Names | None = Field(None, description=f"The {PARTS}")


class MixFields(RequestBody):
    """Which experts of a model take part, and how they are weighed; all of it for this request only."""

    experts: list[ExpertWeight] | None = Field(
        None, max_length=MAX_NAMED, description="Experts that take part, with their weights."
    )
    active: Names | None = Field(None, description="Experts that take part, with the mixture's own weights.")
    parts: dict[str, Names] | None = Field(None, max_length=MAX_NAMED, description=f"By expert: the {PARTS}")
    gate: AnyGateChange | None = Field(None, description="Another gate, or changes to the mixture's own.")
    top_k_experts: int | None = Field(None, ge=1, description=OPTION_HELP["top_k"])
    prior: str | None = Field(None, description="Name of a stored prior that weighs the experts taking part.")

    @model_validator(mode="after")
    def _one_choice(self) -> MixFields:
        if self.experts is not None and self.active is not None:
            raise FieldError("active", "give experts or active, not both")
        times = Counter(expert.id for expert in self.experts or ())
        if twice := sorted(name for name, number in times.items() if number > 1):
            raise FieldError("experts", f"experts must name each once, but name {', '.join(twice)} more often")
        if self.experts is not None and self.prior is not None:
            raise FieldError("prior", "give experts with weights or a prior, not both")
        if self.experts is not None and self.parts is not None:
            raise FieldError("parts", "give parts within experts or next to active, not both")
        return self

    def to_request(self, model: str) -> MixtureRequest:
        """The request for the services."""
        changes = {**gate_changes(self.gate), **({"top_k": self.top_k_experts} if self.top_k_experts else {})}
        if self.experts is None:
            return MixtureRequest(model, self.active, None, changes, self.prior, self.parts or {})
        parts = {expert.id: expert.parts for expert in self.experts if expert.parts is not None}
        weights = {expert.id: expert.weight for expert in self.experts}
        return MixtureRequest(model, list(weights), weights, changes, parts=parts)


class StreamOptions(Nullable):
    """How a stream ends."""

    include_usage: bool = Field(False, description="Send a last chunk with the counts of tokens.")
    include_obfuscation: bool = Field(False, description="Accepted and ignored: nothing here is padded.")
    continuous_usage_stats: bool = Field(
        False, description="With include_usage: send in each chunk the counts of its choice so far, as vLLM does."
    )


class Generating(NeutralFields, MixFields):
    """The fields that requests for a completion and for an answer in a conversation have in common."""

    hints = HINTS

    model: str = Field(description="Name of a mixture or an expert; seed:NAME is a seed model as it is.")
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
    draw_expert: bool = Field(False, description=SAMPLING_HELP["draw_expert"])
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
    gate_weights: bool = Field(True, description="The weights inside experts with parts at each token.")
    return_token_ids: bool = Field(
        False, description="Also send the ids of prompts and answers; `workbench verify` needs them."
    )
    user: str | None = Field(None, description="Accepted and ignored.")
    length_penalty: float | None = only("1", 1)
    min_tokens: int | None = only("0", 0)
    typical_p: float | None = only("1", 1)
    use_beam_search: bool | None = only("false", False)
    stop_token_ids: list[int] | None = only("empty", [])
    include_stop_str_in_output: bool | None = only("false", False)
    skip_special_tokens: bool | None = only("true", True)
    spaces_between_special_tokens: bool | None = only("true", True)
    truncate_prompt_tokens: int | None = only("-1", -1)
    prompt_logprobs: int | None = only("0", 0)
    priority: int | None = only("0", 0)
    bad_words: list[str] | None = only("empty", [])
    allowed_token_ids: list[int] | None = only("null")
    structured_outputs: dict[str, Any] | None = only("null")

    @model_validator(mode="after")
    def _check_stop(self) -> Generating:
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
        given = {field.name: getattr(self, field.name) for field in fields(SamplingConfig) if hasattr(self, field.name)}
        given |= {"seed": None if self.seed == -1 else self.seed, "top_k": max(0, self.top_k)}
        given["logit_bias"] = {int(token): bias for token, bias in (self.logit_bias or {}).items()}
        return SamplingConfig(**given | {"max_tokens": max_tokens, "num_candidates": num_candidates})
