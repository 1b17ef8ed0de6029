"""Fields with forms of their own: prompts, biases and stop phrases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, PlainValidator, Tag

from ui.serving.security import MAX_BODY_BYTES

MAX_PROMPTS = 256  # of one request, times its answers: they share one place in the queue
MAX_IDS = 131_072  # tokens of the prompts of one request together
MAX_PHRASES = 16  # OpenAI's four are too few for tasks of lm-eval
MAX_PHRASE_LENGTH = 1000  # characters
MAX_BIASED = 1024  # tokens; OpenAI's 300 are too few for some
MAX_TOKEN_ID = 2**31 - 1

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
