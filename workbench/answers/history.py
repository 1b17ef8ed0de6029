"""Comparisons of answers, votes on them, and what is sent to store them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.answers.base import Answer, JsonObject
from workbench.answers.posteriors import Manifest

MOST_ANSWERS = 4
MOST_TURNS = 1024  # of a conversation
MOST_TOKENS = 8192  # stored of one answer; the rest is cut
MOST_PROMPT_TOKENS = 65_536
MOST_LETTERS = 262_144  # of a prompt or an answer
MOST_MANIFEST_LETTERS = 524_288
SHOWN_EXPERTS = 8  # whose weights are stored by token
LETTERS = "ABCD"

Choice = Literal["a", "b", "tie", "both_bad"]
Letter = Literal["A", "B", "C", "D"]
DomainSource = Literal["user", "posterior", ""]
_Text = Annotated[str, Field(max_length=MOST_LETTERS)]
_TokenId = Annotated[int, Field(ge=0, lt=2**31)]
_Weight = Annotated[float, Field(ge=0, le=1.001, allow_inf_nan=False)]


class Turn(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Text = ""


class NewAnswer(BaseModel):
    """One answer to store: one of the API, made with `return_token_ids`, or its parts. Other fields are dropped."""

    model_config = ConfigDict(frozen=True)

    manifest: Manifest
    text: _Text = ""
    index: int = Field(0, ge=0, lt=2**31, description="Which of the answers to its prompt it is: seeds count up.")
    token_ids: list[_TokenId] = Field(max_length=1 << 20)
    prompt_token_ids: list[_TokenId] = Field(max_length=MOST_PROMPT_TOKENS)
    expert_weights: list[dict[str, _Weight]] | None = Field(None, max_length=1 << 20, description="By token.")
    finish_reason: str | None = Field(None, max_length=40)
    messages: list[Turn] = Field(
        default_factory=list, max_length=MOST_TURNS, description="Its conversation, where the comparison's is another."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_the_api(cls, data: Any) -> Any:
        """Takes the first choice of a completion, or of an answer in a conversation."""
        choices = data.get("choices") if isinstance(data, dict) else None
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            return data
        first = dict(choices[0])
        message = first.pop("message", None)
        if isinstance(message, dict):
            first["text"] = message.get("content") or ""
        return {**first, "manifest": data.get("manifest")}

    @model_validator(mode="after")
    def _storable(self) -> NewAnswer:
        try:
            written = json.dumps(self.manifest.model_dump(), ensure_ascii=False, allow_nan=False)
            written.encode()
        except ValueError:
            raise ValueError("the manifest cannot be stored: a value is neither text nor a number") from None
        if len(written) > MOST_MANIFEST_LETTERS:
            raise ValueError(f"the manifest must have at most {MOST_MANIFEST_LETTERS:,} characters")
        return self


class NewComparison(BaseModel):
    """A prompt and the answers to it, to be stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: _Text = Field("", description="The text that was continued; of a conversation left out.")
    messages: list[Turn] = Field(
        default_factory=list, max_length=MOST_TURNS, description="The conversation, if it was one."
    )
    answers: list[NewAnswer] = Field(
        min_length=1, max_length=MOST_ANSWERS, description="Answers A to D: as the API gave them, with their token ids."
    )
    domain: str = Field("", max_length=200, description="The prompt's domain; left out: that of the posterior.")


class StoredTokens(Answer):
    """Token ids of an answer, which `workbench verify` reads."""

    index: int
    text: str
    finish_reason: str | None
    token_ids: list[int]
    prompt_token_ids: list[int]


class ComparedAnswerCard(Answer):
    """One stored answer. Its JSON is one that `workbench verify` makes again."""

    letter: Letter
    model: str
    variant: str = Field(description="How the request differed from the stored model; empty if it did not.")
    setup_sha256: str = Field(description="Of files, weights and gate: the same for the same model.")
    text: str
    messages: list[Turn] = Field(description="Its conversation; empty if it is that of the comparison.")
    manifest: Manifest
    choices: list[StoredTokens] = Field(description="One, with the ids of the prompt and of the answer.")
    num_tokens: int = Field(description="Tokens generated; exceeds those stored if the answer was truncated.")
    experts: list[str] = Field(description="Those with the largest mean weight.")
    weights: list[list[float]] = Field(description="By token, of these experts; what is missing to 1 is the others'.")
    leading: list[int] = Field(description="By token, the leading expert: its place in the manifest.")


class VoteCard(Answer):
    """Which of two answers is better."""

    a: Letter
    b: Letter
    choice: Choice
    is_blind: bool = Field(description="Whether the names were hidden until the vote.")
    created_at: float


class ComparisonHead(Answer):
    """A comparison as a list shows it."""

    id: str
    created_at: float
    prompt: str = Field(description="In a list its first characters.")
    is_chat: bool
    models: list[str] = Field(description="Of answers A to D, with their variants.")
    domain: str = Field(description="Empty if it is not known.")
    votes: list[VoteCard]


class ComparisonCard(ComparisonHead):
    """One comparison: everything that makes its texts again."""

    has_text: bool = Field(description="Whether prompt and answers are stored.")
    messages: list[Turn]
    domain_source: DomainSource = Field(description="Who named the domain: the user, or the posterior.")
    domain_weights: dict[str, float] = Field(description="By domain, the weight after the prompt.")
    answers: list[ComparedAnswerCard]

    def turns_of(self, answer: ComparedAnswerCard) -> tuple[dict[str, str], ...]:
        """The conversation that one of the answers ends; empty for a completion."""
        return tuple(turn.model_dump() for turn in answer.messages or self.messages)


class LinkedAnswer(Answer):
    """One answer of a comparison that is opened by its link."""

    letter: Letter
    request: JsonObject = Field(
        description="The body for /v1/completions, or of a conversation for /v1/chat/completions, that makes the text."
    )
    changed: list[str] = Field(description="What makes the text and is not as it was: files, packages, precision.")
    problem: str = Field(description="Why the text cannot be made today; empty if it can.")


class OpenedLink(Answer):
    """A comparison that is opened by its link: what makes each text again, and what of it differs today."""

    comparison: ComparisonCard
    answers: list[LinkedAnswer]


class ComparisonPage(Answer):
    """Comparisons, the newest first."""

    object: Literal["list"] = "list"
    data: list[ComparisonHead]
    total: int = Field(description="How many match.")
    history_days: float = Field(description="For how many days texts are stored; 0: not at all.")


class NewVote(BaseModel):
    """A vote on two answers of a comparison."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    choice: Choice = Field(description="Which answer is better.")
    a: Letter = Field("A", description="The first of the two answers.")
    b: Letter = Field("B", description="The second of the two answers.")
    is_blind: bool = Field(False, description="Whether the names were hidden until the vote.")
    domain: str = Field("", max_length=200, description="The prompt's domain, if the one stored is wrong.")


class HistoryDeletion(Answer):
    """The result of deleting from the history."""

    num_comparisons: int = Field(description="Whose text is deleted.")
    num_votes: int = Field(description="Deleted with them.")
