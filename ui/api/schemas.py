"""The request bodies of the API: OpenAI's fields and ours; nothing is silently ignored.

A field of OpenAI's (or vLLM's) that changes the answer and is not supported is refused unless it has its neutral value;
null is what was left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    create_model,
    model_validator,
)

from engine.config import MOST_TOKENS, SamplingConfig
from engine.mixing.evidence import AnyEvidence
from engine.mixing.gate_registry import gate_types
from engine.mixing.gate_type import GateType
from ui.present.option_help import OPTION_HELP, SAMPLING_HELP
from ui.serving.security import MAX_BODY_BYTES
from workbench.mixture_request import MixtureRequest
from workbench.spec_base import Sane

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
}
INSTEAD: Mapping[str, str] = {
    "suffix": "the models write on from a text, and nothing into it",
    "best_of": "ask for n answers with logprobs and choose",
    "use_beam_search": "answers are sampled, or the most probable token is taken at temperature 0",
    "prompt_logprobs": "ask /v1/completions with echo and logprobs",
    "tools": "put what the tools gave into a message",
    "functions": "put what they gave into a message",
    "response_format": "say in the messages which form the answer should have",
    "truncate_prompt_tokens": "cut the prompt before it is sent",
}
MAX_MESSAGES = 4096  # of one conversation
MAX_PROMPTS = 256  # of one request, times its answers: they share one slot, one after the other
MAX_NAMED = 1024  # experts of one request, or parts of one expert
MAX_PHRASES = 16  # OpenAI's four are too few for tasks of lm-eval
MAX_PHRASE_LENGTH = 1000  # characters
MAX_BIASED = 1024  # tokens; OpenAI's 300 are too few for some
MAX_CANDIDATES = 20  # tokens in the place of one: OpenAI's bound for conversations
MAX_TOKEN_ID = 2**31 - 1


class FieldError(ValueError):
    """What is wrong with a field that is only wrong beside others."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


PARTS = "active parts of an expert of MoDE; left out: all of them; empty: its backbone alone."
Names = Annotated[list[str], Field(max_length=MAX_NAMED)]


class RequestBody(Sane):
    """Refuses unknown fields and unpaired surrogates: pydantic checks text only where it has a bound."""

    model_config = ConfigDict(extra="forbid", str_max_length=MAX_BODY_BYTES)


class ExpertWeight(RequestBody):
    """An expert that takes part, by its name."""

    id: str = Field(description="Name of an expert of the mixture.")
    weight: float = Field(1.0, ge=0, allow_inf_nan=False, description="Its prior (or fixed) weight.")
    parts: Names | None = Field(None, description=f"The {PARTS}")


class GateChange(RequestBody):
    """Settings of a gate; one that is left out stays as it is."""

    def changes(self) -> dict[str, Any]:
        """What was given, null included: it clears."""
        return self.model_dump(exclude_unset=True)


def _setting(name: str, gates: Sequence[GateType]) -> Any:
    """A setting of gates as a field that may be left out; only where null is a value of it may it be null."""
    kinds = {}
    for gate in gates:
        field = next(one for one in fields(gate.config) if one.name == name)
        bounds = {mark: value for mark, value in field.metadata.items() if mark != "description"}
        kinds[str((field.type, bounds))] = Annotated[get_type_hints(gate.config)[name], Field(**bounds)]
    return Union[tuple(kinds.values())], Field(None, description=field.metadata["description"])  # noqa: UP007


def _change_model(gate: GateType) -> type[GateChange]:
    """The settings of one gate, with its kind."""
    kind: Any = (Literal[gate.name], Field(description=f"Weights come about {gate.sentence}."))
    settings = {name: _setting(name, [gate]) for name in gate.settings}
    model = create_model(
        gate.config.__name__.replace("Config", "Change"),
        __base__=GateChange,
        __doc__=f"The gate “{gate.title}”: settings that are left out stay as they are in the mixture.",
        kind=kind,
        **settings,
    )
    return model


def _changes_model(gates: Mapping[str, GateType]) -> type[GateChange]:
    """Settings of the gate that the mixture has, whichever it is."""
    names = dict.fromkeys(name for gate in gates.values() for name in gate.settings)
    having = {name: [gate for gate in gates.values() if name in gate.settings] for name in names}
    settings = {name: _setting(name, some) for name, some in having.items()}
    sentence = "Settings of the gate that the mixture has."
    return create_model("OwnGateChange", __base__=GateChange, __doc__=sentence, **settings)


