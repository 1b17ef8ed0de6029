"""Generates tokens from a mixture, with the expert weights behind each token.

Every token is drawn from the mixture's distribution and fed back to its experts.

With speculation the expert of the largest weight drafts some tokens, and all experts read them in one pass. Every
token is still drawn from the mixture, from the noise that it has without drafts; a draft only tells what to read before
it is drawn. A draft is made with that same noise, so that two like distributions mostly give the same token.

How many are drafted follows from how many were the mixture's own tokens. With a share a of accepted drafts, k drafts
give 1 + a + … + a^k tokens for a pass of all experts over k + 1 positions and k passes of one expert. The number with
the most tokens per cost is taken; where none beats plain decoding, nothing is drafted, but for a single draft now and
then, ever more seldom, that finds out when that has changed. Counted costs, not measured times, decide: the same
request takes the same steps on every run.
Shapes: E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceededError, MixtureError, TokenizerError
from engine.events import Candidate, Done, Drafting, Echo, GateWeights, Token
from engine.inference.ensemble import Models
from engine.inference.mixing import Mixing
from engine.inference.sampling import StopPhrases, as_shown, candidates_at, make_generator, only_tokens, sample_token
from engine.mixing.base import Gate, mix
from engine.models.expert_model import ModelLimits
from engine.text.tokenizer import TextStream, Tokenizer

Prompt = str | Sequence[int]
# Clients tell by words like these (LangChain, LiteLLM) that they can send less.
_TOO_LONG, _CONTEXT = "The prompt is too long", "this model's maximum context length is"
_FEWEST_CHARACTERS = 64  # allowed for each token of the context: a tokenizer's normalizer may shorten a text


def require_readable(prompt: Prompt, tokenizer: Tokenizer, models: Models | ModelLimits, num_new: int = 0) -> None:
    """Refuses an invalid prompt without tokenizing it; `num_new` tokens are to fit behind it.

    Raises ContextLengthExceededError for a prompt that cannot fit, TokenizerError for ids outside the vocabulary.
    """
    if isinstance(prompt, str):
        most = models.max_positions * max(_FEWEST_CHARACTERS, tokenizer.longest_token)
        if len(prompt) > most:
            raise ContextLengthExceededError(
                f"{_TOO_LONG}: {len(prompt):,} characters are too many, as {_CONTEXT} {models.max_positions} tokens.",
                f"Shorten it by {len(prompt) - most:,} characters at least.",
            )
        return
    if foreign := [token for token in prompt if not 0 <= token < models.vocab_size]:
        problem = f"Token ids must be from 0 to {models.vocab_size - 1}, got {foreign[0]}."
        raise TokenizerError(problem, "Tokenize the text with this model's own tokenizer.")
    require_fits(len(prompt), models, num_new)


def require_fits(num_tokens: int, models: Models | ModelLimits, num_new: int = 0) -> None:
    """Raises ContextLengthExceededError when a prompt does not fit with so many tokens behind it."""
    if (surplus := num_tokens + num_new - models.max_positions) > 0:
        of_these = f", at least {num_new} of them for the answer" if num_new else ""
        problem = f"{_TOO_LONG}: it has {num_tokens} tokens, and {_CONTEXT} {models.max_positions} tokens{of_these}."
        raise ContextLengthExceededError(problem, f"Shorten it by {surplus}.")


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> tuple[list[int], int]:
    """The ids to read, and the number of prefix tokens that were added to a text; token ids are used unchanged.

    The prefix is mostly the BOS token. If the text itself begins with that, it counts once (unless it is an ordinary
    word). Elsewhere text never encodes to a special token.
    """
    if not isinstance(prompt, str):
        return list(prompt), 0
    is_special = tokenizer.bos_id in tokenizer.special_ids  # some vocabularies name an ordinary word
    text = prompt.removeprefix(tokenizer.bos_token) if is_special else prompt
    ids = tokenizer.encode(text)
    if text != prompt:
        return [tokenizer.bos_id, *ids], 0
    prompt_ids = tokenizer.as_prompt(ids)
    return prompt_ids, len(prompt_ids) - len(ids)


def generate(
    models: Models,
    keys: Sequence[str],
    gate: Gate,
    tokenizer: Tokenizer,
    prompt: Prompt,
    sampling: SamplingConfig,
    stop: Sequence[str] = (),
    stop_ids: Collection[int] | None = None,
    reserve: Callable[[int], AbstractContextManager[object]] = nullcontext,
    drafts: DraftCount | None = None,
    evidence_from: int = 0,
) -> Generator[Token | Done, None, None]:
    """Yields tokens as they are sampled, then one Done. Closing the iterator stops the generation.

    `keys` are the active experts in the order of the gate's weights. `stop_ids` end the answer (None: the
    tokenizer's). `reserve` is held while the answer is made, for the number of positions that it gets at most.
    `drafts` counts those of speculation. Tokens of the prompt before the position `evidence_from` do not count as
    evidence. Raises MixtureError without active experts, ContextLengthExceededError when the prompt fills the models'
    context.
    """
    require_readable(prompt, tokenizer, models, 1)
    if sampling.draw_expert:
        _require_drawable(gate, len(keys), sampling)
    ids, _ = encode_prompt(prompt, tokenizer)
    mixing = Mixing(models, keys, gate, evidence_from)
    require_fits(len(ids), models, 1)
    ends = () if sampling.ignore_eos else tokenizer.stop_ids if stop_ids is None else stop_ids
    limit = min(sampling.max_tokens, models.max_positions - len(ids))
    with reserve(len(ids) + limit):
        mixing.feed(ids)
        pace = DraftPace(drafts) if sampling.speculate else None
        text = tokenizer.stream(ids)
        drawn = _draw_tokens(mixing, tokenizer, sampling, text, limit, pace)
        yield from write_answer(drawn, keys, text, len(ids), ends, StopPhrases(stop), limit, pace)


_CHANGING = (  # options of sampling that make another distribution of an expert's than of the mixture's
    *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logit_bias", "speculate"),
)


def _require_drawable(gate: Gate, num_experts: int, sampling: SamplingConfig) -> None:
    """Raises MixtureError where a token of a drawn expert has not the law of the mixture."""
    if gate.needs_logprobs and num_experts > 1:
        raise MixtureError(
            "This gate draws no expert (draw_expert): its weights follow from what each expert predicts, "
            "so all of them run.",
            "Choose a gate that reads only the text (fixed, cluster), or leave draw_expert out.",
        )
    plain = SamplingConfig()
    if changed := [name for name in _CHANGING if getattr(sampling, name) != getattr(plain, name)]:
        raise MixtureError(
            f"An expert is drawn for each token (draw_expert) without other options of sampling, but there is "
            f"{', '.join(changed)}: applied to one expert, it is another distribution than applied to the mixture.",
            f"Leave {', '.join(changed)} out (temperature: 1), or leave draw_expert out.",
        )


class Drawn(NamedTuple):
    """The next token of an answer: its log-probability, the weights [E] behind it, the gates, the most probable ones.

    `candidates` are as `candidates_at` gives them.
    """

    token: int
    logprob: float
    weights: Sequence[float]
    gates: Mapping[str, GateWeights]
    candidates: Sequence[Candidate]


def write_answer(
    drawn: Iterator[Drawn],
    keys: Sequence[str],
    text: TextStream,
    num_prompt: int,
    stop_ids: Collection[int],
    phrases: StopPhrases,
    limit: int,
    pace: DraftPace | None = None,
) -> Iterator[Token | Done]:
    """The answer that tokens make, up to the end of a document, a stop phrase or `limit` tokens.

    Each is drawn once the one before is written, while `text` still ends with that one.
    """
    for number, one in enumerate(islice(drawn, limit)):
        if one.token in stop_ids:
            yield Done("stop", num_prompt, number, phrases.rest(text.rest()), pace.drafting() if pace else None)
            return
        shown = phrases.push(text.push(one.token))
        candidates = as_shown(one.candidates, Candidate(one.token, shown, one.logprob))
        yield Token(one.token, shown, one.logprob, dict(zip(keys, one.weights, strict=True)), one.gates, candidates)
        if phrases.matched:
            yield Done("phrase", num_prompt, number + 1, drafting=pace.drafting() if pace else None)
            return
    yield Done("length", num_prompt, limit, phrases.rest(text.rest()), pace.drafting() if pace else None)


def _draw_tokens(
    mixing: Mixing,
    tokenizer: Tokenizer,
    sampling: SamplingConfig,
    text: TextStream,
    limit: int,
    pace: DraftPace | None,
) -> Iterator[Drawn]:
    generator, num_prompt = make_generator(sampling.seed), len(mixing.ids)

    def draw(logprobs_V: Tensor, noise: torch.Generator, text: Sequence[int]) -> int:
        possible_V = only_tokens(logprobs_V, tokenizer.unused_rows(len(logprobs_V)))
        return sample_token(possible_V, sampling, noise, text, num_prompt)

    for num_left in range(limit - 1, -1, -1):
        weights_E, logprobs_V = mixing.drawn(generator) if sampling.draw_expert else mixing.distribution()
        token = draw(logprobs_V, generator, mixing.ids)
        candidates = candidates_at(logprobs_V, sampling.num_candidates, tokenizer, text)
        yield Drawn(token, float(logprobs_V[token]), weights_E.tolist(), mixing.gates(weights_E), candidates)
        if not num_left:
            break
        if pace is None or pace.judge(token):
            mixing.feed([token])
        elif guesses := _draft(mixing, pace, weights_E, token, num_left - 1, draw, generator):
            mixing.feed_with(token, guesses)
        else:
            mixing.feed([token])


def _draft(
    mixing: Mixing,
    pace: DraftPace,
    weights_E: Tensor,
    token: int,
    most: int,
    draw: Callable[[Tensor, torch.Generator, Sequence[int]], int],
    generator: torch.Generator,
) -> list[int]:
    """The tokens that the leading expert says after a token, from the noise that the mixture's own will be drawn with.

    Options of sampling see the text with the drafts before. Empty where nothing is to be drafted.
    """
    number = pace.number(len(weights_E), most)
    drafter = mixing.drafter(weights_E) if number else ""
    if isinstance(drafter, str):
        pace.why_not = drafter or pace.why_not
        return []
    noise, text = generator.clone_state(), [*mixing.ids, token]
    for _ in range(number):
        text.append(draw(drafter.after(text[-1]), noise, text))
    drafts = text[-number:]
    pace.expect(drafts)
    return drafts


def read_prompt(
    models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, prompt: Prompt, num_candidates: int = 0
) -> Echo:
    """Scores a prompt under the mixture, token by token; raises the errors of `generate`."""
    require_readable(prompt, tokenizer, models)
    ids, num_before = encode_prompt(prompt, tokenizer)
    mixing, stream = Mixing(models, keys, gate), tokenizer.stream()
    require_fits(len(ids), models)
    first = _text_of_token(tokenizer, stream, ids[0])
    scored = list(_score(mixing, tokenizer, ids, stream, num_candidates))
    texts = [first, *(one.text for one in scored)]
    logprobs: list[float | None] = [None, *(one.logprob for one in scored)]
    best: list[tuple[str, float] | None] = [None, *(one.best for one in scored)]
    candidates: list[Sequence[Candidate]] = [(), *(one.candidates for one in scored)]
    texts[-1] += stream.rest()
    if num_before < len(ids):
        logprobs[num_before] = best[num_before] = None
        candidates[num_before] = ()
    named = candidates[num_before:] if num_candidates else ()
    return Echo(texts[num_before:], logprobs[num_before:], best[num_before:], len(ids), named)


def read_text(models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, text: str) -> dict[str, list[Any]]:
    """Scores a text under the mixture: its `tokens`, the `weights` [token][expert] before each, and `logprobs` (nats).

    `best` is the most probable token at each position as (text, log-probability), `gates` the MoDE gates. If the
    tokenizer has no prefix, the text is scored as a document: its first token is also predicted.
    Raises MixtureError for an empty text, ContextLengthExceededError for one longer than the models' context.
    """
    require_readable(text, tokenizer, models)
    ids, before = tokenizer.encode(text), tokenizer.prefix or (tokenizer.bos_id,)
    most = models.max_positions - len(before)
    if not 0 < len(ids) <= most:
        cause = ContextLengthExceededError if ids else MixtureError
        problem = f"The text has {len(ids)} tokens; 1 to {most} are supported."
        raise cause(problem, "Give a shorter text." if ids else "Give more text.")
    mixing = Mixing(models, keys, gate)
    columns: dict[str, list[Any]] = {"tokens": [], "weights": [], "logprobs": [], "best": [], "gates": []}
    stream = tokenizer.stream()
    scored = _score(mixing, tokenizer, [*before, *ids], stream)
    for token in islice(scored, len(before) - 1, None):  # from the first token of the text on
        weights_E = token.log_weights_E.exp()
        columns["tokens"].append(token.text)
        columns["weights"].append(weights_E.tolist())
        columns["gates"].append(mixing.gates(weights_E))
        columns["logprobs"].append(token.logprob)
        columns["best"].append(token.best)
    columns["tokens"][-1] += stream.rest()
    return columns


class _ScoredToken(NamedTuple):
    """A predicted token: the weights before it, its log-probability, and the most probable token in its place."""

    text: str
    log_weights_E: Tensor
    logprob: float
    best: tuple[str, float]
    candidates: Sequence[Candidate]


def _score(
    mixing: Mixing, tokenizer: Tokenizer, ids: Sequence[int], stream: TextStream, num_candidates: int = 0
) -> Iterator[_ScoredToken]:
    """Yields every token but the first, while `mixing` is still before it."""
    for token, (log_weights_E, observed_E) in zip(ids[1:], mixing.read(ids), strict=True):
        _, logprobs_V = mixing.distribution()
        best = int(only_tokens(logprobs_V, tokenizer.unused_rows(len(logprobs_V))).argmax())
        best_text = stream.peek(best) or tokenizer.written(best)
        candidates = candidates_at(logprobs_V, num_candidates, tokenizer, stream)
        shown, logprob = _text_of_token(tokenizer, stream, token), float(mix(log_weights_E, observed_E))
        candidates = as_shown(candidates, Candidate(token, shown, logprob))
        # exactly one number for one token: clients compare the two
        named = (shown, logprob) if best == token else (best_text, float(logprobs_V[best]))
        yield _ScoredToken(shown, log_weights_E, logprob, named, candidates)


def _text_of_token(tokenizer: Tokenizer, stream: TextStream, token: int) -> str:
    """The text that a token adds; the vocabulary entry for a special token."""
    return stream.rest() + tokenizer.written(token) if token in tokenizer.special_ids else stream.push(token)


MOST_DRAFTS = 8
_FIRST = 2  # drafts that count as judged before any was, half of them accepted
_MEMORY = 10  # judged drafts that the share is of, roughly
_DRAFT_COST = 0.2  # of a pass of one expert in addition to its share of the weights; a pass of all experts costs 1
_POSITION_COST = 0.06  # of each further position in a pass of all experts
_TRY_AFTER, _MOST_AFTER = 16, 256  # where drafts do not pay: tokens to the next try, doubled by each in turn


@dataclass
class DraftCount:
    """Drafts that were judged, and those that were the mixture's own tokens."""

    num_judged: int = 0
    num_accepted: int = 0


