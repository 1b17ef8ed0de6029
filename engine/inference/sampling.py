"""Drawing a token from log-probabilities, and stopping at a phrase."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.config import SamplingConfig

COLDEST = 1e-6  # below it float32 does not tell a logit from its neighbours, and before long it overflows


def make_generator(seed: int | None) -> torch.Generator:
    """What one answer is drawn with, and nothing else: without a seed it begins where the system says."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(seed)


def sample_token(logprobs_V: Tensor, sampling: SamplingConfig, generator: torch.Generator) -> int:
    """A token id: the most probable at temperature 0, else drawn from the tempered and cut distribution."""
    if sampling.temperature < COLDEST:
        return int(logprobs_V.argmax())
    probabilities_V = sampling_distribution(logprobs_V, sampling).cpu()
    return int(torch.multinomial(probabilities_V, 1, generator=generator))


def sampling_distribution(logprobs_V: Tensor, sampling: SamplingConfig) -> Tensor:
    """The probabilities [V] that are drawn from; at temperature 1 and top_p 1, the mixture's own (law L13)."""
    probabilities_V = (logprobs_V / sampling.temperature).softmax(-1)
    if sampling.top_p >= 1:
        return probabilities_V
    sorted_V, order_V = probabilities_V.sort(descending=True)
    outside_V = sorted_V.cumsum(0) - sorted_V >= sampling.top_p
    outside_V[0] = False  # float32 reads a tiny top_p as 0
    kept_V = probabilities_V.scatter(0, order_V, sorted_V.masked_fill(outside_V, 0.0))
    return kept_V / kept_V.sum()


class StopPhrases:
    """Lets text through until a phrase appears, holding back what could become one."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self._phrases = [phrase for phrase in phrases if phrase]
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """What may be shown now that `text` was added."""
        self._held += text
        at = min((i for i in map(self._held.find, self._phrases) if i >= 0), default=-1)
        if at >= 0:
            self.found = True
            shown, self._held = self._held[:at], ""
            return shown
        keep = self._could_begin()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self, text: str = "") -> str:
        """The end of the text, once nothing more can come."""
        shown = self.push(text)
        held, self._held = self._held, ""
        return shown + held

    def _could_begin(self) -> int:
        """How many of the last held characters are the beginning of a phrase."""
        longest = 0
        for phrase in self._phrases:
            for size in range(min(len(phrase) - 1, len(self._held)), longest, -1):
                if self._held.endswith(phrase[:size]):
                    longest = size
                    break
        return longest
