"""Samples tokens from log-probabilities, and stops at phrases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.events import Candidate

if TYPE_CHECKING:
    from engine.text.tokenizer import TextStream, Tokenizer

COLDEST = 1e-6  # below it float32 loses the differences of logits, and then overflows


def make_generator(seed: int | None) -> torch.Generator:
    """The random generator of one answer; seeded by the system without a seed."""
    generator = torch.Generator()
    return generator.manual_seed(generator.seed() if seed is None else seed)


def only_tokens(logprobs_V: Tensor, unused_rows: Sequence[int]) -> Tensor:
    """The log-probabilities [V] or [B, V] to sample from: rows that no token has are left out.

    Those of tokens stay as they are, with these rows in the softmax as in transformers: they are also in perplexities.
    """
    if not unused_rows:
        return logprobs_V
    return logprobs_V.index_fill(-1, torch.tensor(unused_rows, device=logprobs_V.device), -torch.inf)


def sample_token(
    logprobs_V: Tensor,
    sampling: SamplingConfig,
    generator: torch.Generator,
    ids: Sequence[int] = (),
    num_prompt: int = 0,
) -> int:
    """A token id: the most probable at temperature 0, else sampled. `ids` is the text so far, its prompt first."""
    if sampling.temperature < COLDEST:
        return int(penalize(logprobs_V, sampling, ids, num_prompt).argmax())
    probabilities_V = sampling_distribution(logprobs_V, sampling, ids, num_prompt).cpu()
    return int(torch.multinomial(probabilities_V, 1, generator=generator))


def sampling_distribution(
    logprobs_V: Tensor, sampling: SamplingConfig, ids: Sequence[int] = (), num_prompt: int = 0
) -> Tensor:
    """The probabilities [V] to sample from; with no option set the mixture's own (law L13).

    The order is that of transformers: bias and penalties, temperature, top-k, top-p, min-p.
    """
    scores_V = penalize(logprobs_V, sampling, ids, num_prompt)
    probabilities_V = (scores_V / sampling.temperature).softmax(-1)
    if 0 < sampling.top_k < len(probabilities_V):
        probabilities_V = _without(probabilities_V, probabilities_V < probabilities_V.topk(sampling.top_k).values[-1])
    if sampling.top_p < 1:
        sorted_V, order_V = probabilities_V.sort(descending=True)
        outside_V = sorted_V.cumsum(0) - sorted_V >= sampling.top_p
        outside_V[0] = False  # float32 reads a tiny top_p as 0
        probabilities_V = _without(probabilities_V, torch.empty_like(outside_V).scatter(0, order_V, outside_V))
    if sampling.min_p > 0:
        probabilities_V = _without(probabilities_V, probabilities_V < sampling.min_p * probabilities_V.max())
    return probabilities_V


def penalize(logprobs_V: Tensor, sampling: SamplingConfig, ids: Sequence[int] = (), num_prompt: int = 0) -> Tensor:
    """The log-probabilities [V] with bias and penalties, before temperature.

    Repetition is judged by prompt and answer, presence and frequency by the answer, as in transformers and vLLM. A
    repetition penalty has their formula, but on log-probabilities: they apply it to logits, which a mixture does not
    have, so the same number has another effect, also with a single expert.
    """
    scores_V = logprobs_V
    if sampling.logit_bias:
        biased = [token for token in sampling.logit_bias if token < len(logprobs_V)]
        values = torch.tensor([sampling.logit_bias[token] for token in biased], dtype=torch.float32).to(scores_V)
        scores_V = scores_V.index_add(0, torch.tensor(biased, dtype=torch.long, device=scores_V.device), values)
    if sampling.repetition_penalty != 1 and ids:
        seen = torch.tensor(sorted(set(ids)), device=scores_V.device)
        old = scores_V[seen]
        new = torch.where(old < 0, old * sampling.repetition_penalty, old / sampling.repetition_penalty)
        scores_V = scores_V.index_copy(0, seen, new)
    if sampling.presence_penalty or sampling.frequency_penalty:
        times_V = torch.bincount(torch.tensor(ids[num_prompt:], dtype=torch.long), minlength=len(scores_V))
        times_V = times_V.to(scores_V)
        scores_V = scores_V - sampling.frequency_penalty * times_V - sampling.presence_penalty * (times_V > 0)
    return scores_V


def _without(probabilities_V: Tensor, outside_V: Tensor) -> Tensor:
    kept_V = probabilities_V.masked_fill(outside_V, 0.0)
    return kept_V / kept_V.sum()


class StopPhrases:
    """Passes text through until a stop phrase appears, and holds back what could become one."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self._phrases = [phrase for phrase in phrases if phrase]
        self._held = ""
        self.matched = False

    def push(self, text: str) -> str:
        """Adds text and returns what may be shown."""
        self._held += text
        at = min((i for i in map(self._held.find, self._phrases) if i >= 0), default=-1)
        if at >= 0:
            self.matched = True
            shown, self._held = self._held[:at], ""
            return shown
        sizes = ((phrase, min(len(phrase) - 1, len(self._held))) for phrase in self._phrases)
        begins = (size for phrase, most in sizes for size in range(1, most + 1) if self._held.endswith(phrase[:size]))
        keep = max(begins, default=0)  # characters at the end that may begin a phrase
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self, text: str = "") -> str:
        """The held-back text, once no more text comes."""
        shown = self.push(text)
        held, self._held = self._held, ""
        return shown + held


def candidates_at(logprobs_V: Tensor, number: int, tokenizer: Tokenizer, text: TextStream) -> list[Candidate]:
    """The most probable next tokens, the greatest first, with the text that each would add."""
    if not number:
        return []
    possible_V = only_tokens(logprobs_V, unused_rows := tokenizer.unused_rows(len(logprobs_V)))
    best = possible_V.topk(min(number, len(logprobs_V) - len(unused_rows)))
    return [
        Candidate(token, text.peek(token) or tokenizer.written(token), logprob)
        for token, logprob in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def as_shown(candidates: Sequence[Candidate], token: Candidate) -> list[Candidate]:
    """The same, where the token that was taken has the text and the number that it is shown with: clients compare."""
    return [token if candidate.id == token.id else candidate for candidate in candidates]