class DraftPace:
    """The drafts of one stream."""

    def __init__(self, count: DraftCount | None = None) -> None:
        self._count = count or DraftCount()
        self._share = 0.5
        self._num_seen = _FIRST
        self._pending: list[int] = []
        self._try_after = _TRY_AFTER // 2
        self._num_plain = self._try_after  # tokens since the last draft; the first is tried at once
        self._own = DraftCount()
        self.why_not = "the answer is too short"  # why nothing was drafted

    def number(self, num_experts: int, most: int) -> int:
        """The number of tokens to draft now, `most` at most."""
        best = best_number(self._share, num_experts)
        if not best:
            self._num_plain += 1
            best = int(self._num_plain >= self._try_after)
        return max(0, min(best, most))

    def expect(self, tokens: Sequence[int]) -> None:
        """Takes the drafts that the next tokens are compared with."""
        if self._num_plain >= self._try_after:
            self._try_after = min(2 * self._try_after, _MOST_AFTER)
        self._pending, self._num_plain = list(tokens), 0

    def drafting(self) -> Drafting:
        """What became of this stream's drafts."""
        own = self._own
        return Drafting(own.num_judged, own.num_accepted, "" if own.num_judged else self.why_not)

    def judge(self, token: int) -> bool:
        """Whether a token of the mixture was drafted. The drafts after one that was not are void."""
        if not self._pending:
            return False
        is_accepted = token == self._pending.pop(0)
        self._num_seen = min(self._num_seen + 1, _MEMORY)
        self._share += (is_accepted - self._share) / self._num_seen
        if is_accepted:
            self._try_after = _TRY_AFTER
        for count in (self._count, self._own):
            count.num_judged += 1
            count.num_accepted += is_accepted
        if not is_accepted:
            self._pending = []
        return is_accepted


def best_number(share: float, num_experts: int) -> int:
    """The number of drafts with the most expected tokens per cost when this share is accepted; 0: none pays."""
    draft_cost = 1 / num_experts + _DRAFT_COST

    def speed(number: int) -> float:
        tokens = sum(share**accepted for accepted in range(number + 1))
        return tokens / (1 + number * (draft_cost + _POSITION_COST))

    return max(range(MOST_DRAFTS + 1), key=speed)