def _gate_form(value: Any) -> str:
    """Which form of `gate` a value has: a name, the settings of one gate, or changes to the mixture's own."""
    if isinstance(value, str):
        return "name"
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return "changes" if kind is None else str(kind)


if TYPE_CHECKING:
    AnyGateChange = str | GateChange
else:
    AnyGateChange = Annotated[
        Union[
            Annotated[Literal[tuple(gate_types())], Tag("name")],
            Annotated[_changes_model(gate_types()), Tag("changes")],
            *(Annotated[_change_model(gate), Tag(gate.name)] for gate in gate_types().values()),
        ],
        Discriminator(
            _gate_form,
            custom_error_type="unknown_gate",
            custom_error_message=f"the gate must be one of {', '.join(gate_types())}",
        ),
    ]


class Mixed(RequestBody):
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
    def _one_choice(self) -> Mixed:
        if self.experts is not None and self.active is not None:
            raise FieldError("active", "give experts or active, not both")
        times = Counter(one.id for one in self.experts or ())
        if twice := sorted(name for name, number in times.items() if number > 1):
            raise FieldError("experts", f"experts must name each once, but name {', '.join(twice)} more often")
        if self.experts is not None and self.prior is not None:
            raise FieldError("prior", "give experts with weights or a prior, not both")
        if self.experts is not None and self.parts is not None:
            raise FieldError("parts", "give parts within experts or beside active, not both")
        return self

    def to_request(self, model: str) -> MixtureRequest:
        """The request for the services."""
        gate = {"kind": self.gate} if isinstance(self.gate, str) else self.gate.changes() if self.gate else {}
        changes = {**gate, **({"top_k": self.top_k_experts} if self.top_k_experts else {})}
        if self.experts is None:
            return MixtureRequest(model, self.active, None, changes, self.prior, self.parts or {})
        parts = {one.id: one.parts for one in self.experts if one.parts is not None}
        weights = {one.id: one.weight for one in self.experts}
        return MixtureRequest(model, list(weights), weights, changes, parts=parts)


