"""Generates tokens from a mixture, with the expert weights behind each token.

Every token is drawn from the mixture's distribution and fed back to its experts.

With speculation the expert of the largest weight drafts some tokens alone, and all experts read them in one pass. Every
token is still drawn from the mixture, from the noise that it has without drafts; a draft only tells what to read before
it is drawn. A draft is made with that same noise, so that two like distributions mostly give the same token.
Shapes: E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.events import Candidate, Done, Token
from engine.inference.ensemble import Models
from engine.inference.mixing import Mixing
from engine.inference.prompt import Prompt, encode_prompt, require_fits, require_readable
from engine.inference.sampling import StopPhrases, as_shown, candidates_at, make_generator, only_tokens, sample_token
from engine.inference.speculation import DraftCount, Pace
from engine.mixing.base import Gate
from engine.text.tokenizer import Tokenizer


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
    `drafts` counts those of speculation. Tokens of the prompt before the position `evidence_from` are no evidence.
    Raises MixtureError without active experts, ContextLengthExceededError when the prompt fills the models'
    context.
    """
    require_readable(prompt, tokenizer, models, 1)
    ids, _ = encode_prompt(prompt, tokenizer)
    mixing = Mixing(models, keys, gate, evidence_from)
    require_fits(len(ids), models, 1)
    ends = tokenizer.stop_ids if stop_ids is None else stop_ids
    max_new_tokens = models.max_positions - len(ids)
    with reserve(len(ids) + min(sampling.max_tokens, max_new_tokens)):
        mixing.feed(ids)
        pace = Pace(drafts) if sampling.speculate else None
        yield from _continue(mixing, keys, tokenizer, ends, sampling, StopPhrases(stop), len(ids), max_new_tokens, pace)


def _continue(
    mixing: Mixing,
    keys: Sequence[str],
    tokenizer: Tokenizer,
    stop_ids: Collection[int],
    sampling: SamplingConfig,
    phrases: StopPhrases,
    num_prompt: int,
    max_new_tokens: int,
    pace: Pace | None = None,
) -> Iterator[Token | Done]:
    generator, text = make_generator(sampling.seed), tokenizer.stream(mixing.ids)
    stop_ids = () if sampling.ignore_eos else stop_ids
    limit = min(sampling.max_tokens, max_new_tokens)

    def draw(logprobs_V: Tensor, noise: torch.Generator, text: Sequence[int]) -> int:
        possible_V = only_tokens(logprobs_V, tokenizer.unused_rows(len(logprobs_V)))
        return sample_token(possible_V, sampling, noise, text, num_prompt)

    for number in range(limit):
        weights_E, logprobs_V = mixing.distribution()
        token = draw(logprobs_V, generator, mixing.ids)
        if token in stop_ids:
            yield Done("stop", num_prompt, number, phrases.rest(text.rest()), pace.drafting() if pace else None)
            return
        candidates = candidates_at(logprobs_V, sampling.num_candidates, tokenizer, text)
        shown, logprob = phrases.push(text.push(token)), float(logprobs_V[token])
        weights = dict(zip(keys, weights_E.tolist(), strict=True))
        candidates = as_shown(candidates, Candidate(token, shown, logprob))
        yield Token(token, shown, logprob, weights, mixing.gates(weights_E), candidates)
        if phrases.matched:
            yield Done("phrase", num_prompt, number + 1, drafting=pace.drafting() if pace else None)
            return
        if number + 1 == limit:
            break
        if pace is None or pace.judge(token):
            mixing.feed([token])
        elif guesses := _draft(mixing, pace, weights_E, token, limit - number - 2, draw, generator):
            mixing.feed_with(token, guesses)
        else:
            mixing.feed([token])
    yield Done("length", num_prompt, limit, phrases.rest(text.rest()), pace.drafting() if pace else None)


def _draft(
    mixing: Mixing,
    pace: Pace,
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
        pace.refused(drafter)
        return []
    noise, text = generator.clone_state(), [*mixing.ids, token]
    for _ in range(number):
        text.append(draw(drafter.after(text[-1]), noise, text))
    drafts = text[-number:]
    pace.drafted(drafts)
    return drafts
