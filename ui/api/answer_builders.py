"""Makes answers, or the chunks of a stream, of pieces: text with its tokens, log-probabilities and weights."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from engine.config import SamplingConfig
from engine.events import Done, GateWeights
from ui.api.schemas.completions import ChatRequest, CompletionRequest
from ui.api.schemas.generation import Generating
from workbench.answers.posteriors import Manifest
from workbench.answers.server import (
    ChatAnswer,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprob,
    ChatLogprobs,
    ChunkChoice,
    Completion,
    CompletionChoice,
    CompletionChunk,
    Logprobs,
    TopLogprob,
    Usage,
)

if TYPE_CHECKING:
    from engine.loading.plan import GenerationPlan

Result = TypeVar("Result", Completion, ChatCompletion)
Chunk = TypeVar("Chunk", CompletionChunk, ChatCompletionChunk)

FINISH = {"stop": "stop", "phrase": "stop", "length": "length"}


class Scored(NamedTuple):
    """A token with its log-probability, and the most probable ones in its place; both None of a first one.

    The id is None of a token of the prompt.
    """

    id: int | None
    text: str
    logprob: float | None
    top: Sequence[tuple[str, float]] | None


@dataclass
class TextPiece:
    """Some text of one choice of the answer, with the tokens it is made of."""

    index: int
    text: str
    weights: Mapping[str, float] | None = None
    gates: Mapping[str, GateWeights] | None = None  # of experts with parts, by their names
    tokens: Sequence[Scored] = ()
    done: Done | None = None
    prompt_ids: list[int] | None = None  # where requested


class AnswerBuilder(ABC, Generic[Result, Chunk]):
    """Makes an answer, or its chunks, of pieces."""

    answer_type: type[Result]
    chunk_type: type[Chunk]
    id_prefix: ClassVar[str]

    def __init__(self, plan: GenerationPlan, sampling: SamplingConfig, body: Generating) -> None:
        self.body = body
        self._planned = Manifest.of(plan, sampling).model_copy(update={"n": body.n})
        self._head = {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": body.model,
        }
        self._done: dict[int, Done] = {}  # by choice
        self._num_tokens = [0] * body.num_choices  # generated so far
        self._started: set[int] = set()  # choices that a chunk was made of

    @property
    def _manifest(self) -> Manifest:
        return self._planned.after(done.drafting for done in self._done.values())

    @abstractmethod
    def _choice(self, joined: TextPiece, **shared: Any) -> Any:
        """A choice of the answer, of all its pieces joined."""

    @abstractmethod
    def _chunk_choice(self, piece: TextPiece, is_first: bool, /, **shared: Any) -> Any:
        """The choice of a chunk."""

    @abstractmethod
    def _logprobs(self, piece: TextPiece) -> Any:
        """The log-probabilities of a piece's tokens, where they are requested."""

    def _chunk(self, piece: TextPiece | None, **extras: Any) -> Chunk:
        """A piece of the stream; None is the chunk that has only counts. Fields that it does not carry are unset."""
        choices = []
        if piece is not None:
            is_first = piece.index not in self._started
            choices.append(self._chunk_choice(piece, is_first, **self._shared(piece), **self._of_token(piece)))
        kind = self.chunk_type.model_fields["object"].default
        return self.chunk_type(**self._head, object=kind, choices=choices, **extras)

    def _shared(self, piece: TextPiece) -> dict[str, Any]:
        """What choices of answers and of chunks, of texts and of conversations have in common."""
        reason = None if piece.done is None else FINISH[piece.done.reason]
        return {"index": piece.index, "logprobs": self._logprobs(piece), "finish_reason": reason}

    async def result(self, pieces: AsyncGenerator[TextPiece, None]) -> Result:
        """The answer in one object."""
        by_choice: list[list[TextPiece]] = [[] for _ in range(self.body.num_choices)]
        async with aclosing(pieces):
            async for piece in pieces:
                by_choice[piece.index].append(piece)
        self._done = {index: own[-1].done for index, own in enumerate(by_choice) if own[-1].done is not None}
        joined = [(_join(own), own) for own in by_choice]
        choices = [self._choice(piece, **self._shared(piece), **self._of_tokens(own)) for piece, own in joined]
        return self.answer_type(**self._head, choices=choices, usage=self._usage(), manifest=self._manifest)

    def chunks(self, piece: TextPiece) -> list[Chunk]:
        """A piece of the stream; the last one carries the manifest, and the counts if they were requested."""
        if piece.done is not None:
            self._done[piece.index] = piece.done
        self._num_tokens[piece.index] += len(_ids(piece))
        counts = {"usage": self._usage_so_far(piece)} if self.body.counts_each_chunk else {}
        if len(self._done) < self.body.num_choices:
            return [self._chunk(piece, **counts)]
        last, options = self._chunk(piece, manifest=self._manifest, **counts), self.body.stream_options
        return [last, self._chunk(None, usage=self._usage())] if options and options.include_usage else [last]

    def _usage_so_far(self, piece: TextPiece) -> Usage:
        """The counts of tokens of a choice up to this piece."""
        read = piece.done.num_prompt_tokens if piece.done is not None else len(piece.prompt_ids or ())
        generated = piece.done.num_tokens if piece.done is not None else self._num_tokens[piece.index]
        return Usage(prompt_tokens=read, completion_tokens=generated, total_tokens=read + generated)

    def _usage(self) -> Usage:
        """The counts of tokens of all choices together; a prompt counts once for all answers to it."""
        read = sum(self._done[number].num_prompt_tokens for number in range(0, self.body.num_choices, self.body.n))
        generated = sum(one.num_tokens for one in self._done.values())
        return Usage(prompt_tokens=read, completion_tokens=generated, total_tokens=read + generated)

    def _of_tokens(self, pieces: Sequence[TextPiece]) -> dict[str, Any]:
        """Weights and ids of all tokens of a choice."""
        chosen: dict[str, Any] = {"expert_weights": None, "gate_weights": None}
        if self._has_weights:
            chosen["expert_weights"] = [self._leading(one.weights) for one in pieces if one.weights is not None]
        if self.body.gate_weights:
            chosen["gate_weights"] = [dict(one.gates) for one in pieces if one.gates is not None]
        if self.body.return_token_ids:
            chosen["token_ids"] = [token for one in pieces for token in _ids(one)]
            chosen["prompt_token_ids"] = pieces[0].prompt_ids
        return chosen

    def _of_token(self, piece: TextPiece) -> dict[str, Any]:
        """Weights and ids of a chunk; the first one of a choice has the ids of its prompt."""
        chosen: dict[str, Any] = {}
        if self._has_weights:
            chosen["expert_weights"] = None if piece.weights is None else self._leading(piece.weights)
        if self.body.gate_weights:
            chosen["gate_weights"] = None if piece.gates is None else dict(piece.gates)
        if self.body.return_token_ids:
            chosen["token_ids"] = _ids(piece)
            if piece.index not in self._started:
                chosen["prompt_token_ids"] = piece.prompt_ids
        self._started.add(piece.index)
        return chosen

    @property
    def _has_weights(self) -> bool:
        return self.body.expert_weights is not False and self.body.expert_weights != 0

    def _leading(self, weights: Mapping[str, float]) -> dict[str, float]:
        """The greatest weights, as many as were requested."""
        if self.body.expert_weights is True:
            return dict(weights)
        names = sorted(weights, key=lambda name: -weights[name])[: self.body.expert_weights]
        return {name: weights[name] for name in names}