class Nullable(RequestBody):
    """Null means that a field was left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in data.items() if value is not None or name not in optional}


class StreamOptions(Nullable):
    """How a stream ends."""

    include_usage: bool = Field(False, description="Send a last chunk with the counts of tokens.")
    include_obfuscation: bool = Field(False, description="Accepted and ignored: nothing here is padded.")
    continuous_usage_stats: bool = Field(False, description="Accepted; the counts come in the last chunk.")


def _as_prompts(value: Any) -> list[str | list[int]]:
    """Every form of a prompt as a list of prompts of one kind."""
    prompts = [value or ""] if value is None or isinstance(value, str) or _are_ids(value) else value
    if not isinstance(prompts, list) or not prompts:
        raise ValueError("it must be a text, token ids, or a list of either, and not empty")
    if len(prompts) > MAX_PROMPTS:
        raise ValueError(f"it must hold at most {MAX_PROMPTS} prompts, but holds {len(prompts)} instead")
    if all(isinstance(one, str) for one in prompts):
        _require_unicode(prompts)
    elif not all(_are_ids(one) for one in prompts):
        raise ValueError("it must hold texts alone, or lists of token ids alone, none of them empty")
    return list(prompts)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)


def _require_unicode(texts: list[str]) -> None:
    try:
        "".join(texts).encode()
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
Phrase = Annotated[str, Field(max_length=MAX_PHRASE_LENGTH)]
Stop = Annotated[
    Annotated[Phrase, Tag("text")]
    | Annotated[
        list[Annotated[Phrase, Field(json_schema_extra={"minLength": 1})]],
        Field(json_schema_extra={"maxItems": MAX_PHRASES}),  # refused below, with how many there are
        Tag("phrases"),
    ],
    Discriminator(lambda value: "phrases" if isinstance(value, list) else "text"),
]


def _declare_neutral(schema: dict[str, Any]) -> None:
    """Writes the only values of some fields into the schema."""
    for name, accepted in {**NEUTRAL, **CHAT_NEUTRAL, "best_of": (None, 1)}.items():
        if name in schema["properties"]:
            schema["properties"][name]["enum"] = list(accepted)


class Generating(Nullable, Mixed):
    """What requests for a completion and for an answer in a conversation have in common."""

    model_config = ConfigDict(json_schema_extra=_declare_neutral)

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
        None, ge=0, le=2**64 - 1, description="Random seed of the first answer; the next ones count up from it."
    )
    n: int = Field(1, ge=1, le=MAX_PROMPTS, description="Answers to each prompt, sampled one after the other.")
    stop: Stop | None = Field(
        None,
        description=f"Phrases before which the text ends; {MAX_PHRASES} at most, of {MAX_PHRASE_LENGTH} characters.",
    )
    stream: bool = Field(False, description="Send tokens as they come, as server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="How a stream ends.")
    expert_weights: bool | Annotated[int, Field(ge=0, le=MAX_NAMED)] = Field(
        True, description="The weights of experts at each token: true: of all, a number: of so many leading ones."
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

    @model_validator(mode="after")
    def _neutral(self) -> Generating:
        for name, accepted in {**NEUTRAL, **CHAT_NEUTRAL}.items():
            if name in type(self).model_fields and getattr(self, name) not in accepted:
                raise _unsupported(name, accepted[-1], getattr(self, name))
        if len(self.phrases()) > MAX_PHRASES:
            raise FieldError("stop", f"at most {MAX_PHRASES} phrases are supported, but it has {len(self.phrases())}")
        if "" in self.phrases():
            raise FieldError("stop", "none of its phrases may be empty")
        return self

    @property
    def num_choices(self) -> int:
        """Answers to all prompts together."""
        return self.n

    def phrases(self) -> list[str]:
        """The stop phrases."""
        return [self.stop] if isinstance(self.stop, str) and self.stop else list(self.stop or ())

    def _sampling(self, max_tokens: int, num_candidates: int) -> SamplingConfig:
        return SamplingConfig(
            max_tokens,
            self.temperature,
            self.top_p,
            self.seed,
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


def _unsupported(name: str, neutral: Any, value: Any) -> FieldError:
    """The error of a field that has another value than the one that changes nothing."""
    instead = f"; {INSTEAD[name]}" if name in INSTEAD else ""
    given = json.dumps(value)
    given = given if len(given) < 80 else f"{given[:60]} …"
    return FieldError(name, f"it must be {json.dumps(neutral)} or left out, but is {given} instead{instead}")


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
        description="Send the log-probability of every token, with those of this many most probable ones in its place.",
    )
    best_of: int | None = Field(None, description="Only 1, or as many as n.")
    suffix: str | None = Field(None, description="Only empty.")
    add_special_tokens: bool | None = Field(None, description="Only true; token ids get nothing before them anyway.")

    @model_validator(mode="after")
    def _supported(self) -> CompletionRequest:
        if self.best_of not in (None, 1, self.n):
            raise _unsupported("best_of", self.n, self.best_of)
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
    text: str


def _require_text(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "text":
        raise ValueError(f"a part is of type “{kind[:40]}”, but these models read text alone; leave it out")
    return value


Part = Annotated[TextPart, BeforeValidator(_require_text, json_schema_input_type=TextPart)]
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[Part], Field(max_length=MAX_MESSAGES), Tag("parts")],
    Discriminator(lambda value: "parts" if isinstance(value, list) else "text"),
]


class ChatMessage(Nullable):
    """A message of a conversation; what its template does not read has no effect."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = Field(None, description="A text, or parts that are joined.")
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    refusal: str | None = Field(None, description="Accepted and ignored.")

    def plain(self) -> dict[str, Any]:
        """The message for a chat template."""
        fields = self.model_dump(exclude={"refusal"}, exclude_none=True)
        if isinstance(self.content, list):
            fields["content"] = "".join(part.text for part in self.content)
        return fields


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
    add_generation_prompt: bool | None = Field(None, description="Only true.")
    continue_final_message: bool | None = Field(None, description="Only false.")

    @model_validator(mode="after")
    def _supported(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise FieldError("top_logprobs", "logprobs must be true with it")
        return self

    def conversation(self) -> list[dict[str, Any]]:
        """The messages for a chat template."""
        return [message.plain() for message in self.messages]

    def sampling(self) -> SamplingConfig:
        """The sampling settings."""
        most = self.max_completion_tokens or self.max_tokens or MOST_TOKENS
        return self._sampling(most, self.top_logprobs or 0)


class PosteriorRequest(Mixed):
    """POST /v1/workbench/posterior."""

    model: str = Field(description="Name of a mixture or an expert.")
    text: str = Field(min_length=1, description="The text to read.")


class MixtureCopy(RequestBody):
    """What a copy of a mixture shall be called."""

    name: str = Field("", max_length=200, description="Left out: the next free name, such as duo.2.")


class ViewAddress(RequestBody):
    """The address that a view shall have."""

    address: str = Field(max_length=2000, description="In the studio, such as /experts?method=lora.")


class AliasTarget(RequestBody):
    """The model that an alias shall mean."""

    model: str = Field(max_length=200, description="Name of a mixture or an expert, or an alias of it.")


class MixRequest(RequestBody):
    """POST /v1/workbench/mix."""

    mixture: str = Field(description="Name of a mixture.")
    active: Names | None = Field(None, description="Experts that take part.")
    weights: dict[str, float] | None = Field(
        None,
        max_length=MAX_NAMED,
        description="Weights instead of the mixture's own; what is not named weighs nothing.",
    )
    gate: AnyGateChange | None = Field(None, description="Another gate, or changes to the mixture's own.")
    prior: str | None = Field(None, description="Name of a stored prior, instead of weights.")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")

    @model_validator(mode="after")
    def _one_weighing(self) -> MixRequest:
        if self.weights is not None and self.prior is not None:
            raise FieldError("prior", "give weights or a prior, not both")
        return self

    def to_request(self) -> MixtureRequest:
        """The request for the services."""
        gate = Mixed(gate=self.gate).to_request(self.mixture).gate
        return MixtureRequest(self.mixture, self.active, self.weights, gate, self.prior)


class RemovalRequest(RequestBody):
    """POST /v1/workbench/removal."""

    mixture: str = Field(description="Name of a mixture.")
    retrained: dict[str, str] = Field(
        default_factory=dict, description="By domain, the mixture that was trained without it (the paper's –Domain)."
    )
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    num_blocks: int = Field(100, ge=1, description="Dev blocks behind each cached prior, exactly (paper: 100).")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part; priors are always of dev.")


class ForgettingRequest(RequestBody):
    """POST /v1/workbench/forgetting."""

    before: str = Field(description="A mixture (or an expert) as it was.")
    after: str = Field(description="The mixture (or expert) that it became.")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")


class NearestRequest(RequestBody):
    """POST /v1/workbench/nearest."""

    mixture: str = Field(description="Name of a mixture: its experts are the possible parents.")
    domain: str = Field(description="Domain that a new expert is to learn.")
    num_blocks: int = Field(100, ge=1, description="Scored blocks at most (paper: 100).")
    split: Literal["dev", "test"] = Field("dev", description="Which held-out part.")


class ClusterGridRequest(RequestBody):
    """POST /v1/workbench/cluster-grid."""

    mixture: str = Field(description="Name of a mixture with a cluster gate.")
    temperatures: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=list, max_length=50, description="Temperatures to compare; empty takes a usual choice."
    )
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")


