"""Samples tokens from log-probabilities, and stops at phrases."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import SamplingConfig

COLDEST = 1e-6  # below it float32 loses the differences of logits, and then overflows


def make_generator(seed: int | None) -> torch.Generator:
    """The random generator of one answer; seeded by the system without a seed."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(seed)


def sample_token(logprobs_V: Tensor, sampling: SamplingConfig, generator: torch.Generator) -> int:
    """A token id: the most probable at temperature 0, else sampled with temperature and top-p."""
    if sampling.temperature < COLDEST:
        return int(logprobs_V.argmax())
    probabilities_V = sampling_distribution(logprobs_V, sampling).cpu()
    return int(torch.multinomial(probabilities_V, 1, generator=generator))


def sampling_distribution(logprobs_V: Tensor, sampling: SamplingConfig) -> Tensor:
    """The probabilities [V] to sample from; at temperature 1 and top_p 1 the mixture's own (law L13)."""
    probabilities_V = (logprobs_V / sampling.temperature).softmax(-1)
    if sampling.top_p >= 1:
        return probabilities_V
    sorted_V, order_V = probabilities_V.sort(descending=True)
    outside_V = sorted_V.cumsum(0) - sorted_V >= sampling.top_p
    outside_V[0] = False  # float32 reads a tiny top_p as 0
    nucleus_V = probabilities_V.scatter(0, order_V, sorted_V.masked_fill(outside_V, 0.0))
    return nucleus_V / nucleus_V.sum()


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
        keep = self._could_begin()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self, text: str = "") -> str:
        """The held-back text, once no more text comes."""
        shown = self.push(text)
        held, self._held = self._held, ""
        return shown + held

    def _could_begin(self) -> int:
        """The number of last held characters that begin a phrase."""
        longest = 0
        for phrase in self._phrases:
            for size in range(min(len(phrase) - 1, len(self._held)), longest, -1):
                if self._held.endswith(phrase[:size]):
                    longest = size
                    break
        return longest