def _join(pieces: Sequence[TextPiece]) -> TextPiece:
    """The text and the tokens of all pieces of a choice."""
    text, tokens = "".join(piece.text for piece in pieces), [token for piece in pieces for token in piece.tokens]
    return TextPiece(pieces[0].index, text, tokens=tokens, done=pieces[-1].done)


def _ids(piece: TextPiece) -> list[int]:
    return [token.id for token in piece.tokens if token.id is not None]


class CompletionBuilder(AnswerBuilder[Completion, CompletionChunk]):
    """Makes a completion, with choices for each prompt."""

    body: CompletionRequest
    answer_type, chunk_type, id_prefix = Completion, CompletionChunk, "cmpl"

    def __init__(self, plan: GenerationPlan, sampling: SamplingConfig, body: CompletionRequest) -> None:
        super().__init__(plan, sampling, body)
        self._offsets = [0] * body.num_choices

    def _choice(self, joined: TextPiece, **shared: Any) -> CompletionChoice:
        return CompletionChoice(text=joined.text, **shared)

    def _chunk_choice(self, piece: TextPiece, _: bool, /, **shared: Any) -> ChunkChoice:
        return ChunkChoice(text=piece.text, **shared)

    def _logprobs(self, piece: TextPiece) -> Logprobs | None:
        if self.body.logprobs is None:
            return None
        offsets = []
        for token in piece.tokens:
            offsets.append(self._offsets[piece.index])
            self._offsets[piece.index] += len(token.text)
        return Logprobs(
            tokens=[token.text for token in piece.tokens],
            token_logprobs=[token.logprob for token in piece.tokens],
            top_logprobs=[_by_text(token) for token in piece.tokens] if self.body.logprobs else None,
            text_offset=offsets,
        )


def _by_text(token: Scored) -> dict[str, float] | None:
    """The most probable tokens; with OpenAI a sampled one that is not among them comes besides."""
    if token.top is None:
        return None
    by_text: dict[str, float] = {}
    for text, logprob in token.top:
        by_text.setdefault(text, logprob)
    if token.id is not None and token.logprob is not None:
        by_text.setdefault(token.text, token.logprob)
    return by_text


class ChatBuilder(AnswerBuilder[ChatCompletion, ChatCompletionChunk]):
    """Makes the answers to a conversation."""

    body: ChatRequest
    answer_type, chunk_type, id_prefix = ChatCompletion, ChatCompletionChunk, "chatcmpl"

    def _choice(self, joined: TextPiece, **shared: Any) -> ChatChoice:
        return ChatChoice(message=ChatAnswer(content=joined.text), **shared)

    def _chunk_choice(self, piece: TextPiece, is_first: bool, /, **shared: Any) -> ChatChunkChoice:
        role: dict[str, Any] = {"role": "assistant"} if is_first else {}
        return ChatChunkChoice(delta=ChatDelta(**role, content=piece.text), **shared)

    def _logprobs(self, piece: TextPiece) -> ChatLogprobs | None:
        return ChatLogprobs(content=list(map(self._logprob, piece.tokens))) if self.body.logprobs else None

    def _logprob(self, token: Scored) -> ChatLogprob:
        return ChatLogprob(
            token=token.text,
            logprob=0.0 if token.logprob is None else token.logprob,
            bytes=list(token.text.encode()),
            top_logprobs=[
                TopLogprob(token=text, logprob=nats, bytes=list(text.encode())) for text, nats in token.top or ()
            ],
        )