class CalibrationRequest(RequestBody):
    """POST /v1/workbench/calibration."""

    mixture: str = Field(description="Name of a mixture with a posterior.")


class PosteriorMapRequest(RequestBody):
    """POST /v1/workbench/posteriors."""

    mixture: str = Field(description="Name of a mixture.")
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    newest_weight: float = Field(0.7, ge=0, le=1, description=OPTION_HELP["newest_weight"])
    estimate: Literal["updating", "mean"] = Field(
        "updating", description="updating: the learnt prior (paper, figure 4); mean: the mean of the blocks."
    )
    num_blocks: int = Field(100, ge=1, description="Blocks of each domain at most (paper: 100).")
    split: Literal["dev", "test"] = Field("dev", description="Which held-out part.")


class PriorRequest(RequestBody):
    """POST /v1/workbench/priors."""

    name: str = Field(description="Name of the new prior.")
    mixture: str = Field(description="Name of a mixture.")
    domain: str = Field(description="Domain whose scored held-out text it is estimated on.")
    num_blocks: int = Field(100, ge=1, description="Exactly so many blocks (paper: 100).")
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    split: Literal["dev", "test"] = Field("dev", description="Which held-out part.")


class ContrastRequest(RequestBody):
    """POST /v1/workbench/contrast."""

    domain: str = Field(description="Name of a domain.")
    expert: str = Field(description="Name of an expert.")
    rival: str = Field(description="Name of the expert to compare it with, such as the domain's own.")
    num_passages: int = Field(3, ge=1, le=50, description="Passages at each end.")
    max_tokens: int = Field(200, ge=1, le=2000, description="Tokens shown of each.")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")


class InferenceModesRequest(RequestBody):
    """POST /v1/workbench/modes."""

    mixture: str = Field(description="Name of a mixture.")
    evidence: AnyEvidence = Field("prefix", description=OPTION_HELP["evidence"])
    newest_weight: float = Field(0.7, ge=0, le=1, description=OPTION_HELP["newest_weight"])
    num_blocks: int = Field(100, ge=1, description="Held-out blocks behind a cached prior (paper: 100).")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")
